package session

import (
	"slices"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// nacks are the NACKs of the client whose content it still requests.
type nacks struct {
	list        []nackedResponse // oldest first, at most maxPendingACKs; nil: none
	lastWasNACK bool             // the client answered the last response with a NACK
	seen        snapshot.ID      // up to which the session has looked for what the origin sent again
}

// nackedResponse is what a response held that the client rejected. None of it is sent again by
// itself. All of it is sent again when any of it changes, because the client may have applied
// nothing, or when the origin sends any of it under a new version, because the reason of the NACK
// may be over (P15).
type nackedResponse struct {
	names []string // sorted
	// byAlias are those names whose resources the client requested by an alias or a glob, sorted.
	// Once such a resource is gone, its name does not say whether the client still requests it.
	byAlias  []string
	manifest *Manifest // of the response; nil: not known
	gen      uint64    // of the response, the oldest of several
}

// maxNackedNames bounds the names of merged NACKs. The origin decides what a wildcard covers, so
// over time these names have no other bound.
const maxNackedNames = 1 << 16

// clientState decides whether a client still requests what it rejected. It has the client's
// subscription and what the client has at a snapshot.
type clientState struct {
	sub       *snapshot.Subscription
	delivered *delivered
	at        *snapshot.Snapshot
}

func (s *Session) stateAt(at *snapshot.Snapshot) clientState {
	return clientState{s.sub.effective, &s.delivered, at}
}

// requests reports whether the client still requests a name of a rejected response, by the name or
// by an alias. Once a resource is gone, its aliases are not known. Then there is nothing to send,
// unless the client rejected the removal.
func (c clientState) requests(r *nackedResponse, name string) bool {
	if c.sub.Covers(name) {
		return true
	}
	had := c.delivered.sentBeforeACK[name]
	if had == nil {
		had = c.at.Resource(name)
	}
	if had != nil {
		return had.RequestedBy(c.sub.Names)
	}
	return r.cameByAlias(name) && r.removed(name) && !c.sub.Empty()
}

// requestsAny reports whether the client still requests any name of a rejected response.
func (c clientState) requestsAny(r *nackedResponse) bool {
	return slices.ContainsFunc(r.names, func(n string) bool { return c.requests(r, n) })
}

// requestedNames are the names of a rejected response that the client still requests, or may
// request. It returns r.names itself if these are all.
func (c clientState) requestedNames(r *nackedResponse) []string {
	dropped := func(n string) bool { return !c.requests(r, n) && (c.sub.Empty() || !r.cameByAlias(n)) }
	if !slices.ContainsFunc(r.names, dropped) {
		return r.names
	}
	return slices.DeleteFunc(slices.Clone(r.names), dropped)
}

// cameByAlias reports whether the client requested the resource of this name by an alias or a glob.
func (r *nackedResponse) cameByAlias(name string) bool {
	_, found := slices.BinarySearch(r.byAlias, name)
	return found
}

// removed reports whether the rejected response removed the name, or may have.
func (r *nackedResponse) removed(name string) bool {
	if r.manifest == nil {
		return true
	}
	v, _ := r.manifest.version(name)
	return v == xds.Version{}
}

// anyIncludes reports whether one of the rejected responses included the name.
func anyIncludes(rejected []nackedResponse, name string) bool {
	return slices.ContainsFunc(rejected, func(r nackedResponse) bool {
		_, included := slices.BinarySearch(r.names, name)
		return included
	})
}

// recordNACK remembers what the response f held, which the client rejected, as far as the client
// still requests it. later are the responses that were sent after f without waiting for its ACK
// (P19).
//
// A full-state SotW response holds everything, and so does the next one. Then the session needs no
// names. If a later response already included a change of something in f, the next response has to
// include the rest, because no further change may come to send it.
func (s *Session) recordNACK(f *pendingACK, later []pendingACK) {
	if s.fullState() || len(f.manifest.names) == 0 {
		return
	}
	r := nackedResponse{names: f.manifest.names, manifest: f.manifest, gen: f.snapshot.Gen}
	if !f.sub.Wildcard {
		if r.byAlias = slices.DeleteFunc(slices.Clone(r.names), f.sub.Names.Has); len(r.byAlias) == 0 {
			r.byAlias = nil
		}
	}
	state := s.stateAt(s.delivered.snapshot)
	names := state.requestedNames(&r)
	if len(names) == 0 {
		return
	}
	changed, rest := sentSince(f.manifest, names, later)
	if changed {
		for _, n := range rest {
			s.forced.add(n, repeated)
		}
		return
	}
	r.names = names
	s.nacks.add(r, state)
}

// sentSince reports whether a later response had another version of any of the names. It also
// returns the names that no later response included.
func sentSince(nacked *Manifest, names []string, later []pendingACK) (changed bool, rest []string) {
	for _, n := range names {
		rejected, _ := nacked.version(n)
		sent := false
		for _, f := range later {
			if sentVersion, includes := f.manifest.version(n); includes {
				sent, changed = true, changed || sentVersion != rejected
			}
		}
		if !sent {
			rest = append(rest, n)
		}
	}
	return changed, rest
}

// add remembers a NACK. If there are too many, it merges the two oldest: a change in either then
// sends both again.
func (ns *nacks) add(r nackedResponse, state clientState) {
	ns.list = append(ns.list, r)
	if len(ns.list) <= maxPendingACKs {
		return
	}
	a, b := &ns.list[0], &ns.list[1]
	both := nackedResponse{names: slices.Concat(a.names, b.names), byAlias: slices.Concat(a.byAlias, b.byAlias), gen: min(a.gen, b.gen)}
	sortUnique(&both.names)
	sortUnique(&both.byAlias)
	both.names = state.requestedNames(&both)
	both.names = both.names[:min(len(both.names), maxNackedNames)]
	both.byAlias = both.byAlias[:min(len(both.byAlias), maxNackedNames)]
	ns.list = slices.Delete(ns.list, 0, 1)
	ns.list[0] = both
}

// markNACK records that the client rejected a response of this snapshot. What the origin has sent
// again since counts. A response that was sent before an ACK is newer than what the session has
// looked for.
func (ns *nacks) markNACK(id snapshot.ID) {
	ns.lastWasNACK = true
	if id.Lineage == ns.seen.Lineage {
		ns.seen.Gen = min(ns.seen.Gen, id.Gen)
	}
}

// drop forgets the NACKs for which done returns true.
func (ns *nacks) drop(done func(nackedResponse) bool) {
	ns.list = slices.DeleteFunc(ns.list, done)
	if len(ns.list) == 0 {
		ns.list = nil
	}
}

// dropResent forgets the rejected responses whose whole content a new response m includes. state
// is at the snapshot of m. Two kinds of names may be missing in m: names that the client does not
// request any more, and in SotW deleted names, since a SotW response cannot remove them.
func (ns *nacks) dropResent(state clientState, m *Manifest, v xds.Variant) {
	ns.drop(func(r nackedResponse) bool {
		return !slices.ContainsFunc(r.names, func(n string) bool {
			if _, again := m.version(n); again || !state.requests(&r, n) {
				return false
			}
			_, is := state.at.Look(state.sub, n)
			return v == xds.Delta || is == snapshot.Present
		})
	})
}

// repeatRest forgets the rejected responses of which m includes a new version of one name but not
// all names: m answers single names (P19, P22–P24). It forces the other names into the next
// response, because no further change may come to send them (P15).
func (ns *nacks) repeatRest(state clientState, p *Plan, m *Manifest, force *forced) {
	ns.drop(func(r nackedResponse) bool {
		if r.manifest == nil || slices.ContainsFunc(p.resent, func(a nackedResponse) bool { return a.manifest == r.manifest }) {
			return false
		}
		changed := slices.ContainsFunc(r.names, func(n string) bool {
			v, includes := m.version(n)
			was, included := r.manifest.version(n)
			return includes && included && v != was
		})
		if !changed {
			return false
		}
		for _, n := range r.names {
			if _, includes := m.version(n); !includes && state.requests(&r, n) {
				force.add(n, repeated)
			}
		}
		return true
	})
}

// dropDeleted forgets the rejected responses of which nothing is left to send to a SotW client. A
// SotW response cannot say that a resource is gone (P31).
func (ns *nacks) dropDeleted(state clientState) {
	if len(ns.list) == 0 {
		return
	}
	ns.drop(func(r nackedResponse) bool {
		return !slices.ContainsFunc(r.names, func(n string) bool {
			_, is := state.at.Look(state.sub, n)
			return is == snapshot.Present && state.requests(&r, n)
		})
	})
	if ns.list == nil {
		ns.lastWasNACK = false
	}
}

// toResend are the rejected responses to send again: those that include one of the changed names,
// which are sorted, and those of which the origin sent something again (P15).
func (c comparison) toResend(changed []string) (hit []nackedResponse) {
	for _, r := range c.s.nacks.list {
		if slices.ContainsFunc(r.names, func(n string) bool {
			_, found := slices.BinarySearch(changed, n)
			return found
		}) || c.sentAgain(r.names) {
			hit = append(hit, r)
		}
	}
	return hit
}

// sentAgain reports whether the origin sent any of the names under a new version since the session
// looked for that; nil: anything that the client requests.
func (c comparison) sentAgain(names []string) bool {
	return c.to.AnyPushedSince(c.s.nacks.seen.Lineage, c.s.nacks.seen.Gen, c.s.sub.effective, names)
}

// nackedSentAgain reports whether the origin sent anything again that the client rejected.
func (c comparison) nackedSentAgain() bool {
	ns := &c.s.nacks
	if c.s.fullState() {
		return ns.lastWasNACK && !c.s.pendingACKs.any() && c.sentAgain(nil) // else it has been sent again
	}
	return slices.ContainsFunc(ns.list, func(r nackedResponse) bool { return c.sentAgain(r.names) })
}

// NacksSomething reports whether the client rejected something that it still requests.
func (s *Session) NacksSomething() bool {
	state := s.stateAt(s.delivered.snapshot)
	return !s.sub.effective.Empty() && (s.nacks.lastWasNACK && s.fullState() ||
		slices.ContainsFunc(s.nacks.list, func(r nackedResponse) bool { return state.requestsAny(&r) }))
}

// RemembersNoNACK reports whether the client's last answer was an ACK and the session remembers no
// NACK.
func (s *Session) RemembersNoNACK() bool { return !s.nacks.lastWasNACK && s.nacks.list == nil }

// NackedNames returns the newest generation of which the client rejected something, and the
// rejected names that it still requests, sorted. It collects at most limit names, before it removes
// duplicates.
func (s *Session) NackedNames(limit int) (gen uint64, names []string) {
	state := s.stateAt(s.delivered.snapshot)
	for _, r := range s.nacks.list {
		gen = max(gen, r.gen)
		for _, name := range r.names {
			if state.requests(&r, name) && len(names) < limit {
				names = append(names, name)
			}
		}
	}
	sortUnique(&names)
	return gen, names
}
