//go:build linux

package main

import (
	"bufio"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// echo answers each line with the same line, until the test ends.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	wait.Add(1)
	go func() {
		defer wait.Done()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wait.Add(1)
			go func() {
				defer wait.Done()
				_, _ = io.Copy(c, c) // until either side ends
				_ = c.Close()
			}()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		wait.Wait()
	})
	return l.Addr().String()
}

// rig is a link to an echo, and who it said to be touched.
type rig struct {
	*link
	t  *testing.T
	mu sync.Mutex
	is []string
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t}
	to := echo(t)
	var err error
	if r.link, err = newLink("test", func(conn string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.is = append(r.is, conn)
	}); err != nil {
		t.Fatal(err)
	}
	r.lead(to)
	t.Cleanup(r.link.close)
	return r
}

func (r *rig) dial() net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// say sends a line and reads it back.
func say(c net.Conn) error {
	if _, err := c.Write([]byte("hello\n")); err != nil {
		return err
	}
	_, err := bufio.NewReader(c).ReadString('\n')
	return err
}

func (r *rig) touches(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.is, c.LocalAddr().String())
}

func TestLinkWithoutFaults(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	if err := say(c); err != nil || r.touches(c) {
		t.Errorf("said with %v, touched: %t", err, r.touches(c))
	}
}

func TestCutEndsWhatIsOpen(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	if err := say(c); err != nil {
		t.Fatal(err)
	}
	doLink(step{act: cut}, r.link)
	if err := say(c); err == nil || !r.touches(c) {
		t.Errorf("after a cut: %v, touched: %t", err, r.touches(c))
	}
	later := r.dial()
	if err := say(later); err != nil || r.touches(later) {
		t.Errorf("a later connection: %v, touched: %t", err, r.touches(later))
	}
}

// Nothing comes through while a link is stalled, and all of it afterwards; or
// nothing, if it was half-open.
func TestStall(t *testing.T) {
	for _, a := range []act{stall, halfOpen} {
		t.Run(string(a), func(t *testing.T) {
			r := newRig(t)
			c := r.dial()
			if err := say(c); err != nil {
				t.Fatal(err)
			}
			doLink(step{act: a}, r.link)
			said := make(chan error, 1)
			go func() { said <- say(c) }()
			// That nothing happens has no event: a moment has to do.
			select {
			case err := <-said:
				t.Errorf("it came through: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			doLink(step{act: a, end: true}, r.link)
			if err := <-said; (err == nil) != (a == stall) || !r.touches(c) {
				t.Errorf("afterwards: %v, touched: %t", err, r.touches(c))
			}
			if later := r.dial(); say(later) != nil || r.touches(later) {
				t.Errorf("a later connection does not work, or is touched")
			}
		})
	}
}

func TestRefuse(t *testing.T) {
	r := newRig(t)
	open := r.dial()
	if err := say(open); err != nil {
		t.Fatal(err)
	}
	doLink(step{act: refuse}, r.link)
	c := r.dial()
	if err := say(c); err == nil || !r.touches(c) {
		t.Errorf("refused: %v, touched: %t", err, r.touches(c))
	}
	if err := say(open); err != nil {
		t.Errorf("who was there before: %v", err)
	}
	doLink(step{act: refuse, end: true}, r.link)
	if later := r.dial(); say(later) != nil || r.touches(later) {
		t.Error("afterwards it still refuses")
	}
}

// Slow links are slow both ways, by what they say.
func TestSlow(t *testing.T) {
	for a, size := range map[act]int64{delay: int64(30 * time.Millisecond), throttle: 200} {
		r := newRig(t)
		c := r.dial()
		doLink(step{act: a, size: size}, r.link)
		began := time.Now()
		if err := say(c); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 60*time.Millisecond || !r.touches(c) {
			t.Errorf("%s: it took %s, touched: %t", a, took, r.touches(c))
		}
		doLink(step{act: a, end: true}, r.link)
	}
}
