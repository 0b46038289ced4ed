package upstream

import (
	"context"
	"slices"
	"sync"
	"time"
)

// maxTries is how many keys try an origin out at a time (P56), once it answers
// anybody. Each of them has it say all that the key wants. One of which it has
// said nothing for silence is not among them any more: of some keys it has
// nothing to say, and they must not keep others from returning.
const (
	maxTries = 16
	silence  = 3 * time.Second
)

// tries lets keys try an origin out: one at a time while it is away, and that
// with a growing wait (P54), so that an origin which is down is not asked by
// thousands; and then so many at a time, in the order in which they came, so that
// one which is back is not overrun.
type tries struct {
	backoff Backoff
	random  func(time.Duration) time.Duration
	silence time.Duration // the constant, but in tests
	away    func() bool   // the origin; called under no lock
	signal  chan struct{} // one slot: something is different

	mu       sync.Mutex
	waiting  []chan struct{} // each closed when it is let in
	busy     int
	failures int
	until    time.Time // while it is away, when it may be tried again
}

func newTries(b Backoff, away func() bool) *tries {
	return &tries{backoff: b, random: upTo, silence: silence, away: away, signal: make(chan struct{}, 1)}
}

// run lets in until ctx ends.
func (t *tries) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(t.admit(t.away(), time.Now()))
		select {
		case <-t.signal:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// admit lets in who may, and returns how long until the time alone lets in more.
func (t *tries) admit(away bool, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	width := maxTries
	if away {
		width = 1
	} else {
		t.failures, t.until = 0, time.Time{}
	}
	for len(t.waiting) > 0 && t.busy < width {
		if wait := t.until.Sub(now); wait > 0 {
			return wait
		}
		close(t.waiting[0])
		t.waiting = t.waiting[1:]
		t.busy++
	}
	return time.Hour
}

// turn is that of a key, whose goroutine it belongs to.
type turn struct {
	at *tries // nil: it is over
}

// enter waits for the turn.
func (t *tries) enter(ctx context.Context) (*turn, error) {
	in := make(chan struct{})
	t.mu.Lock()
	t.waiting = append(t.waiting, in)
	t.mu.Unlock()
	t.wake()
	select {
	case <-in:
		return &turn{t}, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(t.waiting, in)
	if i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
	t.mu.Unlock()
	if i < 0 {
		(&turn{t}).leave() // it came at the same time
	}
	return nil, context.Cause(ctx)
}

// leave gives the turn back. What is over is not given back again.
func (n *turn) leave() {
	t := n.at
	if t == nil {
		return
	}
	n.at = nil
	t.mu.Lock()
	t.busy--
	t.mu.Unlock()
	t.wake()
}

// failed says that the origin, which is away, failed somebody. Of those that
// failed within the wait the first counts.
func (t *tries) failed(now time.Time) {
	t.mu.Lock()
	if !now.Before(t.until) {
		t.failures++
		t.until = now.Add(t.backoff.delay(t.failures, t.random))
	}
	t.mu.Unlock()
	t.wake()
}

// wake has run look again.
func (t *tries) wake() {
	select {
	case t.signal <- struct{}{}:
	default:
	}
}
