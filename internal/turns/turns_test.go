package turns

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// take has a turn, which the caller gives back.
func take(t *testing.T, ts *Turns, size int) (give func()) {
	t.Helper()
	give, ok := ts.Take(t.Context(), nil, size)
	if !ok {
		t.Fatal("no turn")
	}
	return give
}

// Who is as large as may be does not have others wait for each of his, nor does he wait
// for ever.
func TestSmallAndOldestTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := New(1, 0)
		give := take(t, ts, 0)
		var order []int
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, size := range []int{900, 901, 902, 903, 10, 20} {
			all.Go(func() {
				give := take(t, ts, size)
				mu.Lock()
				order = append(order, size)
				mu.Unlock()
				give()
			})
			synctest.Wait() // it is the next to wait
		}
		ctx, stop := context.WithCancel(t.Context())
		cut := make(chan struct{})
		for _, until := range []context.Context{ctx, t.Context()} {
			all.Go(func() {
				if _, ok := ts.Take(until, cut, 1); ok {
					t.Error("who has given up has a turn")
				}
			})
		}
		synctest.Wait()
		stop()
		close(cut)
		synctest.Wait()
		give()
		all.Wait()
		if want := []int{900, 10, 901, 20, 902, 903}; !slices.Equal(order, want) {
			t.Errorf("they go as %v, want %v", order, want)
		}
		if len(ts.free) != 1 || len(ts.waiting) != 0 {
			t.Errorf("%d turns are free, and %d wait", len(ts.free), len(ts.waiting))
		}
	})
}

// A turn rests after it was taken. A relay that was stopped, or had no processor, in one
// does not rest for as long as that.
func TestATurnRests(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{10 * time.Millisecond: 20 * time.Millisecond, 10 * time.Minute: MaxRest} {
		synctest.Test(t, func(t *testing.T) {
			ts := New(1, 2)
			give := take(t, ts, 0)
			time.Sleep(took)
			give()
			began := time.Now()
			ctx, stop := context.WithTimeout(t.Context(), want/2)
			defer stop()
			if _, ok := ts.Take(ctx, nil, 0); ok { // and gives back what has not rested
				t.Error("a turn is taken that rests")
			}
			take(t, ts, 0)()
			if d := time.Since(began); d != want {
				t.Errorf("after %v the next had to wait for %v, want %v", took, d, want)
			}
		})
	}
}
