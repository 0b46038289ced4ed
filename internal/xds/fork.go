package xds

// Fork returns a builder that begins with what s, which may be nil, has of the
// type, in a lineage of its own: the resources, and which of them have lapsed.
// What was said instead of giving a resource, be it an absence or an error, is
// not in it: in the fork that is only what its own updates said, and Stated,
// Errors and Unresolved return it.
func (s *Snapshot) Fork(t Type) *Builder {
	b := NewBuilder(t)
	if s == nil {
		return b
	}
	b.origin, b.version, b.received = s.Origin, s.given, s.Received
	b.wildOrigin, b.namedOrigin, b.byWild, b.answered = s.wildOrigin, s.namedOrigin, s.byWild, s.Answered
	b.complete, b.storedAnswer = s.Complete, s.Answered && !s.Complete && s.Stale
	s.entries.Scan(func(name string, e entry) bool {
		e.errs = errs{}
		if e.named == gone || e.named.Unresolved() {
			e.named = nil
		}
		if e != (entry{}) {
			b.set(name, e)
		}
		return true
	})
	return b
}

// Stated calls yield for each name of the part that the origin said is absent,
// in order. Of what a wildcard leaves out nothing is kept.
func (p Part) Stated(yield func(string) bool) {
	if p.wild || p.snap == nil || p.snap.stated == 0 {
		return
	}
	p.snap.entries.Scan(func(name string, e entry) bool { return e.named != gone || yield(name) })
}

// Unresolved calls yield for each name of the part for which the origin said that
// it has no resource (P18), in order.
func (p Part) Unresolved(yield func(Unresolved) bool) {
	if p.wild || !p.snap.AnyUnresolved() {
		return
	}
	p.snap.entries.Scan(func(name string, e entry) bool {
		return !e.named.Unresolved() || yield(Unresolved{Resource: e.named, Names: []string{name}})
	})
}
