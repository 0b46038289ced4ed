package hostile

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// target has the relay's addresses for an attacker.
type target struct{ XDS, TLS, Admin, REST string }

// An attack runs in a process of its own, which is this test binary.
const (
	attackVariable = "HOSTILE_ATTACK"
	targetVariable = "HOSTILE_TARGET"
	sizeVariable   = "HOSTILE_SIZE"
)

// assault is a running attack.
type assault struct {
	target
	ctx  context.Context
	size int // its size, in the attack's own unit

	did   atomic.Int64
	going chan struct{} // closed at the first action
	once  sync.Once
}

// hit counts actions.
func (a *assault) hit(n int) {
	a.did.Add(int64(n))
	a.once.Do(func() { close(a.going) })
}

// each runs workers until the attack is over. A disconnected worker comes back.
func (a *assault) each(workers int, do func(i int) error) {
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			for a.ctx.Err() == nil {
				if do(i) != nil && a.ctx.Err() == nil {
					a.wait(time.Millisecond) // perhaps refused by the kernel
				}
			}
		})
	}
	all.Wait()
}

// wait waits for d, or until the attack is over.
func (a *assault) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.ctx.Done():
	}
}

// attackMain is the attacking process. It reports when the attack has begun, and stops when its
// input ends.
func attackMain(name string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a := &assault{ctx: ctx, going: make(chan struct{})}
	if err := json.Unmarshal([]byte(os.Getenv(targetVariable)), &a.target); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	a.size, _ = strconv.Atoi(os.Getenv(sizeVariable))
	do := attacks[name]
	if do == nil {
		fmt.Fprintln(os.Stderr, "no such attack:", name)
		return 1
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	go func() {
		<-a.going
		fmt.Println("going")
	}()
	do(a)
	fmt.Println("did", a.did.Load())
	return 0
}

// attacker is an attacking process.
type attacker struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.Closer
	lines *bufio.Scanner
}

// launch starts an attack and waits until it has begun.
func launch(t testing.TB, name string, at target, size int) *attacker {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	where, err := json.Marshal(at)
	if err != nil {
		t.Fatal(err)
	}
	// The test measures the attack's cost for the relay, not the attacker's own cost: a real
	// attacker has another machine. So the attacker only gets idle CPU time. A program sets that,
	// because a scheduling class belongs to a thread, and a Go process already has several.
	a := &attacker{t: t, cmd: exec.Command("chrt", "--idle", "0", self)}
	a.cmd.Env = append(os.Environ(), attackVariable+"="+name, targetVariable+"="+string(where), sizeVariable+"="+strconv.Itoa(size), "GOGC=400")
	a.cmd.Stderr = os.Stderr
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a.lines = bufio.NewScanner(out)
	if !a.lines.Scan() || a.lines.Text() != "going" {
		_ = a.in.Close()
		t.Fatalf("%s did nothing: %q, %v", name, a.lines.Text(), a.cmd.Wait())
	}
	return a
}

// stop ends the attack and returns its number of actions.
func (a *attacker) stop() int64 {
	a.t.Helper()
	_ = a.in.Close() // makes it stop
	var did int64
	for a.lines.Scan() {
		if n, ok := strings.CutPrefix(a.lines.Text(), "did "); ok {
			did, _ = strconv.ParseInt(n, 10, 64)
		}
	}
	if err := a.cmd.Wait(); err != nil {
		a.t.Errorf("the attacker failed: %v", err)
	}
	return did
}
