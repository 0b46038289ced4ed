package admin

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Who asks without end is given a share of the time, and who asks now and then does
// not notice.
func TestTurnsAreAShareOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := newTurn(0.25, time.Second)
		work := func(d time.Duration) {
			give, ok := turn.take(t.Context())
			if !ok {
				t.Fatal("there was no turn")
			}
			time.Sleep(d)
			give()
		}
		began := time.Now()
		for range 5 {
			work(200 * time.Millisecond)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("a second's work took %s", took)
		}
		worked := time.Second
		for time.Since(began) < time.Minute {
			work(100 * time.Millisecond)
			worked += 100 * time.Millisecond
		}
		if worked < 15*time.Second || worked > 17*time.Second {
			t.Errorf("%s were worked in a minute", worked)
		}
		// Work that is more than there may be at once counts as that.
		work(time.Hour)
		began = time.Now()
		work(0)
		if rested := time.Since(began); rested > 5*time.Second {
			t.Errorf("rested for %s", rested)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		held, _ := turn.take(t.Context())
		if _, ok := turn.take(ctx); ok {
			t.Error("two have the turn")
		}
		held()
		if len(turn.room) != 0 {
			t.Error("the turn was not given back")
		}
	})
}
