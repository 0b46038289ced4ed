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

// target is the relay as an attacker sees it.
type target struct{ XDS, TLS, Admin string }

// An attack runs in a process of its own, which is this test binary.
const (
	attackVariable = "HOSTILE_ATTACK"
	targetVariable = "HOSTILE_TARGET"
	sizeVariable   = "HOSTILE_SIZE"
)

// assault is an attack that is going on.
type assault struct {
	target
	ctx  context.Context
	size int // how large it is to be, in its own measure

	did   atomic.Int64
	going chan struct{} // closed at the first thing done
	once  sync.Once
}

// hit counts things done.
func (a *assault) hit(n int) {
	a.did.Add(int64(n))
	a.once.Do(func() { close(a.going) })
}

// each runs workers until the attack is over: whoever is thrown out comes again.
func (a *assault) each(workers int, do func(i int) error) {
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			for a.ctx.Err() == nil {
				if do(i) != nil && a.ctx.Err() == nil {
					a.wait(time.Millisecond) // refused by the kernel, maybe
				}
			}
		})
	}
	all.Wait()
}

// wait waits, or until the attack is over.
func (a *assault) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.ctx.Done():
	}
}

// attackMain is the attacking process: it says when it is at work, and stops when
// its input ends.
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

// launch starts an attack and waits until it is at work.
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
	// What an attack costs the relay is looked at, and not what it costs itself: else it
	// would be on other machines. So it is only given what nobody else wants. By a
	// program, since a thread's class is not its process', and Go has some already.
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

// stop ends the attack and returns how much it did.
func (a *attacker) stop() int64 {
	a.t.Helper()
	_ = a.in.Close() // tells it so
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
