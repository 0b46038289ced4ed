package session

import (
	"slices"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// clientVersions are those that the client already has when its stream begins:
// initial_resource_versions in delta, version_info in SotW. The session keeps them until everything
// that the client requests is answered (P67): a relay that has just started may hold only a part of
// what the origin has. In delta they are also kept until all are answered (P27). A nil pointer has
// no versions.
type clientVersions struct {
	byName map[string]string // nil in SotW
	until  time.Time         // until when to wait for names; zero: nothing is answered yet
	late   bool              // that time is over
}

// RoutesWait returns for how long at most listeners and routes wait for the full-state response of
// clusters (P67); 0: it can be sent.
func (s *Session) RoutesWait(to *snapshot.Snapshot) time.Duration {
	switch c := (comparison{s, to}); {
	case s.clientVersions == nil || !s.fullState() || !c.incomplete():
		return 0
	case to.AnswersWildcard(s.sub.effective):
		return snapshot.NamesWait
	}
	return s.sub.effective.RoutesWait()
}

// readClientVersions reads the versions in a type's first request. An empty version matches
// nothing, but a removal of that name is still sent.
func (s *Session) readClientVersions(r *xds.Request) {
	s.clientVersions = new(clientVersions)
	if len(r.Initial) > 0 {
		s.clientVersions.byName = make(map[string]string, len(r.Initial))
	}
	for _, e := range r.Initial {
		s.clientVersions.byName[string(e.Name)] = string(e.Version)
		s.forced.weight += xds.VersionedWeight(len(e.Name), len(e.Version))
	}
}

// initial are the versions that the client stated and that have no response yet.
func (v *clientVersions) initial() map[string]string {
	if v == nil {
		return nil
	}
	return v.byName
}

// Brought reports whether the client stated a version of the name that has no response yet.
func (s *Session) Brought(name string) bool { return s.clientVersions.initial()[name] != "" }

// forget makes the version of a name match nothing: the client is sent the resource, whatever it
// has, or its removal.
func (v *clientVersions) forget(name string) {
	if _, stated := v.initial()[name]; stated {
		v.byName[name] = ""
	}
}

// incomplete reports whether a client that resumes has to wait for the origin's answers. From a
// response without them it would conclude that the resources are gone (P67).
func (c comparison) incomplete() bool {
	sub := c.s.sub.effective
	switch versions := c.s.clientVersions; {
	case versions == nil:
		return false
	case sub.Wildcard && !c.to.AnswersWildcard(sub):
		return true
	default:
		_, all := c.originAnswered()
		return !all && !versions.late
	}
}

// originAnswered reports whether the origin answered anything that the client requests, and whether
// it answered all names.
func (c comparison) originAnswered() (any, names bool) {
	sub := c.s.sub.effective
	any, names = sub.Wildcard && c.to != nil && c.to.Answered, true
	for n := range sub.Names.All() {
		if _, is := c.look(n); is == snapshot.Pending && c.to.Error(sub, n) == nil {
			names = false
		} else {
			any = true
		}
		if any && !names {
			break
		}
	}
	return any, names
}

// anyUnanswered reports whether a requested name is unanswered. Its answer may be a resource of
// another name.
func (c comparison) anyUnanswered() bool {
	return anyOf(c.s.sub.effective.Names.All(), func(n string) bool {
		_, is := c.look(n)
		return is == snapshot.Pending
	})
}

// awaitNames tracks how long a client that resumes waits for names. It returns when the wait ends;
// zero: it does not wait.
func (c comparison) awaitNames(now time.Time) time.Time {
	versions := c.s.clientVersions
	if versions == nil || versions.late {
		return time.Time{}
	}
	if any, names := c.originAnswered(); names || !any {
		return time.Time{}
	}
	if versions.until.IsZero() {
		versions.until = now.Add(snapshot.NamesWait)
	}
	if versions.late = !now.Before(versions.until); versions.late {
		return time.Time{}
	}
	return versions.until
}

// addMissedRemovals puts removals into the plan: of what the client already had and what is gone
// (P27). It sets pendingVersions to the versions that stay unanswered. What the origin did not
// remove itself counts as gone only once everything that the client requests is answered, and the
// answer to the wildcard is settled (P67).
func (p planner) addMissedRemovals() {
	if len(p.s.clientVersions.initial()) == 0 {
		return
	}
	remove := func(name string) { p.content.Removed = append(p.content.Removed, name) }
	sub := p.s.sub.effective
	incomplete := p.incomplete()
	open := incomplete || p.anyUnanswered()
	for name, version := range p.s.clientVersions.initial() {
		_, is := p.to.Look(sub, name)
		elsewhere := is == snapshot.UnderOtherName
		if elsewhere {
			_, is = p.to.LookOwnName(sub, name)
		}
		switch {
		// A name that is not covered came by an alias, if the client requests it at all. It is gone
		// once no alias leads to it any more. The resources that are held need not list their aliases
		// now.
		case !sub.Covers(name) && is == snapshot.Present:
		case !sub.Covers(name) && open:
			put(&p.pendingVersions, name, version)
		case !sub.Covers(name):
			remove(name)
		case is == snapshot.Absent && !elsewhere && sub.Names.Has(name): // among the changed names already
		case is == snapshot.Pending, is == snapshot.Absent && (incomplete || sub.Wildcard && !p.to.Settled) && !p.to.RemovedByOrigin(name):
			put(&p.pendingVersions, name, version)
		case is == snapshot.Absent:
			remove(name)
		case is == snapshot.Expired:
			put(&p.pendingVersions, name, "") // the client may drop it before it returns
		}
	}
	sortUnique(&p.content.Removed)
}

// alreadyHas reports whether the client stated this version of the resource at first, so that it
// need not be sent (P27). It is sent if the client requested it by an alias since (P23).
func (p planner) alreadyHas(name string, r *xds.Resource) bool {
	s := p.s
	version, stated := s.clientVersions.initial()[name]
	return stated && version == s.form.Version(r) && (!s.Type.AlwaysResend || s.form.Relay) &&
		!slices.ContainsFunc(r.AliasesAndGlob(), func(h string) bool { return s.forced.names[h] == byRequest })
}
