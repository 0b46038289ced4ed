package fanout

import "xdsrelay/internal/xds"

// What a client has of a type follows from what it was sent, and of that what it is to
// take yet: its debts. Each of these stands by what will be taken with it, so that it ends
// with that: by a response in flight, by one that was refused (P15),
// and by what is asked for or to be said again,
// and not sent. A debt is generations and no names, so that it has no size.

// Span is generations in a row. The zero one is empty.
type Span struct{ From, To uint64 }

// Empty reports whether there are none.
func (s Span) Empty() bool { return s.To == 0 }

// Meets reports whether any generation is in both.
func (s Span) Meets(o Span) bool {
	return !s.Empty() && !o.Empty() && s.From <= o.To && o.From <= s.To
}

// with is the least that has both.
func (s Span) with(o Span) Span {
	switch {
	case s.Empty():
		return o
	case o.Empty():
		return s
	}
	return Span{min(s.From, o.From), max(s.To, o.To)}
}

// Debt is what a client is to take yet.
type Debt struct {
	// From is the oldest generation of which something is: no version from then on the
	// client has. 0: none.
	From uint64
	// In are the generations in which that changed which it asked for after it took all
	// else of them, and Old the newest of those of which nobody knows: the versions of
	// these it does not have. Others are none the less had.
	In  Span
	Old uint64
}

// None reports whether there is nothing to take.
func (d Debt) None() bool { return d == Debt{} }

// Of reports whether anything is to be taken of a version that came in these generations,
// or of what was before it.
func (d Debt) Of(v Span) bool {
	return d.From > 0 && d.From <= v.To || d.In.Meets(v) || d.Old > 0 && v.From <= d.Old
}

func (d Debt) with(o Debt) Debt {
	return Debt{oldest(d.From, o.From), d.In.with(o.In), max(d.Old, o.Old)}
}

// before is the newest generation up to gen of which, and of all before, nothing is to be
// taken, as far as is known.
func (d Debt) before(gen uint64) uint64 {
	if d.From > 0 {
		gen = min(gen, d.From-1)
	}
	if !d.In.Empty() {
		gen = min(gen, d.In.From-1)
	}
	return gen
}

// oldest is the older one of two generations, of which 0 is none.
func oldest(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// allOf is the debt of who has nothing of what is counted anew.
var allOf = Debt{From: 1}

// maxLooked is of how many names it is looked when each of them changed: who asks for
// more at once has none of the versions until it took all of them.
const maxLooked = 64

// arrear notes that name, which it asks for or is told again, is to be taken.
func (s *Session) arrear(name string) {
	at := s.newest()
	if at == nil {
		return
	}
	if s.looked++; s.looked > maxLooked {
		s.owes.Old = at.Gen
		return
	}
	switch _, is := at.Look(s.sub, name); is {
	case xds.Present:
		s.owes = s.owes.with(changes(at, name))
	case xds.Elsewhere:
		for _, n := range at.Linked(name) {
			s.owes = s.owes.with(changes(at, n))
		}
	}
}

// changes are the generations in which the resource changed.
func changes(at *xds.Snapshot, name string) (d Debt) {
	d.In.From, d.In.To, d.Old = at.ChangedIn(name)
	return d
}

// came is changes of what is answered ahead. What was not spoken of in all that the
// client was sent is of the generations since then alone.
func (s *Session) came(to *xds.Snapshot, name string) Debt {
	d, at := changes(to, name), s.newest()
	if at == nil || at.Lineage != to.Lineage || d.Old > at.Gen {
		return d
	}
	if _, was := at.Look(s.sub, name); was != xds.Pending {
		return d
	}
	d.Old = 0
	if d.In.From = max(d.In.From, at.Gen+1); d.In.From > d.In.To {
		d.In = Span{}
	}
	return d
}

// square notes that nothing is to be sent that was asked for or is to be said again, if
// that is so.
func (s *Session) square() {
	if s.owes.None() || s.owed || s.anew {
		return
	}
	at := s.newest()
	for name, why := range s.fresh {
		switch why {
		case refreshed:
			continue // it has it
		case repeated:
			return
		}
		if _, is := at.Look(s.sub, name); is == xds.Present || is == xds.Elsewhere {
			return
		}
	}
	s.owes, s.looked = Debt{}, 0
}

// level is the newest generation up to to's of which the session was sent all: that before
// the first in which anything changed for it since. So what does not concern it counts as
// sent.
func (s *Session) level(to *xds.Snapshot) uint64 {
	return s.ahead(s.sent, to, xds.Unconcerned(s.sent, to, s.sub))
}

// ahead is level of who was sent something ahead of from, by which it has gen: what it was
// sent for an alias is neither there nor, if it went since, in to.
func (s *Session) ahead(from, to *xds.Snapshot, gen uint64) uint64 {
	if gen == 0 {
		return 0
	}
	for name, r := range s.early {
		if r == nil || s.sub.Covers(name) {
			continue
		}
		first, last, old := to.ChangedIn(name)
		switch {
		case old > from.Gen || first <= from.Gen && last > from.Gen:
			gen = min(gen, from.Gen) // or later: it is not looked for
		case first > from.Gen:
			gen = min(gen, first-1)
		}
	}
	return gen
}

// carries is what a response holds of the plan, of which the session has yet to move.
func (s *Session) carries(p *Plan) Debt {
	d := s.owes
	if p.early { // it may have come since it was asked for
		if len(p.answered) > maxLooked {
			return d.with(Debt{Old: p.to.Gen})
		}
		for name := range p.answered {
			d = d.with(s.came(p.to, name))
		}
		return d
	}
	from := s.level(p.to) + 1
	if from <= p.to.Gen {
		d.From = oldest(d.From, from)
	}
	return d.with(s.denied)
}

// last is the response that went out last, which is in flight.
func (s *Session) last() *flight { return &s.flights[len(s.flights)-1] }

// adopt follows the plan to what is counted anew: of that the client has nothing yet.
func (s *Session) adopt(p *Plan) {
	if at := s.newest(); p.early || at == nil || at.Lineage == p.to.Lineage {
		return
	}
	s.owes = Debt{}
	if !s.denied.None() {
		s.denied = allOf
	}
	for i := range s.flights {
		s.flights[i].owes, s.flights[i].whole = allOf, false
	}
	for i := range s.refused {
		s.refused[i].owes = allOf
	}
}

// open is what the client is to take that it did not refuse.
func (s *Session) open() Debt {
	d := s.owes
	for i := range s.flights {
		d = d.with(s.flights[i].owes)
	}
	return d
}

// declined is what it refused and is to take yet (P15).
func (s *Session) declined() (d Debt) {
	if s.sub.Empty() {
		return Debt{}
	}
	if s.refuses {
		d = s.denied
	}
	for i := range s.refused {
		if r := &s.refused[i]; s.asked(r) {
			d = d.with(r.owes)
		}
	}
	return d
}
