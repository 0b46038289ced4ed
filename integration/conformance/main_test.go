// Package conformance judges the built relay by the rules of the protocol: a
// scripted origin on one side of it, scripted clients on the other, and what
// each of them sees. Nothing here knows the relay's code. The rules and
// their tests are in docs/conformance.md.
//
// A few relays serve all tests, and every test has a key of its own: a relay
// takes long to start, a key does not. Nothing waits for time to pass in order
// to see that nothing came: a fence is something else, asked for later, whose
// answer would have come after it.
//
// RELAY_RACE builds the relay with the race detector.
package conformance

import (
	"flag"
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
const patience = 20 * time.Second

// scratch is where the binary is built, and configurations lie.
var scratch string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	flag.Parse()
	// Tests wait for messages, not for a processor.
	if err := flag.Set("test.parallel", "24"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var err error
	if scratch, err = os.MkdirTemp("", "relay-conformance-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(scratch) }() // nothing is lost with it
	code := m.Run()
	if err := stopAll(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
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
	if os.Getenv("RELAY_RACE") != "" {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "xdsrelay/cmd/relay")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the relay: %w\n%s", err, out)
	}
	return path, nil
})

// eventually asks check every few milliseconds until it gives no error: for
// states that no event tells.
func eventually(t testing.TB, what string, check func() error) {
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
