package turns

import (
	"context"
	"slices"
	"sync"
	"time"
)

// MaxRest bounds how long a turn rests: a relay that was stopped meanwhile, or had no
// processor, has nothing to collect for as long.
const MaxRest = time.Second

// Turns are so many at a time. Of those that wait, the smallest and who has waited for
// longest go next by turns: who is as large as may be delays others little, and nobody
// waits for ever.
type Turns struct {
	rests int

	mu      sync.Mutex
	free    []time.Time // from when on
	waiting []waiter    // who has waited for longest first
	oldest  bool        // goes next
}

type waiter struct {
	size int
	next chan time.Time // one slot
}

// New makes n turns. After it was taken each rests for rests times as long as it took,
// MaxRest at most: what is left has to be collected, by the same cores.
func New(n, rests int) *Turns { return &Turns{rests: rests, free: make([]time.Time, n)} }

// Take waits for a turn of one of this size, in whatever measure all have, and returns what
// gives it back, which is to be called once; false: ctx has ended before, or cut is closed.
func (t *Turns) Take(ctx context.Context, cut <-chan struct{}, size int) (give func(), ok bool) {
	at, ok := t.next(ctx, cut, size)
	if !ok {
		return nil, false
	}
	if !slept(ctx, cut, time.Until(at)) {
		t.give(at)
		return nil, false
	}
	began := time.Now()
	return func() {
		now := time.Now()
		t.give(now.Add(min(time.Duration(t.rests)*now.Sub(began), MaxRest)))
	}, true
}

// slept reports whether it has waited for so long.
func slept(ctx context.Context, cut <-chan struct{}, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-cut:
	}
	return false
}

// next waits for a turn, and returns from when on it is free.
func (t *Turns) next(ctx context.Context, cut <-chan struct{}, size int) (at time.Time, ok bool) {
	t.mu.Lock()
	if last := len(t.free) - 1; last >= 0 {
		at = t.free[last]
		t.free = t.free[:last]
		t.mu.Unlock()
		return at, true
	}
	w := waiter{size, make(chan time.Time, 1)}
	t.waiting = append(t.waiting, w)
	t.mu.Unlock()
	select {
	case at = <-w.next:
		return at, true
	case <-ctx.Done():
	case <-cut:
	}
	t.mu.Lock()
	i := slices.IndexFunc(t.waiting, func(o waiter) bool { return o.next == w.next })
	if i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
	t.mu.Unlock()
	if i < 0 { // it was given one just then
		t.give(<-w.next)
	}
	return time.Time{}, false
}

// give gives a turn back, which is free from then on.
func (t *Turns) give(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.free = append(t.free, at)
		return
	}
	i := 0
	if t.oldest = !t.oldest; !t.oldest {
		for j, w := range t.waiting {
			if w.size < t.waiting[i].size {
				i = j
			}
		}
	}
	t.waiting[i].next <- at // it has room
	t.waiting = slices.Delete(t.waiting, i, i+1)
}
