package session

import (
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// brought is what a client brought from another stream: initial_resource_versions in delta,
// version_info in SotW. It is kept until all that the client asks for is answered (P67): the relay
// may have started a moment ago and hold only a part of what the origin has. In delta it is also
// kept until all its versions are answered (P27). A nil pointer has no versions.
type brought struct {
	versions map[string]string // by name; nil in SotW
	until    time.Time         // how long names are waited for; zero: nothing is answered yet
	late     bool              // that time is over
}

// NamesWait is how long at most a client that brought state waits for names (P67). It runs from
// when anything that the client asks for is answered.
const NamesWait = 5 * time.Second

// bring reads the versions in a type's first request. An empty version matches nothing, but a
// removal of that name is still sent.
func (s *Session) bring(r *xds.Request) {
	s.brought = new(brought)
	if len(r.Initial) > 0 {
		s.brought.versions = make(map[string]string, len(r.Initial))
	}
	for _, e := range r.Initial {
		s.brought.versions[string(e.Name)] = string(e.Version)
		s.forced.weight += xds.VersionedWeight(len(e.Name), len(e.Version))
	}
}

// initial are the versions that the client brought and that are not answered yet.
func (b *brought) initial() map[string]string {
	if b == nil {
		return nil
	}
	return b.versions
}

// distrust makes the version of a name match nothing: the client is sent the resource whatever it
// has, or its removal.
func (b *brought) distrust(name string) {
	if _, is := b.initial()[name]; is {
		b.versions[name] = ""
	}
}

// incomplete reports whether an answer to something that the client asks for may still come. Until
// then a client that brought state would take it for gone (P67).
func (c comparison) incomplete() bool {
	sub := c.s.sub.effective
	switch b := c.s.brought; {
	case b == nil:
		return false
	case sub.Wildcard && !c.to.AnswersWildcard(sub):
		return true
	default:
		_, all := c.originAnswered()
		return !all && !b.late
	}
}

// originAnswered reports whether the origin answered anything that the client asks for, and whether
// it answered all names.
func (c comparison) originAnswered() (any, names bool) {
	sub := c.s.sub.effective
	any, names = sub.Wildcard && c.to.Answered, true
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

// anyPending reports whether a name that the client asks for has no answer yet. The answer may be a
// resource of another name.
func (c comparison) anyPending() bool {
	for n := range c.s.sub.effective.Names.All() {
		if _, is := c.look(n); is == snapshot.Pending {
			return true
		}
	}
	return false
}

// awaitNames tracks how long the client that brought state waits for names. It returns when that is
// over; zero: it does not wait.
func (c comparison) awaitNames(now time.Time) time.Time {
	b := c.s.brought
	if b == nil || b.late {
		return time.Time{}
	}
	if any, names := c.originAnswered(); names || !any {
		return time.Time{}
	}
	if b.until.IsZero() {
		b.until = now.Add(NamesWait)
	}
	if b.late = !now.Before(b.until); b.late {
		return time.Time{}
	}
	return b.until
}

// addBrought puts the removals into the plan of what the client brought and what is gone (P27). It
// keeps in the plan's unanswered what is not known yet. Nothing counts as gone before all that the
// client asks for is answered (P67).
func (p planner) addBrought() {
	if p.s.brought == nil {
		return
	}
	keep := func(name string, version string) {
		if p.unanswered == nil {
			p.unanswered = make(map[string]string)
		}
		p.unanswered[name] = version
	}
	remove := func(name string) { p.content.Removed = append(p.content.Removed, name) }
	sub := p.s.sub.effective
	incomplete := p.incomplete()
	var pending, known bool // computed once, and only if it is needed
	anyPending := func() bool {
		if !known {
			pending, known = p.anyPending(), true
		}
		return pending
	}
	for name, version := range p.s.brought.initial() {
		_, is := p.to.Look(sub, name)
		elsewhere := is == snapshot.UnderOtherName
		if elsewhere {
			_, is = p.to.LookOwnName(sub, name)
		}
		switch {
		case !sub.Covers(name):
			// The client had it for a handle, if it asks for it at all. It is gone once no name
			// leads to it any more. By now no held resource needs to name its handles.
			switch {
			case is == snapshot.Present:
			case incomplete, anyPending():
				keep(name, version)
			default:
				remove(name)
			}
		case is == snapshot.Absent:
			switch {
			case !elsewhere && sub.Names.Has(name): // it is among the changed names already
			case incomplete:
				keep(name, version)
			default:
				remove(name)
			}
		case is == snapshot.Pending:
			keep(name, version)
		case is == snapshot.Expired:
			keep(name, "") // by the time it returns the client may have dropped it too
		}
	}
	sortUnique(&p.content.Removed)
}
