package hostile

import (
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
	if name := os.Getenv(attackVariable); name != "" {
		os.Exit(attackMain(name))
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "relay-hostile-"); err != nil {
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

// relayBinary builds the relay, once.
var relayBinary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "relay")
	out, err := exec.Command("go", "build", "-o", path, "xdsrelay/cmd/relay").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the relay: %w\n%s", err, out)
	}
	return path, nil
})

// full reports whether this is the long form.
func full() bool { return os.Getenv("HOSTILE") == "full" }

// until waits for a state that no event tells: check is asked every few
// milliseconds until it gives no error.
func until(t testing.TB, what string, check func() error) {
	t.Helper()
	if err := eventually(patience, 20*time.Millisecond, check); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func eventually(within, every time.Duration, check func() error) error {
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(every)
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

var errNotYet = errors.New("not yet")
