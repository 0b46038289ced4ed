package timing

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff bounds the waits between attempts (P54).
type Backoff struct{ Base, Max time.Duration }

// Delay is the wait after this many failures in a row, at least one. It uses full jitter under an
// exponentially growing bound.
func (b Backoff) Delay(failures int, random func(time.Duration) time.Duration) time.Duration {
	bound := b.Base
	for i := 1; i < failures && bound < b.Max; i++ {
		bound *= 2
	}
	return random(min(bound, b.Max))
}

// UpTo returns a random duration in [0, d].
func UpTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d + 1)
}

// Sleep waits for d or the end of ctx.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
