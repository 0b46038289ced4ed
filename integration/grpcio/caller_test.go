package grpcio

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"xdsrelay/internal/xdstest"
)

// caller is a Python process that calls a service all the time. No call may
// fail.
type caller struct {
	*xdstest.Process
	t testing.TB

	mu     sync.Mutex
	calls  int
	failed []string
	last   string // the backend that answered last
}

// startCaller runs testdata/caller.py with the bootstrap of config/clients/grpc.json, in which
// server replaces the relay's address.
func startCaller(t testing.TB, server, service string) *caller {
	t.Helper()
	return startCallerBy(t, bootstrap(t, "grpc.json", map[string]string{"127.0.0.1:15010": server}), service)
}

// startCallerBy is startCaller with this bootstrap.
func startCallerBy(t testing.TB, bootstrap, service string) *caller {
	t.Helper()
	c := &caller{t: t}
	cmd := exec.Command(filepath.Join(xdstest.PythonEnv(t), "bin", "python"), filepath.Join("testdata", "caller.py"), service)
	cmd.Env = append(os.Environ(), "GRPC_XDS_BOOTSTRAP="+bootstrap, "no_grpc_proxy=127.0.0.1")
	c.Process = xdstest.StartProcess(t, "caller.py", cmd, c.line)
	t.Cleanup(c.check) // runs before the process is killed
	return c
}

// bootstrap writes a file of config/clients in which some texts are replaced. It returns the path.
func bootstrap(t testing.TB, file string, replaced map[string]string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "clients", file))
	if err != nil {
		t.Fatal(err)
	}
	for sample, here := range replaced {
		if bytes.Count(text, []byte(sample)) != 1 {
			t.Fatalf("%s does not have %q once", file, sample)
		}
		text = bytes.Replace(text, []byte(sample), []byte(here), 1)
	}
	path := filepath.Join(t.TempDir(), file)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// line counts a line of the script's output. C-core's log lines are neither
// answers nor errors.
func (c *caller) line(text string) {
	kind, rest, _ := strings.Cut(text, " ")
	c.mu.Lock()
	defer c.mu.Unlock()
	switch kind {
	case "answer":
		c.calls++
		c.last = rest
	case "error":
		c.calls++
		c.failed = append(c.failed, rest)
	}
}

// check fails the test if a call failed or the process ended.
func (c *caller) check() {
	select {
	case <-c.Exited():
		c.t.Error("caller.py ended")
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.failed) > 0 {
		c.t.Errorf("%d of %d calls failed, the first: %s", len(c.failed), c.calls, c.failed[0])
	}
}

// reaches waits until calls are answered by this backend.
func (c *caller) reaches(backend string) {
	c.t.Helper()
	xdstest.Eventually(c.t, "calls to reach "+backend, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.last != backend {
			return fmt.Errorf("%d calls, the last answered by %q; failed: %q", c.calls, c.last, c.failed)
		}
		return nil
	})
}

// goesOn waits for 20 more calls.
func (c *caller) goesOn() {
	c.t.Helper()
	c.mu.Lock()
	before := c.calls
	c.mu.Unlock()
	xdstest.Eventually(c.t, "more calls", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.calls < before+20 {
			return errors.New("too few yet")
		}
		return nil
	})
}
