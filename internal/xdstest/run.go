package xdstest

import (
	"context"
	"sync"
	"testing"
)

// Run runs f on a goroutine until stop is called, or until the end of the test. stop waits until f
// has returned. An error of f fails the test.
func Run(t testing.TB, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}
