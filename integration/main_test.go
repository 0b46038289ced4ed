// Package integration tests the built binary from outside: real origins on one
// side of it, real clients on the other, all on loopback.
//
// RELAY_RACE builds the binary with the race detector, as go test -race does.
// RELAY_SEED is the seed of the model tests; a failure names the one it had.
package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long a test waits for something that has to come. It is only
// ever spent by tests that fail.
const patience = 30 * time.Second

// scratch is where the binary is built.
var scratch string

func TestMain(m *testing.M) {
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "relay-integration-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(scratch) }() // nothing is lost with it
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
			return 1
		}
	}
	return code
}

// binary builds the relay, once for all tests.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "relay")
	args := []string{"build", "-o", path}
	if raceEnabled || os.Getenv("RELAY_RACE") != "" {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "xdsrelay/cmd/relay")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the relay: %w\n%s", err, out)
	}
	return path, nil
})

// until waits for a state that no event tells: check is asked every few
// milliseconds until it gives no error.
func until(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
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

var errNotYet = errors.New("not yet")

// holds makes a check of a condition.
func holds(cond func() bool) func() error {
	return func() error {
		if cond() {
			return nil
		}
		return errNotYet
	}
}

// patient is a context for one thing that has to come.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}
