package overview

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xdstest"
)

// counted returns a Hub with numbered events, and the number of computations.
func counted(takes time.Duration) (*Hub, *int) {
	n := new(int)
	return NewHub(func(ctx context.Context) ([]byte, time.Duration, error) {
		*n++ // compute runs on one goroutine at a time
		time.Sleep(takes)
		return []byte(strconv.Itoa(*n)), takes, ctx.Err()
	}), n
}

func TestEventIsComputedOnceASecondForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, n := counted(0)
		var pages sync.WaitGroup
		for i := range 10 {
			pages.Go(func() {
				time.Sleep(time.Duration(i) * 77 * time.Millisecond)
				var seen *Event
				for range 5 {
					e, err := h.Next(t.Context(), seen)
					if err != nil || e == seen {
						t.Errorf("page %d: %v, the same again: %v", i, err, e == seen)
						return
					}
					seen = e
				}
			})
		}
		began := time.Now()
		pages.Wait()
		if took := time.Since(began); *n > 6 || took > 5*time.Second {
			t.Errorf("%d were computed in %s", *n, took)
		}
		// Without a page nothing is computed. A page that opens later gets a new event.
		before := *n
		time.Sleep(time.Minute)
		if *n != before {
			t.Errorf("%d were computed without a page", *n-before)
		}
		began = time.Now()
		if e, err := h.Next(t.Context(), nil); err != nil || string(e.Data) != strconv.Itoa(before+1) || time.Since(began) != 0 {
			t.Errorf("%v, %v after %s", e, err, time.Since(began))
		}
	})
}

func TestSlowEventsAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := counted(100 * time.Millisecond)
		e := xdstest.Must(h.Next(t.Context(), nil))(t)
		began := time.Now()
		if _, err := h.Next(t.Context(), e); err != nil || time.Since(began) != 5100*time.Millisecond {
			t.Errorf("%v after %s, want a fiftieth of the time spent", err, time.Since(began))
		}
		slow, _ := counted(time.Minute)
		e, _ = slow.Next(t.Context(), nil)
		began = time.Now()
		if _, err := slow.Next(t.Context(), e); err != nil || time.Since(began) != longest+time.Minute {
			t.Errorf("%v after %s, want never to be without", err, time.Since(began))
		}
	})
}

// A page that closes while it waits for the next event hands the turn on.
func TestClosedPageDoesNotStopTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := counted(0)
		e, _ := h.Next(t.Context(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { _, err := h.Next(ctx, e); left <- err }()
		synctest.Wait()
		got := make(chan *Event, 1)
		go func() { e, _ := h.Next(t.Context(), e); got <- e }()
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if next := <-got; next == nil || string(next.Data) != "2" {
			t.Errorf("%v", next)
		}
	})
}

func TestEndEndsWaitingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := counted(0)
		e, _ := h.Next(t.Context(), nil)
		ended := make(chan error, 3)
		for range 3 {
			go func() { _, err := h.Next(t.Context(), e); ended <- err }()
		}
		synctest.Wait()
		h.End()
		h.End()
		for range 3 {
			if err := <-ended; !errors.Is(err, ErrEnded) {
				t.Error(err)
			}
		}
		if _, err := h.Next(t.Context(), e); !errors.Is(err, ErrEnded) {
			t.Error(err)
		}
	})
}
