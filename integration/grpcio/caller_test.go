package grpcio

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"xdsrelay/internal/xdstest"
)

// caller is a Python process that calls a service all the time. No call may
// fail.
type caller struct {
	*xdstest.Process
	xdstest.Calls
	t testing.TB
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
	switch kind, rest, _ := strings.Cut(text, " "); kind {
	case "answer":
		c.Count(rest, nil)
	case "error":
		c.Count("", errors.New(rest))
	}
}

// check fails the test if a call failed or the process ended.
func (c *caller) check() {
	select {
	case <-c.Exited():
		c.t.Error("caller.py ended")
	default:
	}
	c.Check(c.t)
}

func (c *caller) reaches(backend string) { c.t.Helper(); c.Reach(c.t, backend) }

func (c *caller) goesOn() { c.t.Helper(); c.GoOn(c.t) }
