package fanout

import "xdsrelay/internal/xds"

// What a client asks for later, or is to be told again, it does not have yet, be it
// part of a generation of which it took all that it asked for before. So what it has
// ends before the generation in which that changed last, until it took it. Of all such
// names a session remembers the oldest generation alone.

// arrear notes that name is to be taken.
func (s *Session) arrear(name string) {
	at := s.newest()
	if at == nil || s.arrears == 1 {
		return
	}
	switch _, is := at.Look(s.sub, name); is {
	case xds.Present:
		s.behind(at.ChangedIn(name))
	case xds.Elsewhere:
		for _, n := range at.Linked(name) {
			s.behind(at.ChangedIn(n))
		}
	}
}

// behind notes that something of the generation is to be taken; 0: of one that nobody
// knows.
func (s *Session) behind(gen uint64) {
	if gen = max(gen, 1); s.arrears == 0 || gen < s.arrears {
		s.arrears = gen
	}
}

// owns is which generation the client has, if it took all of gen but for what is to be
// taken yet.
func (s *Session) owns(gen uint64) uint64 {
	if s.arrears == 0 {
		return gen
	}
	return min(gen, s.arrears-1)
}

// square notes that nothing is to be taken any more, if that is so.
func (s *Session) square() {
	if s.arrears == 0 || len(s.flights) > 0 || s.parts != nil || s.owed || s.anew || s.declines() || s.lacks() {
		return
	}
	at := s.newest()
	for name, why := range s.fresh {
		if why == refreshed {
			continue // it has it
		}
		if _, is := at.Look(s.sub, name); is == xds.Present || is == xds.Elsewhere {
			return
		}
	}
	s.arrears = 0
}
