package xds

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

// largeNode is how large a node is, in bytes, that is decoded for clients as one of a
// few. Decoded, a node of a megabyte of small values is fifty. Those that are smaller
// are decoded before their goroutine has to make way for another.
const largeNode = 64 << 10

// decoding has a turn for half as many as there are cores: others are to find one. After
// each a turn rests for so many times as long as it took, since what is left of it has to
// be collected, by the same cores.
const rests = 2

var decoding = newTurns(max(1, runtime.GOMAXPROCS(0)/2))

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

// take waits for a turn of one of this size, and returns from when on it is free.
func (t *turns) take(size int) time.Time {
	t.mu.Lock()
	if last := len(t.free) - 1; last >= 0 {
		at := t.free[last]
		t.free = t.free[:last]
		t.mu.Unlock()
		return at
	}
	w := waiter{size, make(chan time.Time, 1)}
	t.waiting = append(t.waiting, w)
	t.mu.Unlock()
	return <-w.next
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
