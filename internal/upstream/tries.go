package upstream

import (
	"context"
	"slices"
	"sync"
	"time"
)

// maxTries is how many keys probe an origin at a time (P56) that is not away: to
// each of them it sends all that the key wants.
const maxTries = 16

// tries lets keys probe an origin, in the order in which they came. Only one key
// at a time probes an origin that is away, with growing waits (P54). Once the
// origin answers, maxTries keys at a time do.
type tries struct {
	backoff Backoff
	random  func(time.Duration) time.Duration
	away    func() bool   // the origin; called under no lock
	signal  chan struct{} // one slot: something is different

	mu       sync.Mutex
	waiting  []chan struct{} // each closed when it is let in
	busy     int
	failures int
	until    time.Time // while it is away, when it may be tried again
}

func newTries(b Backoff, away func() bool) *tries {
	return &tries{backoff: b, random: upTo, away: away, signal: make(chan struct{}, 1)}
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

// enter waits for a place, which leave gives back. It returns an error if ctx
// ended first.
func (t *tries) enter(ctx context.Context) error {
	in := make(chan struct{})
	t.mu.Lock()
	t.waiting = append(t.waiting, in)
	t.mu.Unlock()
	t.wake()
	select {
	case <-in:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(t.waiting, in)
	if i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
	t.mu.Unlock()
	if i < 0 {
		t.leave() // it came at the same time
	}
	return context.Cause(ctx)
}

// leave gives a place back.
func (t *tries) leave() {
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
