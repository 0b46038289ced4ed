package fanout

import "xdsrelay/internal/xds"

// tally is the weight of names, at most: some may have gone since it was counted.
type tally struct {
	weight int
	of     int // so many names there were in all; -1: some were added since
}

// parting has the end of a name's subscription beside the wildcard answered
// (P24). It is remembered until then, and that may be long: the wildcard may have
// no answer, and the client may take nothing.
func (s *Session) parting(name string) {
	s.parted.weight += xds.NameWeight(len(name))
	s.parted.of = -1
	s.mark(name, asked)
}

// Parted reports whether the session has to remember more than limit names, by their
// weight, that the client gave up: who goes on to ask for others and to give them up is not to
// have it grow without bound. It counts anew only where there may be so many.
func (s *Session) Parted(limit int) bool {
	if s.fresh == nil && s.early == nil {
		s.parted.weight = 0
	}
	if s.parted.weight <= limit {
		return false
	}
	s.countParted()
	return s.parted.weight > limit
}

func (s *Session) countParted() {
	s.parted.weight, s.parted.of = 0, len(s.fresh)+len(s.early)
	for name := range s.fresh {
		if !s.sub.Names.Has(name) {
			s.parted.weight += xds.NameWeight(len(name))
		}
	}
	for name, r := range s.early {
		if _, counted := s.fresh[name]; r == nil && !counted && !s.sub.Names.Has(name) {
			s.parted.weight += xds.NameWeight(len(name))
		}
	}
}

// fairMemory is how much of a stream's memory of names counts for nothing, in bytes:
// what a fleet that comes back brings, an origin may take its time to answer.
const fairMemory = 1 << 20

// recount counts anew what the session has to remember, if it may be less than it was:
// most may be answered, and a name that waits still.
func (s *Session) recount() {
	if s.parted.weight > 0 && s.parted.of != len(s.fresh)+len(s.early) {
		s.countParted()
	}
	if b := s.brought; b != nil && b.size.of != len(b.versions) {
		b.weigh()
	}
}

// remembers is about how much the session has to remember that only an answer makes it
// forget, in bytes, at most: what the client brought, and what it gave up. A type may have
// no answer, and a client has many.
func (s *Session) remembers() int64 {
	n := 0
	if s.brought != nil {
		n += s.brought.size.weight
	}
	if s.fresh != nil || s.early != nil {
		n += s.parted.weight
	}
	return int64(n) * xds.NameUnit
}

// told is what is remembered of a response for this client besides resources, which are
// the group's: the names that went. All that it brought it may be told to let go of.
func (p *Plan) told() (weight int) {
	if p.do == irregular {
		for _, n := range p.removed {
			weight += xds.NameWeight(len(n))
		}
	}
	return weight
}

// awaited is how much the session remembers of responses until they are answered, in
// bytes.
func (s *Session) awaited() (n int64) {
	for i := range s.flights {
		n += int64(s.flights[i].told) * xds.NameUnit
	}
	return n
}

// remembered notes what the stream's sessions remember, if it is more than counts for
// nothing. A response that many are told counts once.
func (st *stream) remembered(pins map[any]pin) {
	st.mu.Lock()
	defer st.mu.Unlock()
	names, all := st.countNames()
	if all > fairMemory {
		for _, sl := range st.slots {
			sl.recount()
		}
		names, all = st.countNames()
	}
	st.remembers.Store(all > 0)
	if all <= fairMemory {
		return
	}
	pins[st] = pin{st, names}
	for _, sl := range st.slots {
		for _, f := range sl.flights {
			if f.told > 0 {
				pins[f.frame] = pin{st, int64(f.told) * xds.NameUnit}
			}
		}
	}
}

// countNames is what its sessions remember, in bytes: without responses, and with them.
// Under the lock.
func (st *stream) countNames() (names, all int64) {
	for _, sl := range st.slots {
		names += sl.remembers()
		all += sl.awaited()
	}
	return names, all + names
}
