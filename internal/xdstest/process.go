package xdstest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
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
	ending bool  // SIGTERM was sent; only the test's goroutine uses it

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
	p, err := LaunchProcess(name, cmd, onLine)
	if err != nil {
		t.Fatal(err)
	}
	p.endWith(t)
	return p
}

// LaunchProcess starts a program that several tests share, or that no test starts. The caller ends
// it with Terminate. If cmd has a Stdout, the output is only what it writes to its standard error.
func LaunchProcess(name string, cmd *exec.Cmd, onLine func(string)) (*Process, error) {
	p := &Process{Name: name, cmd: cmd, exited: make(chan struct{})}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = w
	if cmd.Stdout == nil {
		cmd.Stdout = w
	}
	err = cmd.Start()
	_ = w.Close() // the child has its own copy
	if err != nil {
		_ = r.Close() // nothing was written to it
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.exited)
		p.read(r, onLine)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// endWith kills the process at the end of a test, and logs its output if the test failed.
func (p *Process) endWith(t testing.TB) {
	p.t = t
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("the end of the output of %s:\n%s", p.Name, p.Tail(150))
		}
	})
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

// Err returns how the process ended; nil: with 0. Exited has to be closed.
func (p *Process) Err() error { return p.err }

// Log returns the output so far. Each line ends with a newline.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	for _, line := range p.lines {
		b.WriteString(line + "\n")
	}
	return b.String()
}

// Tail returns the last n lines of the output.
func (p *Process) Tail(n int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines[max(0, len(p.lines)-n):], "\n")
}

// WaitLog waits until n lines of the output hold all these texts.
func (p *Process) WaitLog(t testing.TB, n int, texts ...string) {
	t.Helper()
	Eventually(t, p.Name+" logs", func() error {
		got := 0
		for line := range strings.Lines(p.Log()) {
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
				got++
			}
		}
		if got < n {
			return fmt.Errorf("%d lines hold %q, want %d:\n%s", got, texts, n, p.Tail(60))
		}
		return nil
	})
}

// Signal sends a signal if the process still runs. Stop sends no SIGTERM after one that was sent
// here.
func (p *Process) Signal(s syscall.Signal) {
	p.ending = p.ending || s == syscall.SIGTERM
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

// Stop is Terminate. An error fails the test.
func (p *Process) Stop() {
	p.t.Helper()
	if err := p.Terminate(); err != nil {
		p.t.Error(err)
	}
}

// Terminate sends SIGTERM, unless it was sent, and waits. It is an error if the process does not
// exit with 0 within Patience, unless Kill ended it. Only the first call returns the error.
func (p *Process) Terminate() error {
	select {
	case <-p.exited:
	default:
		if !p.ending {
			p.Signal(syscall.SIGTERM)
		}
	}
	select {
	case <-p.exited:
	case <-time.After(Patience):
		p.Signal(syscall.SIGQUIT) // a Go program prints its goroutines
		select {
		case <-p.exited:
		case <-time.After(Patience):
		}
		p.Kill()
		return fmt.Errorf("%s did not end within %v of SIGTERM", p.Name, Patience)
	}
	if p.err != nil && !p.killed {
		p.killed = true // the error is returned once
		how := "ended by itself"
		if p.ending {
			how = "after SIGTERM"
		}
		return fmt.Errorf("%s %s: %w", p.Name, how, p.err)
	}
	return nil
}
