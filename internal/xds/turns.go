package xds

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// largeNode is how large a node is, in bytes, that is decoded for clients as one of a
// few. Decoded, a node of a megabyte of small values is fifty. Those that are smaller
// are decoded before their goroutine has to make way for another.
const largeNode = 64 << 10

// largeAtATime is for half as many as there are cores: others are to find one.
var largeAtATime = max(1, runtime.GOMAXPROCS(0)/2)

var decoding = newTurns(largeAtATime)

// rests is for how many times as long as it took a turn rests after it: what is left of
// it has to be collected, by the same cores.
const rests = 2

// maxRest bounds that: a relay that was stopped meanwhile, or had no processor, has nothing
// to collect for as long.
const maxRest = time.Second

// coming are the streams and polls whose large node is held against rules. What waits there may
// give up, so that who opens streams and ends them has nobody wait for what is over;
// there are more than decode, so that those are never without work.
var coming = newTurns(2 * largeAtATime)

// TakesTurns reports whether a node of so many bytes has to wait for its turn.
func TakesTurns(bytes int) bool { return bytes > largeNode }

// Turn waits until it is a node's turn, of so many bytes, to be held against rules, and
// returns what ends that; nil: ctx has ended before, or cut is closed.
func Turn(ctx context.Context, cut <-chan struct{}, bytes int) (leave func()) {
	if !TakesTurns(bytes) {
		return func() {}
	}
	if _, ok := coming.take(ctx, cut, bytes); !ok {
		return nil
	}
	return func() { coming.give(time.Time{}) }
}

// turns are so many at a time. Of those that wait, the smallest and who has waited for
// longest go next by turns: who is as large as may be delays others little, and nobody
// waits for ever.
type turns struct {
	mu      sync.Mutex
	free    []time.Time // from when on
	waiting []waiter    // who has waited for longest first
	oldest  bool        // goes next
}

type waiter struct {
	size int
	next chan time.Time // one slot
}

func newTurns(n int) *turns { return &turns{free: make([]time.Time, n)} }

// take waits for a turn of one of this size, and returns from when on it is free; false:
// ctx has ended before, or cut is closed.
func (t *turns) take(ctx context.Context, cut <-chan struct{}, size int) (at time.Time, ok bool) {
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
func (t *turns) give(at time.Time) {
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
