package upstream

import (
	"context"
	"errors"
	"flag"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"xdsrelay/internal/upstream/timing"
	"xdsrelay/internal/xds"
)

// inMemory is a network of origins in a synctest bubble, where waits are exact.
type inMemory struct {
	t *testing.T

	mu    sync.Mutex
	at    map[string]*bufconn.Listener // nil: no listener
	rates map[string]int               // bytes that connections receive a second; 0: no limit
	dials []time.Time
}

// slow limits how much connections to an origin receive in a second.
func (n *inMemory) slow(name string, rate int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rates = map[string]int{name: rate}
}

// slowConn receives at a limited rate.
type slowConn struct {
	net.Conn
	rate int
}

func (c slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), c.rate/10)])
	time.Sleep(time.Duration(n) * time.Second / time.Duration(c.rate))
	return n, err
}

// bubbles runs a test in a synctest bubble, for both variants.
func bubbles(t *testing.T, test func(t *testing.T, v xds.Variant, n *inMemory)) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		synctest.Test(t, func(t *testing.T) { test(t, v, &inMemory{t: t, at: make(map[string]*bufconn.Listener)}) })
	})
}

// origin starts an origin of this name.
func (n *inMemory) origin(name string, opts ...grpc.ServerOption) *fakeOrigin {
	l := bufconn.Listen(1 << 16)
	n.mu.Lock()
	n.at[name] = l
	n.mu.Unlock()
	return serveFake(n.t, l, opts...)
}

// dial implements Options.Dialer.
func (n *inMemory) dial(ctx context.Context, name string) (net.Conn, error) {
	n.mu.Lock()
	n.dials = append(n.dials, time.Now())
	l, rate := n.at[name], n.rates[name]
	n.mu.Unlock()
	if l == nil {
		return nil, errors.New("no listener")
	}
	c, err := l.DialContext(ctx)
	if err == nil && rate > 0 {
		c = slowConn{c, rate}
	}
	return c, err
}

// relay runs a client of these origins. Its base delay makes the wait after a failure differ from
// the wait after a stream with a response.
func (n *inMemory) relay(v xds.Variant, names ...string) *relay {
	o := Options{Dialer: n.dial, Backoff: steep}
	for _, name := range names {
		o.Origins = append(o.Origins, OriginOptions{Address: addressOf(name), Keepalive: Keepalive{Time: 1000 * time.Hour}})
	}
	return startRelay(n.t, v, o)
}

func addressOf(name string) string { return "passthrough:///" + name }

var steep = timing.Backoff{Base: 4 * time.Second, Max: 30 * time.Second}

// reopens ends a stream. It returns the next stream and the time until it was opened.
func (f *fakeOrigin) reopens(s *fakeStream) (*fakeStream, time.Duration) {
	f.t.Helper()
	s.done <- nil // OK
	synctest.Wait()
	began := time.Now()
	s = f.opens()
	return s, time.Since(began)
}

// opens returns the next stream, however long it takes.
func (f *fakeOrigin) opens() *fakeStream {
	f.t.Helper()
	select {
	case s := <-f.streams:
		return s
	case <-time.After(time.Hour):
		f.t.Fatal("no stream is opened")
		return nil
	}
}

// jittered checks that waits spread from zero to the bound: of 60 waits none exceeds it, and each
// third of the range has one. A correct implementation fails this once in ten billion runs.
func jittered(t *testing.T, what string, bound time.Duration, waits []time.Duration) {
	t.Helper()
	least, most := slices.Min(waits), slices.Max(waits)
	if most > bound || most < bound*2/3 || least > bound/3 {
		t.Errorf("%s: %d waits from %v to %v, want any up to %v", what, len(waits), least, most, bound)
	}
}

// backsOff ends a stream again and again. The waits until the next one grow to their bound.
func (f *fakeOrigin) backsOff(s *fakeStream) {
	f.t.Helper()
	var waits []time.Duration
	for i := range 63 {
		var d time.Duration
		s, d = f.reopens(s)
		if i >= 3 {
			waits = append(waits, d)
		} else if bound := steep.Base << i; d > bound {
			f.t.Errorf("%v after %d failures, want at most %v", d, i+1, bound)
		}
	}
	jittered(f.t, "after many failures", steep.Max, waits)
}

// answered runs a key of this name until the origin has answered it.
func (r *relay) answered(f *fakeOrigin, name string) *fakeStream {
	r.stream(named(rds, name))
	s := f.opens()
	s.request()
	s.send(resp{Type: rds, Version: "1", Resources: clusters(name)})
	s.request()
	return s
}

// A stream that ended before any response counts as failed, even with status OK. If the origin
// answers other keys, the waits grow to their bound.
func TestP54_FailuresBackOff(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		r := n.relay(v, "one")
		r.answered(f, "other")
		s, _ := f.reopens(r.answered(f, "a"))
		f.backsOff(s)
	})
}

// After a stream that had a response, the relay reopens within a second, whatever failed before.
// The next failure counts as the first.
func TestP54_ResponseResetsTheBackoff(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f, other := n.origin("one"), n.origin("two")
		r := n.relay(v, "one", "two")
		r.answered(f, "other")
		s := r.answered(f, "a")
		var again, anew []time.Duration
		for range 60 {
			var d time.Duration
			s, d = f.reopens(s)
			again = append(again, d)
			s, d = f.reopens(s) // this one failed
			anew = append(anew, d)
			s.request()
			s.send(resp{Type: rds, Version: "1", Resources: clusters("a")})
			s.request()
		}
		jittered(t, "after a response", time.Second, again)
		jittered(t, "after a response and a failure", steep.Base, anew)
		if len(other.streams) > 0 {
			t.Error("the other origin was asked")
		}
	})
}

