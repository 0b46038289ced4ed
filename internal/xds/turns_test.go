package xds

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Large nodes that are decoded at once are half as many as there are cores; small ones wait
// for nobody.
func TestLargeNodesAtATime(t *testing.T) {
	m := someNode()
	m.Metadata.Fields["large"] = structpb.NewStringValue(strings.Repeat("x", largeNode))
	large, small := &Node{raw: marshal(t, m)}, &Node{raw: marshal(t, someNode())}
	most, in, leave := len(decoding.free), make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for range most + 3 {
		all.Go(func() {
			if err := large.With(func(m *corev3.Node) error {
				if m.Id != "n1" {
					t.Errorf("node %q", m.Id)
				}
				in <- struct{}{}
				<-leave
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	for range most {
		<-in
	}
	if err := small.With(func(*corev3.Node) error { return nil }); err != nil {
		t.Error(err)
	}
	select {
	case <-in:
		t.Errorf("more than %d at a time", most)
	case <-time.After(50 * time.Millisecond):
	}
	close(leave)
	for range 3 {
		<-in
	}
	all.Wait()
}

// Who is as large as may be does not have others wait for each of his, nor does he wait
// for ever.
func TestSmallAndOldestTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := newTurns(1)
		ts.take(t.Context(), nil, 0)
		var order []int
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, size := range []int{900, 901, 902, 903, 10, 20} {
			all.Go(func() {
				ts.take(t.Context(), nil, size)
				mu.Lock()
				order = append(order, size)
				mu.Unlock()
				ts.give(time.Time{})
			})
			synctest.Wait() // it is the next to wait
		}
		ctx, stop := context.WithCancel(t.Context())
		all.Go(func() {
			if _, ok := ts.take(ctx, nil, 1); ok {
				t.Error("who has given up has a turn")
			}
		})
		synctest.Wait()
		stop()
		synctest.Wait()
		ts.give(time.Time{})
		all.Wait()
		if want := []int{900, 10, 901, 20, 902, 903}; !slices.Equal(order, want) {
			t.Errorf("they go as %v, want %v", order, want)
		}
		if len(ts.free) != 1 || len(ts.waiting) != 0 {
			t.Errorf("%d turns are free, and %d wait", len(ts.free), len(ts.waiting))
		}
	})
}

// A relay that was stopped, or had no processor, while it decoded a large node does not
// rest for as long as that: whoever has such a node would wait for it.
func TestNoTurnRestsForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := &Node{raw: marshal(t, &corev3.Node{Id: strings.Repeat("n", largeNode+1)})}
		was := decoding
		decoding = newTurns(1)
		defer func() { decoding = was }()
		none := func(*corev3.Node) error { return nil }
		if err := large.With(func(*corev3.Node) error { time.Sleep(10 * time.Minute); return nil }); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := large.With(none); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > maxRest {
			t.Errorf("the next had to wait for %v", d)
		}
	})
}
