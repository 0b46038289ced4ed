package session

import (
	"iter"
	"maps"
	"slices"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// comparison compares what a client has with what it is to have by a snapshot.
//
// A client may request a resource by an alias (P26) or a glob (P28), and gets it under its own
// name. So there are two kinds of names: resource names, by which the client has resources, and
// aliases, by which it requested them. A response includes an alias only if it leads to no
// resource: as removed. A name may be of both kinds, at once or one after the other. A client that
// had the resource of a name is sent what became of that resource, wherever the name leads now.
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

// see is look for a client that had this under the name.
func (c comparison) see(name string, had *xds.Resource, was snapshot.Presence) (*xds.Resource, snapshot.Presence) {
	r, is := see(c.to, c.s.sub.effective, name, had, was)
	return c.retried(name, r, is)
}

// see is Snapshot.Look for a client that had this under the name. Two cases count as absent, even
// if the resource has expired since. The resource of this name is gone, and the name is another
// resource's alias now. Or the client had the resource by an alias, and the alias is answered
// without it.
func see(to *snapshot.Snapshot, sub *snapshot.Subscription, name string, had *xds.Resource, was snapshot.Presence) (*xds.Resource, snapshot.Presence) {
	has := was == snapshot.Present || was == snapshot.Expired
	r, is := to.Look(sub, name)
	if has && is == snapshot.UnderOtherName {
		r, is = to.LookOwnName(sub, name)
	}
	// The wildcard may have brought it, and removed it before the name was answered.
	gone := was == snapshot.Present && sub.Wildcard && to != nil && to.Answered
	if has && is == snapshot.Pending && (gone || len(had.AliasesAndGlob()) > 0 && to.IsRemoved(sub, had)) {
		return nil, snapshot.Absent
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
	sentErr, newErr := c.s.delivered.error(sub, name), c.to.Error(sub, name)
	if c.baseline().ignores(was, is) {
		had, was, sentErr = nil, snapshot.Pending, nil
	}
	resource = clearsError(sentErr, newErr, is) || differs(c.s.form, c.s.fullState(), sub.Names.Has(name), had, was, has, is)
	return resource, newErr != nil && newErr != sentErr
}

// differs reports whether what a client of this form has under a name differs, for the client, from
// what it is to have. full: it is sent full-state responses. named: it requests the name.
//
// The case Absent decides whether a deletion is sent. Before that, the group delays the deletions
// of clusters and endpoints that may still be in use (P36: make before break).
func differs(form xds.ResourceFormat, full, named bool, had *xds.Resource, was snapshot.Presence, has *xds.Resource, is snapshot.Presence) bool {
	switch is {
	case snapshot.Present:
		// A SotW client may still have a resource that was deleted without a response (P31). When
		// the resource returns, it is sent.
		return was != snapshot.Present || !form.Same(has, had)
	case snapshot.Unresolvable:
		if form.Variant == xds.Delta {
			return was != snapshot.Unresolvable // P18: once
		}
		fallthrough
	case snapshot.Absent:
		had := was == snapshot.Present || was == snapshot.Expired // the client may still have an expired one (P62)
		if form.Variant == xds.SotW {
			// Only a full set can leave it out (P30, P31). Such a set also answers a listed name
			// (P22).
			return full && (had || was == snapshot.Pending && named)
		}
		// P25: a requested name that is absent is answered, and so is an alias that leads to no
		// resource any more. A name that the wildcard never had needs no answer.
		return had || (was == snapshot.Pending || was == snapshot.UnderOtherName) && named
	case snapshot.Expired:
		return was == snapshot.Present && outlives(form, full, had, has)
	}
	return false // the origin has not said that it is gone, or there is nothing of this name
}

// clearsError reports whether a resource, changed or not, is sent because it ends the error that
// the client was sent in its place (P39).
func clearsError(sentErr, newErr *xds.ResourceError, is snapshot.Presence) bool {
	return sentErr != nil && newErr == nil && is == snapshot.Present
}

// nowElsewhere reports whether a name has become the alias of another resource. The client may have
// rejected the response that removed the name.
func (c comparison) nowElsewhere(name string) bool {
	if c.s.nacks.list == nil || c.s.form.Variant == xds.SotW {
		return false
	}
	_, was := c.had(name)
	_, is := c.look(name)
	return is == snapshot.UnderOtherName && was != snapshot.UnderOtherName
}

// mustWait reports whether nothing can be sent yet. A delta client cannot be told of resources
// without names (P3). A wildcard has no response before the origin answered it. An empty answer
// counts (P11). From a full-state response that is not complete, the client would conclude that the
// rest is gone (P30, P67).
func (c comparison) mustWait() bool {
	s, full := c.s, c.s.fullState()
	first := s.delivered.initialResponsePending && s.sub.effective.Wildcard
	if full && c.incomplete() || s.form.Relay && first && !c.to.AnswersWildcard(s.sub.effective) || s.LacksNames(c.to) {
		return true
	}
	return s.sub.effective.Wildcard && !c.to.Answered && (full || s.delivered.initialResponsePending && s.sub.effective.Names.Len() == 0)
}

// pending reports whether there would be anything to send if no ACK were pending.
func (c comparison) pending() bool {
	s := c.s
	if !s.sub.began || c.to == nil || c.mustWait() {
		return false
	}
	if s.delivered.initialResponsePending && s.sub.effective.Wildcard && c.to.AnswersWildcard(s.sub.effective) {
		return true
	}
	if anyOf(maps.Keys(s.forced.names), c.answers) || slices.ContainsFunc(c.candidates(), c.differs) ||
		anyOf(maps.Keys(s.delivered.sentBeforeACK), c.differs) || anyOf(maps.Keys(s.delivered.errors), c.differs) || c.nackedSentAgain() {
		return true
	}
	if s.clientVersions != nil {
		p := planner{c, new(Plan)}
		if p.addMissedRemovals(); len(p.content.Removed) > 0 {
			return true
		}
	}
	return len(c.appendRetried(nil)) > 0
}

// withAliased adds to names those of the resources to which they lead as aliases.
func withAliased(at *snapshot.Snapshot, names []string) []string {
	for _, n := range names {
		names = append(names, at.NamesByAlias(n)...)
	}
	return names
}

func sortUnique(names *[]string) {
	slices.Sort(*names)
	*names = slices.Compact(*names)
}

// put sets m[k], and makes the map if it is nil.
func put[V any](m *map[string]V, k string, v V) {
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[k] = v
}

func nilIfEmpty[V any](m *map[string]V) {
	if len(*m) == 0 {
		*m = nil
	}
}

// anyOf reports whether f holds for any of the names.
func anyOf(names iter.Seq[string], f func(string) bool) bool {
	for n := range names {
		if f(n) {
			return true
		}
	}
	return false
}
