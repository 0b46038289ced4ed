package fanout

import (
	"slices"
	"strings"
	"time"

	"xdsrelay/internal/xds"
)

// holding is what a session has to know of removals that wait (P36).
type holding struct {
	over  *held // what the client has besides what sent says
	noted *held // what the client has and is gone
	keep  *held // what of it is still held back
	waits []wait
	let   uint32 // the newest round that is let go
	gone  uint64 // oldest generation in which any of over may have changed, before it went
}

// over is what the client has besides sent, keep what it is to see besides cur
// (P36).
func (s *Session) over() *held {
	if s.hold == nil {
		return nil
	}
	return s.hold.over
}

func (s *Session) keep() *held {
	if s.hold == nil {
		return nil
	}
	return s.hold.keep
}

// wait is how long the removals of some rounds have waited.
type wait struct {
	newest      uint32 // round
	first, last time.Time
	gen         uint64 // oldest in which any of it may have changed, before it went
}

// grain is the part of Hold in which removals count as simultaneous: it bounds
// a session's waits, however many removals an origin makes.
const grain = 16

// observe notes what of that which the client has is gone from cur, and lets go
// of what has waited long enough. The time runs from when the session could
// first have told it, and not from when it came from the origin: a client that
// took nothing for a while is behind with the routes, too.
//
// What a client brought from another stream and is gone (P27) is not held: it
// is a part of the first answer, which in SotW could not hold it either, since
// this stream never had it.
func (s *Session) observe(cur *xds.Snapshot, m *Moment) {
	h := s.hold
	if h == nil {
		if m.Hold <= 0 || s.variant == xds.SotW && !s.full() || s.complete(cur) {
			return // P31: nothing is sent for a removal
		}
		h = new(holding)
	}
	h.letGo(m)
	seen := h.noted.rounds()
	var sets heldSets
	if h.over != nil || !s.complete(cur) {
		k := heldKey{sub: s.sub, by: s.sentBy(), over: h.over, noted: h.noted, let: h.let}
		if s.sent != nil {
			k.lineage, k.gen = s.sent.Lineage, s.sent.Gen
		}
		if s.parts != nil {
			k.parts = s.parts.id
		}
		sets = framesOf(cur).held.find(&k, s.base(), s.parts, cur)
	}
	sets = s.amend(sets, cur, h)
	h.noted, h.keep = sets.noted, sets.keep
	switch {
	case h.noted != nil && h.noted.newest > seen:
		gen := s.level(cur) + 1
		if sets.again {
			gen = min(gen, h.gone)
		}
		h.note(m, gen)
	case h.noted == nil:
		h.waits, h.let = nil, 0 // rounds count from 1 again
	}
	if s.hold = h; h.noted == nil && h.over == nil {
		s.hold = nil
	}
}

// complete reports that nothing of what the client was sent is missing in cur,
// if that can be told at once.
func (s *Session) complete(cur *xds.Snapshot) bool {
	if s.early != nil || s.parts != nil {
		return false
	}
	return s.sent == nil || s.sent.Lineage == cur.Lineage && s.sent.Gen <= cur.Gen && s.sent.Lost == cur.Lost
}

// amend takes out of the sets what is answered though it is gone (P24, P25),
// and brings in line what was sent ahead of sent (P19).
func (s *Session) amend(sets heldSets, cur *xds.Snapshot, h *holding) heldSets {
	if s.fresh == nil && s.early == nil {
		return sets
	}
	var items []heldItem
	amended := false
	for _, it := range sets.noted.all() {
		r, ahead := s.early[it.r.Name]
		if s.fresh[it.r.Name] == asked || ahead && r == nil {
			amended = true
			continue
		}
		if ahead && r != it.r {
			it.r, amended = r, true
		}
		items = append(items, it)
	}
	for name, r := range s.early {
		if r == nil || r.Unresolved() || s.fresh[name] == asked || sets.noted.get(name).r != nil || !gone(cur, s.sub, s.sub, name, r) {
			continue
		}
		it := heldItem{r, h.noted.get(name).round}
		if it.round == 0 {
			it.round = h.noted.rounds() + 1
		}
		items, amended = append(items, it), true
	}
	if !amended {
		return sets
	}
	slices.SortFunc(items, func(a, b heldItem) int { return strings.Compare(a.r.Name, b.r.Name) })
	newest := h.noted.rounds()
	for _, it := range items {
		newest = max(newest, it.round)
	}
	t := &framesOf(cur).held
	noted := t.share(newHeld(items, newest))
	return heldSets{noted, t.share(noted.after(h.let)), sets.again || h.over != nil}
}

// note has the newest round wait, of what was as the client has it before gen.
func (h *holding) note(m *Moment, gen uint64) {
	h.waits = slices.DeleteFunc(h.waits, func(w wait) bool { return w.newest <= h.let })
	if n := len(h.waits); n > 0 && m.Now.Sub(h.waits[n-1].first) <= m.Hold/grain {
		w := &h.waits[n-1]
		w.newest, w.last, w.gen = h.noted.newest, m.Now, min(w.gen, gen)
		return
	}
	h.waits = append(h.waits, wait{newest: h.noted.newest, first: m.Now, last: m.Now, gen: gen})
}

// since is the oldest generation in which the client may not have what became of any of
// over; 0: there is none.
func (h *holding) since() uint64 {
	if h == nil || h.over == nil {
		return 0
	}
	return h.gone
}

// went is the oldest generation in which anything of over, or that waited since, may have
// changed before it went; 0: it is not known. A wait that is over is no older than those
// which were noted after it.
func (h *holding) went() uint64 {
	gen := h.since()
	if h != nil {
		for _, w := range h.waits {
			gen = oldest(gen, w.gen)
		}
	}
	return gen
}

// recount takes all that waits for older than what is counted anew.
func (h *holding) recount() {
	if h == nil {
		return
	}
	h.gone = 1
	for i := range h.waits {
		h.waits[i].gen = 1
	}
}

// letGo lets go of what has waited for Hold, once routes and listeners are
// answered or as much time again is over.
func (h *holding) letGo(m *Moment) {
	for _, w := range h.waits {
		due := w.last.Add(m.Hold)
		if m.Now.Before(due) || m.Routed.Before(due) && m.Now.Before(w.first.Add(2*m.Hold)) {
			return
		}
		h.let = max(h.let, w.newest)
	}
}

// ripe reports whether something has waited for so long and is not let go.
func (h *holding) ripe(now time.Time, hold time.Duration) bool {
	if h == nil {
		return false
	}
	for _, w := range h.waits {
		if w.newest > h.let {
			return !now.Before(w.last.Add(hold))
		}
	}
	return false
}

// due is when something is to be let go at the latest, or to be looked at
// before; zero: nothing waits.
func (h *holding) due(m *Moment) time.Time {
	if h == nil {
		return time.Time{}
	}
	for _, w := range h.waits {
		if w.newest <= h.let {
			continue
		}
		if at := w.last.Add(m.Hold); m.Now.Before(at) {
			return at
		}
		return w.first.Add(2 * m.Hold)
	}
	return time.Time{}
}

// settle takes over what went out with keep held back.
func (h *holding) settle(keep *held) *holding {
	if h == nil || keep == nil {
		return nil
	}
	h.over, h.noted, h.keep = keep, keep, keep
	h.waits = slices.DeleteFunc(h.waits, func(w wait) bool { return w.newest <= h.let })
	if h.gone = 1; len(h.waits) > 0 {
		h.gone = h.waits[0].gen
	}
	return h
}
