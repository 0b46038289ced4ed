package xdstest

import (
	"fmt"
	"sync"
	"testing"
)

// Calls counts calls of a service that go on beside the test, and has the backend that answered last.
type Calls struct {
	mu       sync.Mutex
	answered int
	last     string
	failed   []error
}

// Count counts a call.
func (c *Calls) Count(backend string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failed = append(c.failed, err)
		return
	}
	c.answered++
	c.last = backend
}

// TakeFailed returns the errors of the calls that failed since it was called last.
func (c *Calls) TakeFailed() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	failed := c.failed
	c.failed = nil
	return failed
}

// Check fails the test if a call failed.
func (c *Calls) Check(t testing.TB) {
	t.Helper()
	if failed := c.TakeFailed(); len(failed) > 0 {
		t.Errorf("%d calls failed, the first: %v", len(failed), failed[:min(len(failed), 5)])
	}
}

// Reach waits until this backend answers.
func (c *Calls) Reach(t testing.TB, backend string) {
	t.Helper()
	Eventually(t, "calls to reach "+backend, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.last != backend {
			return fmt.Errorf("answered by %q; failed: %v", c.last, c.failed[:min(len(c.failed), 5)])
		}
		return nil
	})
}

// GoOn waits for more answers.
func (c *Calls) GoOn(t testing.TB) {
	t.Helper()
	answered := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.answered
	}
	enough := answered() + 50
	Eventually(t, "more answers", Holds(func() bool { return answered() >= enough }))
}
