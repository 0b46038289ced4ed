package xdstest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a program that runs until the end of the test. Its output is kept
// and logged if the test fails.
type Process struct {
	Name string

	t      testing.TB
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // of the process; set before exited is closed
	killed bool  // by Kill; only the test's goroutine uses it

	mu    sync.Mutex
	lines []string
}

// maxLines bounds the lines of output that a Process keeps.
const maxLines = 20_000

// StartProcess starts a program and calls onLine for each line of its output,
// on a goroutine of the process. At the end of the test it is killed if it
// still runs.
func StartProcess(t testing.TB, name string, cmd *exec.Cmd, onLine func(string)) *Process {
	t.Helper()
	p := &Process{Name: name, t: t, cmd: cmd, exited: make(chan struct{})}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	_ = w.Close() // the child has its own copy
	go func() {
		defer close(p.exited)
		p.read(r, onLine)
		p.err = cmd.Wait()
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("the end of the output of %s:\n%s", name, p.Tail(150))
		}
	})
	return p
}

func (p *Process) read(r io.ReadCloser, onLine func(string)) {
	defer func() { _ = r.Close() }() // only read from
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		line := lines.Text()
		p.mu.Lock()
		if len(p.lines) == maxLines {
			p.lines = append(p.lines[:0], p.lines[maxLines/2:]...)
		}
		p.lines = append(p.lines, line)
		p.mu.Unlock()
		if onLine != nil {
			onLine(line)
		}
	}
	_, _ = io.Copy(io.Discard, r) // a line over the limit must not block the process
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed once the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Log returns the output so far.
func (p *Process) Log() string { return p.Tail(maxLines) }

// Tail returns the last n lines of the output.
func (p *Process) Tail(n int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines[max(0, len(p.lines)-n):], "\n")
}

// Signal sends a signal if the process still runs.
func (p *Process) Signal(s syscall.Signal) {
	select {
	case <-p.exited:
	default:
		_ = p.cmd.Process.Signal(s) // it may have ended just now
	}
}

// Kill ends the process with SIGKILL and waits. It may be called again.
func (p *Process) Kill() {
	p.killed = true
	p.Signal(syscall.SIGKILL)
	<-p.exited
}

// Stop sends SIGTERM and waits. The process has to exit with 0 within Patience.
// If it has exited before, it has to have done so with 0, or because of Kill.
func (p *Process) Stop() {
	p.t.Helper()
	select {
	case <-p.exited:
		if p.err != nil && !p.killed {
			p.t.Errorf("%s ended before it was stopped: %v", p.Name, p.err)
		}
		return
	default:
	}
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		if p.err != nil {
			p.t.Errorf("%s after SIGTERM: %v", p.Name, p.err)
		}
	case <-time.After(Patience):
		p.Signal(syscall.SIGQUIT) // a Go program prints its goroutines
		select {
		case <-p.exited:
		case <-time.After(Patience):
			p.Kill()
		}
		p.t.Errorf("%s did not end within %v of SIGTERM", p.Name, Patience)
	}
}
