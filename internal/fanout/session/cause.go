package session

import "xdsrelay/internal/xds"

// cause is why a name is to be answered though nothing changed.
type cause uint8

const (
	refreshed cause = iota + 1 // P37: as far as it is there; waits like any change (P19)
	repeated                   // P15, P50: what it was sent is not what it is to have; waits as well
	asked                      // newly subscribed, or given up beside the wildcard (P22–P24)
)

// Refresh has names that the client subscribed to answered again (P37). It
// reports whether there are any.
func (s *Session) Refresh(names []string) bool {
	if !s.sub.began || s.forced.initialResponsePending {
		return false // its first answer will have them
	}
	any := false
	for _, n := range names {
		if s.sub.effective.Reaches(n) {
			s.mark(n, refreshed)
			any = true
		}
	}
	return any
}

// mark has a name answered that was not to be before.
func (s *Session) mark(name string, why cause) {
	if s.forced.names == nil {
		s.forced.names = make(map[string]cause)
	}
	s.forced.names[name] = max(why, s.forced.names[name])
}

// unmark has a name not be answered that is given up. What was refused of it, or waits for
// its part, is to follow none the less where it is asked for by an alias as well (P26).
func (s *Session) unmark(name string) {
	if r := s.delivered.snapshot.Held(name); s.forced.names[name] == asked || r == nil || !r.AskedBy(s.sub.effective.Names) {
		delete(s.forced.names, name)
	}
}

// answeredBy reports whether a response out of the snapshot, which was to answer
// name, did. P24 before the wildcard's first answer: it stays to be answered. A
// name that is asked for is, once there is an answer, as a change is.
func (s *Session) answeredBy(to *xds.Snapshot, name string) bool {
	_, is := to.Look(s.sub.effective, name)
	return is != xds.Pending || s.sub.effective.Names.Has(name) || !s.sub.effective.Wildcard
}
