package session

import (
	"time"

	"xdsrelay/internal/xds"
)

// Moment is what a session has to be told of the time, and of its stream, to
// say what to send.
type Moment struct {
	Now        time.Time
	AckTimeout time.Duration
	// Release: a later type has a change to send that came after the newest
	// unanswered response, so that this type does not wait (P19).
	Release bool
}

// Mark is a snapshot by its name, which keeps nothing alive.
type Mark struct{ Lineage, Gen uint64 }

// MarkOf is the name of a snapshot; zero for none.
func MarkOf(s *xds.Snapshot) Mark {
	if s == nil {
		return Mark{}
	}
	return Mark{s.Lineage, s.Gen}
}
