package session

import (
	"maps"
	"slices"

	"xdsrelay/internal/xds"
)

// subscribeSotW: each request lists all names (P20). An empty list is the
// wildcard until a name was given, for types that have it, and nothing after
// (P21).
func (s *Session) subscribeSotW(r *xds.Request) (*xds.Subscription, bool) {
	if s.sub.began && r.NamesSum == s.sub.listHash && uint32(len(r.Names)) == s.sub.listLen {
		return s.sub.requested, false // an ACK that repeats a thousand names costs a hash
	}
	if len(r.Names) == 0 {
		if s.sub.named || s.Type.NoLegacyWildcard {
			return xds.Nothing, !s.sub.requested.Empty()
		}
		return &xds.Subscription{Wildcard: true, HasState: s.bringsState(r)}, !s.sub.began
	}
	next := &xds.Subscription{Wildcard: has(r.Names, wildcard), HasState: s.bringsState(r), Names: xds.NewNameSet(plainNames(r.Names)...)}
	if next.Equal(s.sub.requested) {
		return s.sub.requested, false // in another order
	}
	return next, true
}

// wildcard is the name that subscribes to whatever the origin thinks the node
// needs (P21).
const wildcard = "*"

// relist follows a request that is not stale: what is newly listed is answered
// even if it did not change, a shorter list gets no response (P22). But beside the
// wildcard a name that is given up, and that the wildcard does not have, is
// answered, as in incremental (P24): the client has no other way to know that it
// is to let go of it.
func (s *Session) relist(want *xds.Subscription) {
	if want == s.sub.effective {
		return
	}
	was := s.sub.effective
	s.sub.effective = want
	if want.Wildcard && !was.Wildcard {
		s.restart(was)
		return
	}
	if s.delivered.resendAll && !want.Wildcard {
		was = s.relent()
	}
	for name, added := range was.Names.Diff(want.Names) {
		switch {
		case added:
			s.gain(name, was)
			s.mark(name, asked)
		case want.Wildcard && s.mayOutlast(name, was):
			s.parting(name)
		default:
			s.unmark(name)
		}
	}
	if !want.Wildcard {
		s.narrow(was)
	}
	s.normalize()
}

// mayOutlast reports whether a client may have something by a name, which it gave
// up beside the wildcard, that the wildcard does not have; was is what it was sent
// by.
func (s *Session) mayOutlast(name string, was *xds.Subscription) bool {
	at := s.delivered.snapshot
	if _, is := at.Look(s.sub.effective, name); is == xds.Present {
		return false
	}
	_, is := at.Look(was, name)
	return is != xds.Absent
}

// planSotW: a full-state response holds everything (P30), another what changed
// among the subscribed, and what was newly listed (P31, P22).
//
// Everything is what is known. Of a full-state type by name, what is pending is
// left out, so a client that brought it from another stream waits first (P67).
func (s *Session) planSotW(cur *xds.Snapshot, p *Plan) {
	if s.full() || s.forced.names == nil && s.refusals.list == nil && s.delivered.errors == nil {
		p.do, p.Key = regular, s.key(cur, p.At)
		if s.full() {
			p.Key.force = s.forced.initialResponsePending && s.sub.effective.Wildcard && cur.AnswersWildcard(s.sub.effective) || s.freshKnown(cur)
			// A client that refused may have taken nothing: all that is sent is
			// new to it (P37).
			p.Key.anew = s.delivered.resendAll || s.refusals.last
			p.Besides = s.followFresh(cur)
		}
		return
	}
	p.do, p.Key = irregular, FrameKey{form: s.form, sub: s.sub.effective}
	names := s.pendingNames(cur, p)
	for _, name := range names {
		if r, is := s.look(name, cur); !s.warning(name, cur, p) && is == xds.Present && !r.Expired(p.At) {
			p.content.Changed = append(p.content.Changed, r)
		}
	}
	s.renew(cur, p, names)
}

// freshKnown reports whether anything is known of a newly listed name: then
// the full set answers it, with the name or without (P22).
func (s *Session) freshKnown(cur *xds.Snapshot) bool {
	for name := range s.forced.names {
		if s.answers(name, cur) {
			return true
		}
	}
	return false
}

// followFresh is what follows the newly listed (P37).
func (s *Session) followFresh(cur *xds.Snapshot) []string {
	var rs []*xds.Resource
	for _, name := range with(cur, slices.Collect(maps.Keys(s.forced.names))) {
		if r, is := s.look(name, cur); is == xds.Present {
			rs = append(rs, r)
		}
	}
	return followers(rs)
}

// pendingNames are the names, sorted, of which the next response has to speak:
// what changed, what is to be answered anew, and all that a refused response
// held if anything of it changed (P15).
func (s *Session) pendingNames(cur *xds.Snapshot, p *Plan) []string {
	var changed []string
	for _, name := range s.candidates(cur) {
		if _, ahead := s.delivered.sentBeforeACK[name]; !ahead && (s.differs(name, cur) || s.turned(name, cur)) {
			changed = append(changed, name)
		}
	}
	for name := range s.delivered.sentBeforeACK {
		if s.differs(name, cur) || s.turned(name, cur) {
			changed = append(changed, name)
		}
	}
	for name := range s.delivered.errors {
		if s.sub.effective.Covers(name) && s.differs(name, cur) {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	names := changed
	for _, ref := range s.refusals.list {
		if slices.ContainsFunc(ref.names, func(n string) bool {
			_, hit := slices.BinarySearch(changed, n)
			return hit
		}) {
			p.again = append(p.again, ref)
			for _, n := range ref.names {
				if s.asks(&ref, n, s.delivered.snapshot) {
					names = append(names, n)
				}
			}
		}
	}
	var fresh []string
	for name, why := range s.forced.names {
		if why != refreshed || s.answers(name, cur) {
			fresh = append(fresh, name)
		}
	}
	names = append(names, with(cur, fresh)...)
	names = s.heard(cur, names)
	slices.Sort(names)
	return slices.Compact(names)
}
