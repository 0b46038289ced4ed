package upstream

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff bounds the waits between attempts (P54).
type Backoff struct{ Base, Max time.Duration }

// reopenWithin bounds the wait after a stream that had a response (P54).
const reopenWithin = time.Second

// delay is the wait after this many failures in a row, at least one. It uses full jitter under an
// exponentially growing bound.
func (b Backoff) delay(failures int, random func(time.Duration) time.Duration) time.Duration {
	bound := b.Base
	for i := 1; i < failures && bound < b.Max; i++ {
		bound *= 2
	}
	return random(min(bound, b.Max))
}

// upTo returns a random duration in [0, d].
func upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d + 1)
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
