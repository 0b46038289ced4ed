package fanout

import "xdsrelay/internal/xds"

// What a client asks for later, or is to be told again, it does not have yet, be it
// part of a generation of which it took all that it asked for before. So until it took it,
// it does not have the versions in which that changed last; the others are none the less
// what it has. Of all such names a session remembers the oldest and the newest generation
// alone.

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

// maxLooked is of how many names it is looked when each of them changed: who asks for
// more at once has none of the versions until it took all of them.
const maxLooked = 64

// arrear notes that name is to be taken.
func (s *Session) arrear(name string) {
	at := s.newest()
	switch {
	case at == nil || s.arrears == Span{1, at.Gen}:
		return
	case len(s.fresh) > maxLooked:
		s.arrears = Span{1, at.Gen}
		return
	}
	s.arrears = s.arrears.with(s.changed(at, name))
}

// lag notes that what a refused response of generation gen held is not refused any more,
// and is to be taken as it is now: it follows, or is on its way.
func (s *Session) lag(gen uint64, now *xds.Snapshot, later Span) {
	in := Span{max(gen, 1), max(gen, 1)}
	if now != nil {
		in.To = max(in.To, now.Gen)
	}
	s.arrears = s.arrears.with(later).with(in)
}

// changed is when that changed last which the client is to have by name; empty: it is
// to have nothing.
func (s *Session) changed(at *xds.Snapshot, name string) (in Span) {
	switch _, is := at.Look(s.sub, name); is {
	case xds.Present:
		return lastChange(at, name)
	case xds.Elsewhere:
		for _, n := range at.Linked(name) {
			in = in.with(lastChange(at, n))
		}
	}
	return in
}

func lastChange(at *xds.Snapshot, name string) (in Span) {
	in.From, in.To = at.ChangedIn(name)
	return in
}

// owns is up to which generation the client has everything, if it took all of gen but for
// what is to be taken yet.
func (s *Session) owns(gen uint64) uint64 {
	if s.arrears.Empty() {
		return gen
	}
	return min(gen, s.arrears.From-1)
}

// square notes that nothing is to be taken any more but what was refused, if that is so.
func (s *Session) square() {
	if s.arrears.Empty() || len(s.flights) > 0 || s.parts != nil || s.owed || s.anew || s.refuses && s.full() || s.lacks() {
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
	s.arrears = Span{}
	for i := range s.refused {
		if r := &s.refused[i]; r.asked(s.sub) {
			s.arrears = s.arrears.with(r.later)
		}
	}
}
