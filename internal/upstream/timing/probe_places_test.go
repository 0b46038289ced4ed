package timing

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
)

// Keys are admitted in order of arrival: one at a time until a probe succeeds, then MaxProbes.
func TestP56_ProbesAreLetInInTurn(t *testing.T) {
	testTurns(t, false, MaxProbes)
	testTurns(t, true, MaxMemberProbes)
}

func testTurns(t *testing.T, member bool, most int) {
	synctest.Test(t, func(t *testing.T) {
		q := NewProbes(member)
		type admitted struct {
			key   int
			leave func(bool)
		}
		in := make(chan admitted, 100)
		for i := range most + 24 {
			go func() {
				if leave, err := q.Enter(t.Context()); err == nil {
					in <- admitted{i, leave}
				}
			}()
			synctest.Wait() // to fix their order
		}
		next := 0
		var open []func(bool)
		entered := func(n int) {
			t.Helper()
			synctest.Wait()
			var got []int
			for len(in) > 0 {
				a := <-in
				got, open = append(got, a.key), append(open, a.leave)
			}
			slices.Sort(got)
			for i, key := range got {
				if key != next+i {
					t.Fatalf("%v were admitted, want %d next", got, next)
				}
			}
			if next += n; len(got) != n {
				t.Fatalf("%v were admitted, want %d", got, n)
			}
		}
		leave := func(succeeded bool) {
			open[0](succeeded)
			open = open[1:]
		}
		entered(1)
		leave(false)
		entered(1)
		leave(true)
		entered(most)
		leave(true)
		leave(true)
		entered(2)
		for range most - 1 { // admitted keys stay
			leave(false)
		}
		entered(1)
	})
}

// A key that stops waiting does not take a place from another key.
func TestP56_KeyThatLeavesTheQueue(t *testing.T) {
	q := NewProbes(false)
	leave, err := q.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		if _, err := q.Enter(gone); err == nil {
			t.Fatal("two probe at a time")
		}
	}
	leave(false)
	if _, err := q.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	if q.Running() != 1 {
		t.Errorf("%d probe", q.Running())
	}
}
