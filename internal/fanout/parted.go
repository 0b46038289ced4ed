package fanout

// parting has the end of a name's subscription beside the wildcard answered
// (P24). It is remembered until then, and that may be long: the wildcard may have
// no answer, and the client may take nothing.
func (s *Session) parting(name string) {
	s.parted++
	s.mark(name, asked)
}

// Parted reports whether the session has to remember more than limit names that
// the client gave up: who goes on to ask for others and to give them up is not to
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
			s.parted++
		}
	}
	for name, r := range s.early {
		if _, counted := s.fresh[name]; r == nil && !counted && !s.sub.Names.Has(name) {
			s.parted++
		}
	}
	return s.parted > limit
}