// opened returns when the next n streams were opened. The origin responds to the first one.
func (f *fakeOrigin) opened(n int) (at []time.Time) {
	for i := range n {
		s := f.opens()
		at = append(at, time.Now())
		if i == 0 {
			s.request()
			s.send(resp{Type: rds, Version: "1", Resources: clusters("a")})
		}
	}
	return at
}

// paced checks that no more than opensPerSecond streams were opened in any second.
func paced(t *testing.T, opened []time.Time) {
	t.Helper()
	for i := opensPerSecond; i < len(opened); i++ {
		if d := opened[i].Sub(opened[i-opensPerSecond]); d < time.Second-time.Millisecond {
			t.Fatalf("%d streams in %v", opensPerSecond+1, d)
		}
	}
}

// Streams of keys of which something is held are opened at a bounded rate, for whatever reason:
// here the origin ends all streams.
func TestP54_OpensArePaced(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		const keys = 600
		f := n.origin("one")
		r := n.relay(v, "one")
		var open []*fakeStream
		began := time.Now()
		for range keys {
			open = append(open, r.answered(f, "a"))
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("keys of which nothing is held wait: %v", d)
		}
		for _, s := range open {
			s.done <- nil
		}
		synctest.Wait()
		began = time.Now()
		at := f.opened(keys)
		paced(t, at)
		if d := time.Since(began); d > keys*time.Second/opensPerSecond+reopenWithin {
			t.Errorf("all are open after %v", d)
		}
	})
}

// An origin that cannot be reached is dialed once a second, by one connection however many keys and
// connections there are. Keys follow as soon as the connection is up, at the bounded rate.
func TestP54_UnreachableOriginIsDialedOnceASecond(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		const keys = 250 // three connections
		f := n.origin("one")
		r := n.relay(v, "one")
		for range keys {
			r.answered(f, "a")
		}
		n.mu.Lock()
		n.dials = nil
		n.mu.Unlock()
		n.remove("one")
		f.server.Stop()
		synctest.Wait()
		n.mu.Lock()
		if len(n.dials) > 1 {
			t.Errorf("%d dials of lost connections", len(n.dials))
		}
		n.mu.Unlock()
		const outage = 10 * time.Minute
		time.Sleep(outage)
		n.mu.Lock()
		if dials := time.Duration(len(n.dials)); dials > outage/dialEvery*11/10 || dials < outage/dialEvery*9/10 {
			t.Errorf("%d dials in %v", dials, outage)
		}
		n.mu.Unlock()

		f = n.origin("one")
		began := time.Now()
		at := f.opened(keys)
		if d := at[0].Sub(began); d > 2*time.Second {
			t.Errorf("the first key follows after %v", d)
		}
		if d := at[keys-1].Sub(began); d > 4*time.Second {
			t.Errorf("all keys follow after %v", d)
		}
		paced(t, at)
	})
}

// remove makes dials of an origin fail.
func (n *inMemory) remove(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.at, name)
}

// proxiedKeys is 10,000 in `make nightly`, which takes a minute of CPU.
var proxiedKeys = flag.Int("keys", 250, "keys in TestP54_OriginBehindAProxyThatAccepts")

// An origin may be behind a proxy that accepts connections and ends all streams, each after a
// while. From the start one key a second tries. The first response releases the others, at the bounded
// rate: 10,000 keys follow within a minute.
func TestP54_OriginBehindAProxyThatAccepts(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		keys := *proxiedKeys
		f := n.origin("one")
		r := n.relay(v, "one")
		var open []*fakeStream
		for range keys {
			open = append(open, r.answered(f, "a"))
		}
		for _, s := range open {
			s.done <- nil
		}
		for range 2 {
			tried := 0
			for began := time.Now(); time.Since(began) < time.Minute; tried++ {
				s := f.opens()
				time.AfterFunc(3*time.Second, func() { s.done <- nil })
			}
			if tried > 62 || tried < 55 {
				t.Errorf("%d streams in a minute", tried)
			}
		}
		began := time.Now()
		at := f.opened(keys - 5) // the last ones end later
		paced(t, at)
		d, within := at[len(at)-1].Sub(began), time.Duration(keys)*time.Second/opensPerSecond+3*time.Second
		if d > within {
			t.Errorf("the keys follow after %v, want %v at most", d, within)
		}
		t.Logf("%d keys follow within %v", len(at), d)
	})
}

// A silent origin is not away: all keys open their streams.
func TestP54_KeysDoNotWaitForASilentOrigin(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		const keys = 100
		f := n.origin("one")
		r := n.relay(v, "one")
		var open []*fakeStream
		for range keys {
			open = append(open, r.answered(f, "a"))
		}
		for _, s := range open {
			s.done <- nil
		}
		began := time.Now()
		for range keys {
			f.opens()
		}
		if d := time.Since(began); d > 13*time.Second {
			t.Errorf("all streams are open after %v", d)
		}
	})
}

// An origin that serves other keys, but not this one, is also probed with growing waits (P56).
func TestP54_ProbesOfAKeyBackOff(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		first, second := n.origin("one"), n.origin("two")
		r := n.relay(v, "one", "two")
		r.answered(first, "other") // from here on the origin is not away
		s := r.answered(first, "a")
		s.done <- nil
		for range 2 {
			first.opens().done <- nil
		}
		s = second.opens()
		s.request()
		s.send(resp{Type: rds, Version: "1", Resources: clusters("a")})
		first.backsOff(first.opens())
	})
}
