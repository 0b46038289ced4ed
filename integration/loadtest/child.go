//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// roleArg as the first argument makes this program a child: the second is its role, the third its
// settings in JSON.
const roleArg = "child-of-loadtest"

// Roles of children.
const (
	roleSnapshot = "snapshot cache"
	roleLinear   = "linear cache"
	roleBare     = "bare"
	roleRaw      = "raw"
	roleCrowd    = "clients"
)

// command is a line from the parent to a child.
type command struct {
	Do   string `json:"do"`
	N    int    `json:"n,omitempty"`    // generation
	Path string `json:"path,omitempty"` // profile
}

// reply is a child's line to its parent, the first without a command.
type reply struct {
	Error string `json:"error,omitempty"`
	Addr  string `json:"addr,omitempty"`      // in a server's first reply
	Bytes uint64 `json:"allocated,omitempty"` // allocated since the start
	Heap  heap   `json:"heap"`
	Count int    `json:"count,omitempty"` // responses
	Round *round `json:"round,omitempty"`
}

// child is the process of a part of the run. Only one goroutine may use it.
type child struct {
	name   string
	cmd    *exec.Cmd
	stderr *tail
	in     io.WriteCloser // nil: takes no commands
	out    *bufio.Scanner
	done   chan struct{} // closed when the process has ended
}

// start starts a process that ends with this one.
func start(name string, cmd *exec.Cmd) (*child, error) {
	c := &child{name: name, cmd: cmd, stderr: &tail{}, done: make(chan struct{})}
	cmd.Stderr = c.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = cmd.Wait() // the goroutine that waits for its reply reports how it ended
		close(c.done)
	}()
	return c, nil
}

// startRole starts this program as a child and returns its hello.
func startRole(ctx context.Context, name, role string, settings any) (*child, reply, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, reply{}, err
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, reply{}, err
	}
	cmd := exec.Command(self, roleArg, role, string(text))
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, reply{}, err
	}
	// Not StdoutPipe: Wait would close it under the reader.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, reply{}, err
	}
	cmd.Stdout = w
	c, err := start(name, cmd)
	_ = w.Close()
	if err != nil {
		_ = r.Close()
		return nil, reply{}, err
	}
	go func() { <-c.done; _ = r.Close() }()
	c.in, c.out = in, bufio.NewScanner(r)
	hello, err := c.read(ctx)
	if err != nil {
		c.stop()
		return nil, reply{}, err
	}
	return c, hello, nil
}

// ask sends a command and waits for the reply.
func (c *child) ask(ctx context.Context, cmd command) (reply, error) {
	line, err := json.Marshal(cmd)
	if err != nil {
		return reply{}, err
	}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		return reply{}, c.failed(err)
	}
	return c.read(ctx)
}

// read waits for a line. When ctx ends, the child is ended too: a later line would be taken for the
// answer to another command.
func (c *child) read(ctx context.Context) (reply, error) {
	stop := context.AfterFunc(ctx, c.kill)
	defer stop()
	if !c.out.Scan() {
		if ctx.Err() != nil {
			return reply{}, c.failed(context.Cause(ctx))
		}
		return reply{}, c.failed(errEnded)
	}
	var r reply
	if err := json.Unmarshal(c.out.Bytes(), &r); err != nil {
		return reply{}, c.failed(err)
	}
	if r.Error != "" {
		return reply{}, c.failed(errors.New(r.Error))
	}
	return r, nil
}

var errEnded = errors.New("ended")

// failed adds to an error how the child ended, if it did, and its standard error.
func (c *child) failed(err error) error {
	select {
	case <-c.done:
		if errors.Is(err, errEnded) {
			err = fmt.Errorf("%w: %s", err, c.cmd.ProcessState)
		}
	case <-time.After(200 * time.Millisecond): // the process may not be ending at all
	}
	if text := c.stderr.String(); text != "" {
		return fmt.Errorf("%s: %w; its standard error:\n%s", c.name, err, text)
	}
	return fmt.Errorf("%s: %w; it wrote nothing to its standard error", c.name, err)
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) kill() { _ = c.cmd.Process.Kill() }

// stop ends the process and waits until it has.
func (c *child) stop() {
	if c.in != nil {
		_ = c.in.Close()
	} else {
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
	}
	select {
	case <-c.done:
	case <-time.After(3 * time.Second):
		c.kill()
		<-c.done
	}
}

// tail keeps the end of its input. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

const tailBytes = 8 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	if over := len(t.kept) - tailBytes; over > 0 {
		t.kept = t.kept[:copy(t.kept, t.kept[over:])]
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.kept))
}

// asChild runs a role and returns the exit code.
func asChild(args []string) int {
	if len(args) != 2 {
		fmt.Fprintln(os.Stderr, "a child takes a role and its settings")
		return 2
	}
	var err error
	switch role, settings := args[0], []byte(args[1]); role {
	case roleSnapshot:
		err = serveGCP(settings, snapshotCache, exampleOptions)
	case roleLinear:
		err = serveGCP(settings, linearCache, transportOptions)
	case roleBare:
		err = serveBare(settings)
	case roleRaw:
		err = serveRaw(settings)
	case roleCrowd:
		err = runCrowd(settings)
	default:
		err = fmt.Errorf("no role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// obey sends hello and answers commands until the parent closes its end.
func obey(hello reply, do func(command) (reply, error)) error {
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(hello); err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return err
		}
		r, err := do(c)
		if err != nil {
			r = reply{Error: err.Error()}
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	return lines.Err()
}
