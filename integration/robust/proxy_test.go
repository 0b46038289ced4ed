//go:build linux

package main

import (
	"bufio"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"
)

// echo answers each line with the same line, until the test ends.
func echo(t *testing.T) string {
	t.Helper()
	l := xdstest.Listen(t)
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			wait.Go(func() {
				_, _ = io.Copy(c, c) // until either side ends
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // nothing to flush
		wait.Wait()
	})
	return l.Addr().String()
}

// say sends a line and reads it back.
func say(c net.Conn) error {
	if _, err := c.Write([]byte("hello\n")); err != nil {
		return err
	}
	_, err := bufio.NewReader(c).ReadString('\n')
	return err
}

// Each fault of a proxy affects the connections that it should, reports them, and ends.
func TestFaults(t *testing.T) {
	for _, f := range []struct {
		step
		open, during bool // whether connections that are open, or opened meanwhile, work during the fault
		after        bool // whether a line that was sent during the fault arrives later
		slow         time.Duration
	}{
		{step: step{act: cut}, during: true},
		{step: step{act: stall}, after: true},
		{step: step{act: halfOpen}},
		{step: step{act: reject}, open: true},
		{step: step{act: delay, size: int64(30 * time.Millisecond)}, open: true, during: true, slow: 60 * time.Millisecond},
		{step: step{act: throttle, size: 200}, open: true, during: true, slow: 60 * time.Millisecond},
	} {
		t.Run(string(f.act), func(t *testing.T) {
			t.Parallel()
			var touched sync.Map
			k, err := xdstest.NewProxy(echo(t), func(conn string) { touched.Store(conn, true) })
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(k.Close)
			dial := func() net.Conn {
				c, err := net.DialTimeout("tcp", k.Address, xdstest.Patience)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			works := func(what string, c net.Conn, want, wantTouched bool) {
				t.Helper()
				_ = c.SetDeadline(time.Now().Add(xdstest.Patience)) // TCP connections support deadlines
				err := say(c)
				_, is := touched.Load(c.LocalAddr().String())
				if (err == nil) != want || is != wantTouched {
					t.Errorf("%s: %v, touched: %t", what, err, is)
				}
			}
			open := dial()
			works("before", open, true, false)
			applyFault(f.step, k)
			if hangs := f.act == stall || f.act == halfOpen; hangs {
				_ = open.SetDeadline(time.Now().Add(50 * time.Millisecond)) // no event shows that nothing arrives
				if err := say(open); err == nil {
					t.Error("a line arrived")
				}
			} else {
				began := time.Now()
				works("open", open, f.open, true)
				if took := time.Since(began); took < f.slow {
					t.Errorf("a line took %v", took)
				}
				works("opened meanwhile", dial(), f.during, f.act != cut)
			}
			f.end = true
			if f.act != cut {
				applyFault(f.step, k)
			}
			if f.act == stall || f.act == halfOpen {
				works("open, afterwards", open, f.after, true)
			}
			works("later", dial(), true, false)
		})
	}
}
