package xdstest

import (
	"context"
	"testing"
	"time"
)

// Patience is how long a test waits for something that has to happen. Only a
// failing test waits that long.
const Patience = 30 * time.Second

// Eventually calls check every few milliseconds until it returns nil. It fails
// the test with the last error after Patience.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// Pause lets d pass while something goes on beside the test, such as traffic
// that must not fail. It returns early if the test is over.
func Pause(t testing.TB, d time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
}
