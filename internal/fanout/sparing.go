package fanout

import (
	"sync/atomic"

	"golang.org/x/time/rate"
)

// Lines of log that clients can cause at will: what a restart of a few hundred
// of them needs, and then what a person can still read. All of them are counted
// as well, by their reason.
const (
	sparingBurst = 500
	sparingRate  = 20 // a second
)

// sparing bounds such lines.
type sparing struct {
	rate *rate.Limiter
	left atomic.Int64
}

func newSparing() *sparing { return &sparing{rate: rate.NewLimiter(sparingRate, sparingBurst)} }

// allow reports whether a line may be written, and how many were left out
// before it.
func (s *sparing) allow() (left int64, ok bool) {
	if !s.rate.Allow() {
		s.left.Add(1)
		return 0, false
	}
	return s.left.Swap(0), true
}
