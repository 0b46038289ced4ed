package session

import (
	"slices"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// comparison compares what a client has with what it is to have by a snapshot.
//
// A client may ask for a resource by an alias (P26) or by a glob (P28), and is given it under its
// own name. So there are two kinds of names: those of resources, by which the client holds them,
// and handles, that is aliases and globs, by which it asked for them. A response includes a handle
// only if it leads nowhere: as removed. A name may be both, at once or one after the other. A
// client that had the resource of a name is sent what became of that resource, wherever the name
// leads by now.
type comparison struct {
	s  *Session
	to *snapshot.Snapshot
}

// baseline is the snapshot that the client was sent. Whether everything is answered anew does not
// matter to a full-state response, except for what follows it (P37).
func (c comparison) baseline() baseline {
	b := c.s.delivered.baseline
	b.resendAll = b.resendAll && !c.s.fullState()
	return b
}

// candidates are the names that may differ between the snapshot that the client was sent and the
// one that it is to have.
func (c comparison) candidates() []string {
	return c.baseline().candidates(c.to, c.s.sub.effective)
}

// had is what the client was sent under a name.
func (c comparison) had(name string) (*xds.Resource, snapshot.Presence) {
	return c.s.delivered.look(c.s.sub.effective, name)
}

// look is what the client is to have under a name.
func (c comparison) look(name string) (*xds.Resource, snapshot.Presence) {
	r, is := c.to.Look(c.s.sub.effective, name)
	return c.retried(name, r, is)
}

// see is look for a client that had this of the name.
func (c comparison) see(name string, had *xds.Resource, was snapshot.Presence) (*xds.Resource, snapshot.Presence) {
	r, is := see(c.to, c.s.sub.effective, name, had, was)
	return c.retried(name, r, is)
}

// see is Snapshot.Look for a client that had this of the name. Two cases count as absent, also if
// the resource lapsed since. A resource of this name is gone, and the name is another resource's
// alias now. Or the client had the resource for a handle, and the handle is answered without it.
func see(to *snapshot.Snapshot, sub *snapshot.Subscription, name string, had *xds.Resource, was snapshot.Presence) (*xds.Resource, snapshot.Presence) {
	r, is := to.Look(sub, name)
	switch {
	case was != snapshot.Present && was != snapshot.Expired:
	case is == snapshot.UnderOtherName:
		return to.LookOwnName(sub, name)
	case is == snapshot.Pending && len(had.AliasesAndGlob()) > 0 && to.IsRemoved(sub, had):
		return nil, snapshot.Absent
	case is == snapshot.Pending && was == snapshot.Present && sub.Wildcard && to != nil && to.Answered:
		return nil, snapshot.Absent // the wildcard brought it, and removed it before the name was answered
	}
	return r, is
}

// differs reports whether the client is to be sent something of a name because of what changed.
func (c comparison) differs(name string) bool {
	resource, err := c.difference(name)
	return resource || err
}

// difference reports whether the resource of a name differs, and whether its error does (P39).
func (c comparison) difference(name string) (resource, err bool) {
	sub := c.s.sub.effective
	had, was := c.had(name)
	has, is := c.see(name, had, was)
	sent, now := c.s.delivered.error(sub, name), c.to.Error(sub, name)
	if c.baseline().ignores(was, is) {
		had, was, sent = nil, snapshot.Pending, nil
	}
	resource = clearsError(sent, now, is) || differs(c.s.form, c.s.fullState(), sub.Names.Has(name), had, was, has, is)
	return resource, now != nil && now != sent
}

// differs reports whether a client of this form can tell what it has of a name from what it is to
// have. full: it is sent full-state responses. named: it asks for the name.
//
// This is where a deletion becomes a response, or none: case Absent. Before that, the group delays
// the deletions of clusters and endpoints that may still be in use (P36: make before break).
func differs(form xds.ResourceFormat, full, named bool, had *xds.Resource, was snapshot.Presence, has *xds.Resource, is snapshot.Presence) bool {
	switch is {
	case snapshot.Present:
		// A SotW client may or may not have a resource that was deleted without a response (P31).
		// It is sent when it returns.
		return was != snapshot.Present || !form.Same(has, had)
	case snapshot.Unresolvable:
		if form.Variant == xds.Delta {
			return was != snapshot.Unresolvable // P18: once
		}
		fallthrough
	case snapshot.Absent:
		had := was == snapshot.Present || was == snapshot.Expired // the client may still have what lapsed (P62)
		if form.Variant == xds.SotW {
			// Only a full set can leave it out (P30, P31). Such a set also answers a listed name
			// (P22).
			return full && (had || was == snapshot.Pending && named)
		}
		// P25: an absent name that was asked for is answered, and so is a handle that leads nowhere
		// any more. What a wildcard never had is nothing.
		return had || (was == snapshot.Pending || was == snapshot.UnderOtherName) && named
	case snapshot.Expired:
		return was == snapshot.Present && outlives(form, full, had, has)
	}
	return false // the origin has not said that it is gone, or there is nothing of this name
}

// clearsError reports whether the next resource, changed or not, is sent because it ends the error
// that a client was sent in its place (P39).
func clearsError(sent, now *xds.ResourceError, is snapshot.Presence) bool {
	return sent != nil && now == nil && is == snapshot.Present
}

// nowElsewhere reports whether a name leads to another resource since. The client may have refused
// the response that said that it leads nowhere.
func (c comparison) nowElsewhere(name string) bool {
	if c.s.refusals.list == nil || c.s.form.Variant == xds.SotW {
		return false
	}
	_, was := c.had(name)
	_, is := c.look(name)
	return is == snapshot.UnderOtherName && was != snapshot.UnderOtherName
}

// mustWait reports whether nothing can be sent yet. A wildcard has no response before the origin
// answered it. An empty answer counts (P11). Until a full-state response is complete, the client would
// take the rest for gone (P30, P67).
func (c comparison) mustWait() bool {
	s := c.s
	full := s.fullState()
	if full && c.incomplete() {
		return true
	}
	return s.sub.effective.Wildcard && !c.to.Answered && (full || s.delivered.initialResponsePending && s.sub.effective.Names.Len() == 0)
}

// pending reports whether there would be anything to send if no response were unanswered.
func (c comparison) pending() bool {
	s := c.s
	if !s.sub.began || c.to == nil || c.mustWait() {
		return false
	}
	if s.delivered.initialResponsePending && s.sub.effective.Wildcard && c.to.AnswersWildcard(s.sub.effective) {
		return true
	}
	if c.answersAnyForced() || slices.ContainsFunc(c.candidates(), c.differs) {
		return true
	}
	for name := range s.delivered.sentBeforeACK {
		if c.differs(name) {
			return true
		}
	}
	for name := range s.delivered.errors {
		if c.differs(name) {
			return true
		}
	}
	if s.brought != nil {
		p := planner{c, new(Plan)}
		if p.addBrought(); len(p.content.Removed) > 0 {
			return true
		}
	}
	return len(c.appendRetried(nil)) > 0
}

// withHandles adds to names those of the resources to which they lead as handles.
func withHandles(at *snapshot.Snapshot, names []string) []string {
	for _, n := range names {
		names = append(names, at.NamesByAlias(n)...)
	}
	return names
}

func sortUnique(names *[]string) {
	slices.Sort(*names)
	*names = slices.Compact(*names)
}
