package upstream

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"xdsrelay/internal/xds"
)

// inMemory is a network of origins in a synctest bubble, where waits are exact.
type inMemory struct {
	t *testing.T

	mu    sync.Mutex
	at    map[string]*bufconn.Listener // nil: no listener
	dials []time.Time
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
	l := n.at[name]
	n.mu.Unlock()
	if l == nil {
		return nil, errors.New("no listener")
	}
	return l.DialContext(ctx)
}

// relay runs a client of these origins. Its base delay makes the wait after a failure differ from
// the wait after a stream with a response.
func (n *inMemory) relay(v xds.Variant, names ...string) *relay {
	var addresses []string
	for _, name := range names {
		addresses = append(addresses, addressOf(name))
	}
	return startRelay(n.t, Options{Variant: v, Dialer: n.dial, Backoff: steep, Keepalive: Keepalive{Time: 1000 * time.Hour}}, addresses...)
}

func addressOf(name string) string { return "passthrough:///" + name }

var steep = Backoff{Base: 4 * time.Second, Max: 30 * time.Second}

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

// A stream that ended before any response counts as failed, even with status OK. The waits grow to
// their bound.
func TestP54_FailuresBackOff(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		n.relay(v, "one").stream(named(rds, "a"))
		s := f.opens()
		var waits []time.Duration
		for i := range 63 {
			var d time.Duration
			s, d = f.reopens(s)
			if i >= 3 {
				waits = append(waits, d)
			} else if bound := steep.Base << i; d > bound {
				t.Errorf("%v after %d failures, want at most %v", d, i+1, bound)
			}
		}
		jittered(t, "after many failures", steep.Max, waits)
	})
}

// After a stream that had a response, the relay reopens within a second, whatever failed before.
// The next failure counts as the first.
func TestP54_AResponseResetsTheBackoff(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f, other := n.origin("one"), n.origin("two")
		_, sink := n.relay(v, "one", "two").stream(named(rds, "a"))
		s := f.opens()
		var again, anew []time.Duration
		for range 60 {
			var d time.Duration
			s.request()
			s.send(resp{Type: rds, Version: "1", Resources: clusters("a")})
			s.request()
			s, d = f.reopens(s)
			again = append(again, d)
			s, d = f.reopens(s) // this one failed
			anew = append(anew, d)
		}
		jittered(t, "after a response", time.Second, again)
		jittered(t, "after a response and a failure", steep.Base, anew)
		if len(other.streams) > 0 {
			t.Error("the other origin was asked")
		}
		sink.Mu.Lock()
		defer sink.Mu.Unlock()
		for _, st := range sink.statuses {
			if st.Attempts > 1 {
				t.Errorf("status %+v, and no two failures were in a row", st)
			}
		}
	})
}

// If the streams of many keys end together, they are not all reopened at the same moment.
func TestP54_KeysComeBackOneByOne(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		const keys = 60
		f := n.origin("one")
		r := n.relay(v, "one")
		for range keys {
			r.stream(named(rds, "a"))
		}
		var open []*fakeStream
		for range keys {
			s := f.opens()
			s.request()
			s.send(resp{Type: rds, Version: "1", Resources: clusters("a")})
			s.request()
			open = append(open, s)
		}
		for _, s := range open {
			s.done <- nil
		}
		synctest.Wait()
		began := time.Now()
		var waits []time.Duration
		for range keys {
			f.opens()
			waits = append(waits, time.Since(began))
		}
		jittered(t, "of keys", time.Second, waits)
	})
}

// Reconnects use full jitter too. Once the connection is up, no key waits out a long backoff, and
// keys do not all reopen together.
func TestP54_AnOriginThatCannotBeReached(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		const keys = 60
		r := n.relay(v, "one")
		for range keys {
			r.stream(named(rds, "a"))
		}
		time.Sleep(30 * time.Minute)
		n.mu.Lock()
		var waits []time.Duration
		for i, at := range n.dials[1:] {
			waits = append(waits, at.Sub(n.dials[i]))
		}
		n.mu.Unlock()
		for i, d := range waits[:3] {
			if bound := steep.Base << i; d > bound {
				t.Errorf("connected again %v after %d failures, want at most %v", d, i+1, bound)
			}
		}
		jittered(t, "connecting", steep.Max, waits[3:])

		f := n.origin("one")
		f.opens()
		began := time.Now()
		waits = waits[:0]
		for range keys - 1 {
			f.opens()
			waits = append(waits, time.Since(began))
		}
		jittered(t, "once it is there", time.Second, waits)
	})
}

// An origin that serves other keys, but not this one, is also probed with growing waits (P56).
func TestP54_TriesOfAKeyBackOff(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		first, second := n.origin("one"), n.origin("two")
		r := n.relay(v, "one", "two")
		r.stream(named(rds, "a"))
		s := first.opens()
		s.request()
		s.send(resp{Type: rds, Version: "1", Resources: clusters("a")})
		s.request() // from here on the origin is not away
		r.stream(named(rds, "a"))
		first.refuse(2)
		second.serve(1).send(resp{Type: rds, Version: "1", Resources: clusters("a")})
		s = first.opens()
		var waits []time.Duration
		for i := range 63 {
			var d time.Duration
			s, d = first.reopens(s)
			if i >= 3 {
				waits = append(waits, d)
			} else if bound := steep.Base << i; d > bound {
				t.Errorf("%v after %d failures, want at most %v", d, i+1, bound)
			}
		}
		jittered(t, "probing", steep.Max, waits)
	})
}

func TestP54_FullJitterThatGrowsToItsBound(t *testing.T) {
	b := Backoff{Base: time.Second, Max: 30 * time.Second}
	most := func(d time.Duration) time.Duration { return d }
	for failures, want := range map[int]time.Duration{1: 1, 2: 2, 3: 4, 5: 16, 6: 30, 1000: 30} {
		if got := b.delay(failures, most); got != want*time.Second {
			t.Errorf("after %d failures at most %v, want %v", failures, got, want*time.Second)
		}
	}
	low, high := time.Hour, time.Duration(0)
	for range 1000 {
		d := b.delay(4, upTo)
		low, high = min(low, d), max(high, d)
	}
	if low > time.Second || high < 7*time.Second || high > 8*time.Second {
		t.Errorf("of 1000 delays up to 8s the least is %v, the largest %v", low, high)
	}
}
