package fanout

import "xdsrelay/internal/xds"

// parting has the end of a name's subscription beside the wildcard answered
// (P24). It is remembered until then, and that may be long: the wildcard may have
// no answer, and the client may take nothing.
func (s *Session) parting(name string) {
	s.parted += xds.NameWeight(len(name))
	s.mark(name, asked)
}

// Parted reports whether the session has to remember more than limit names, by their
// weight, that the client gave up: who goes on to ask for others and to give them up is not to
// have it grow without bound. It counts anew only where there may be so many.
func (s *Session) Parted(limit int) bool {
	if s.fresh == nil && s.early == nil {
		s.parted = 0
	}
	if s.parted <= limit {
		return false
	}
	s.parted = 0
	for name := range s.fresh {
		if !s.sub.Names.Has(name) {
			s.parted += xds.NameWeight(len(name))
		}
	}
	for name, r := range s.early {
		if _, counted := s.fresh[name]; r == nil && !counted && !s.sub.Names.Has(name) {
			s.parted += xds.NameWeight(len(name))
		}
	}
	return s.parted > limit
}

// fairMemory is how much of a stream's memory of names counts for nothing, in bytes:
// what a fleet that comes back brings, an origin may take its time to answer.
const fairMemory = 1 << 20

// remembers is about how much the session has to remember that only an answer makes it
// forget, in bytes: what the client brought, and what it gave up. A type may have no
// answer, and a client has many.
func (s *Session) remembers() int64 {
	n := 0
	if s.initial != nil {
		n += s.carried
	}
	if s.fresh != nil || s.early != nil {
		n += s.parted
	}
	return int64(n) * xds.NameUnit
}

// remembered is what all sessions of the stream do, beyond what counts for nothing;
// 0 if none does.
func (st *stream) remembered() (n int64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, sl := range st.slots {
		n += sl.remembers()
	}
	st.remembers.Store(n > 0)
	if n <= fairMemory {
		return 0
	}
	return n
}
