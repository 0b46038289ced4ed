package fanout

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// What came to nothing is over at once, or soon and without a stream; not what had
// to wait, and not what was idle.
func TestWhatCameToNothing(t *testing.T) {
	for _, tc := range []struct {
		lived         time.Duration
		used, delayed bool
		want          bool
	}{
		{brief / 2, false, false, true},
		{brief / 2, true, false, true},
		{2 * brief, true, false, false},
		{handshakeTimeout, false, false, true},
		{idleConnection, false, false, false},
		{brief / 2, false, true, false},
		{handshakeTimeout, false, true, false},
	} {
		now := time.Now()
		c := &conn{opened: now.Add(-tc.lived)}
		c.used.Store(tc.used)
		c.delayed.Store(tc.delayed)
		if got := c.nothing(now); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
	if strikeWait > 500*time.Millisecond {
		t.Error("the wait takes most of the second that Envoy has for connecting")
	}
}

func TestNeighbours(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.1:5":              "10.0.0.1",
		"[2001:db8:1:2:3::4]:5":   "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::]:5": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:5":        "fe80::/64",
		"[::ffff:10.0.0.1]:5":     "::ffff:10.0.0.1",
		"@":                       "@",
	} {
		if got := neighbours(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// Who comes again and again for nothing waits, and others do not.
func TestStrikes(t *testing.T) {
	s := strikes{hosts: make(map[string]*struck)}
	now := time.Now()
	for range strikeBurst {
		s.add("a", 1, now)
	}
	if w, _ := s.standing("a", now); w != 0 {
		t.Errorf("what is free costs %s", w)
	}
	for range 10_000 {
		s.add("a", 1, now)
	}
	if w, _ := s.standing("a", now); w != strikeWait {
		t.Errorf("waits %s, want %s", w, strikeWait)
	}
	if w, _ := s.standing("b", now); w != 0 {
		t.Errorf("another waits %s", w)
	}
	if w, _ := s.standing("a", now.Add(strikeWait)); w != 0 {
		t.Errorf("later it waits %s", w)
	}
	for i := range 3 * maxStruck {
		s.add(string(rune(i)), 1, now)
	}
	if n := len(s.hosts); n > maxStruck+1 {
		t.Errorf("%d addresses are remembered", n)
	}
	for i := range 10_000 {
		s.add(string(rune(i)), 1, now.Add(time.Hour))
	}
	if n := len(s.hosts); n > maxStruck+1 {
		t.Errorf("%d addresses are remembered", n)
	}
}

// A connection that came to nothing is a strike, also of a port's probe; one on
// which a client asked is none.
func TestStrikesAreOfConnectionsThatCameToNothing(t *testing.T) {
	r := newRig(t, nil)
	struckBy := func() float64 {
		r.srv.strikes.mu.Lock()
		defer r.srv.strikes.mu.Unlock()
		if h := r.srv.strikes.hosts["127.0.0.1"]; h != nil {
			return h.left
		}
		return strikeBurst
	}
	c, err := new(net.Dialer).DialContext(context.Background(), "tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	r.eventually(func() bool { return struckBy() < strikeBurst })
}

// What a connection spent and did not pay stays with its address: the next ones have
// less to spend at once, those of others do not, and it comes back with time.
func TestP16_WhoComesAgainHasNotAllOfItFreeOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := NewServer(Options{Metrics: newMeters(t), Log: slog.New(slog.DiscardHandler)})
		// visit spends so much of what it is given, stays for a time, and is closed.
		visit := func(spends int64, stays time.Duration) (wait time.Duration, burst int64) {
			c := &conn{Conn: nowhere{}, in: &listener{srv: srv, gate: new(Gate)}, opened: time.Now()}
			c.used.Store(true)
			wait, burst = srv.strikes.standing("nowhere", time.Now())
			tl := newToll(srv, c, c, burst)
			tl.left -= spends
			time.Sleep(stays)
			_ = c.Close()
			return wait, burst
		}
		for range 100 { // honest ones, though many
			if wait, burst := visit(50, time.Hour); wait != 0 || burst != tollBurst {
				t.Fatalf("waits %s with a burst of %d; wants none and all", wait, burst)
			}
		}
		for range 20 {
			visit(tollBurst/2, 2*brief) // what it paid meanwhile does not count
		}
		if wait, burst := visit(0, time.Hour); wait != 0 || burst < tollBurst*9/10 {
			t.Errorf("who paid most of it waits %s and has a burst of %d", wait, burst)
		}
		for range 3 {
			visit(2*tollBurst, brief)
		}
		if wait, burst := visit(0, 2*brief); wait != 0 || burst > tollBurst/2 || burst <= tollStruck {
			t.Errorf("who has spent a lot waits %s and has a burst of %d", wait, burst)
		}
		for range 200 {
			visit(tollBurst, brief)
		}
		wait, burst := srv.strikes.standing("nowhere", time.Now())
		if wait <= 0 || wait > strikeWait || burst != tollStruck {
			t.Errorf("who comes again and again waits %s and has a burst of %d", wait, burst)
		}
		if wait, burst := srv.strikes.standing("elsewhere", time.Now()); wait != 0 || burst != tollBurst {
			t.Errorf("another waits %s and has a burst of %d", wait, burst)
		}
		// Honest ones of that address do not have it stay so.
		for range 100 {
			visit(50, strikeBurst*time.Second/strikeRate/50)
		}
		if wait, burst := visit(0, time.Hour); wait != 0 || burst < tollBurst*9/10 {
			t.Errorf("later it waits %s and has a burst of %d", wait, burst)
		}
	})
}

// A connection that is quiet for months owes nothing when it ends, and is not read slowly
// when it has something to say again.
func TestP16_WhoIsQuietForMonthsOwesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := NewServer(Options{Metrics: newMeters(t), Log: slog.New(slog.DiscardHandler)})
		for days := range 400 {
			c := &conn{Conn: nowhere{}, in: &listener{srv: srv, gate: new(Gate)}, opened: time.Now()}
			tl := newToll(srv, c, c, tollBurst)
			tl.left -= tollBurst
			now := time.Now().Add(time.Duration(days+1) * 24 * time.Hour)
			if owed := tl.owed(now); owed != 0 {
				t.Fatalf("after %d days it owes %d", days+1, owed)
			}
			if wait := tl.pay(now); wait > 0 {
				t.Fatalf("after %d days it waits for %s", days+1, wait)
			}
		}
	})
}

// nowhere is a connection to nobody.
type nowhere struct{ net.Conn }

func (nowhere) Close() error         { return nil }
func (nowhere) RemoteAddr() net.Addr { return &net.UnixAddr{Name: "nowhere"} }
