package xdstest

import (
	"context"
	"errors"
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
	if err := Poll(Patience, 5*time.Millisecond, check); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Poll calls check at this interval until it returns nil. After the timeout it returns the last
// error.
func Poll(timeout, interval time.Duration, check func() error) error {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return err
		}
	}
}

// Holds makes a check for Eventually of a condition.
func Holds(condition func() bool) func() error {
	return func() error {
		if condition() {
			return nil
		}
		return ErrNotYet
	}
}

// ErrNotYet is the error of a check whose condition does not hold yet.
var ErrNotYet = errors.New("not yet")

// Context returns a context that ends after Patience, and with the test.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Pause lets d pass while something goes on beside the test, such as traffic
// that must not fail. It returns early if the test is over.
func Pause(t testing.TB, d time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
}
