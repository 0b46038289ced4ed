package upstream

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xds"
)

// testOrder is an Order that a test sets.
type testOrder struct {
	mu      sync.Mutex
	origins map[xds.Key][]*Origin
	changed chan struct{}
}

func (r *relay) ordered() *testOrder {
	o := &testOrder{origins: make(map[xds.Key][]*Origin), changed: make(chan struct{})}
	r.client.order = o
	return o
}

func (o *testOrder) Origins(key xds.Key) ([]*Origin, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.origins[key], o.changed
}

func (o *testOrder) set(key xds.Key, origins ...*Origin) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.origins[key] = origins
	close(o.changed)
	o.changed = make(chan struct{})
}

// The order may change while a stream is open. The stream stays until an origin that the key prefers
// now has answered a probe, also if its own origin left the order.
func TestP56_OrderChanges(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		one, two, three := n.origin("one"), n.origin("two"), n.origin("three")
		r := newRelay(t, v, Options{Dialer: n.dial, Backoff: steep}, addressOf("one"), addressOf("two"), addressOf("three"))
		at := r.client.origins
		o := r.ordered()
		o.set(testKey, at[0], at[1])
		r.launch()
		source, sink := r.stream(named(rds, "a"))
		quiet := func(what string, open *fakeStream, others ...*fakeOrigin) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			if err := open.Context().Err(); err != nil {
				t.Fatalf("%s: the stream ended: %v", what, err)
			}
			for _, f := range others {
				if len(f.streams) > 0 {
					t.Fatalf("%s: a stream at another origin", what)
				}
			}
		}
		answer := resp{Type: rds, Version: "1", Resources: clusters("a")}
		a := one.opens()
		a.send(answer)
		sink.from(t, rds, addressOf("one"))

		o.set(testKey, at[0], at[1], at[2])
		quiet("a less preferred origin is new", a, one, two, three)

		o.set(testKey, at[1], at[0])
		probe := two.opens()
		o.set(xds.NewKey("other"), at[1])
		synctest.Wait()
		if probe.Context().Err() != nil {
			t.Fatal("the probe ended, although the key's order is the same")
		}
		a.send(resp{Type: rds, Version: "2", Resources: []res{{Name: "a", Content: "2", Version: "2"}}})
		sink.Until(t, "a change of the origin in use", func() bool { return sink.Snapshots[rds].OriginVersion() == "2" })
		o.set(testKey, at[0], at[1])
		probe.ends()
		quiet("the origin in use is the first again", a, one, two)

		o.set(testKey, at[1], at[0])
		b := two.opens()
		b.send(resp{Type: rds, Version: "2", Resources: []res{{Name: "a", Content: "2", Version: "2"}}})
		sink.from(t, rds, addressOf("two"))
		a.ends()
		held := sink.Newest(rds).Resource("a")
		quiet("the preferred origin answered", b, one, two)

		o.set(testKey, at[2], at[0]) // two left the order
		c := three.opens()
		c.send(resp{Type: rds, Version: "2", Resources: []res{{Name: "a", Content: "2", Version: "2"}}})
		sink.from(t, rds, addressOf("three"))
		b.ends()
		if sink.Newest(rds).Resource("a") != held {
			t.Error("an unchanged resource was replaced")
		}
		source.mu.Lock()
		source.shortReturns[at[1]]++ // of an origin that left the order
		source.mu.Unlock()

		o.set(testKey, at[0])
		a = one.opens()
		a.send(resp{Type: rds, Version: "2", Resources: []res{{Name: "a", Content: "2", Version: "2"}}})
		sink.from(t, rds, addressOf("one"))
		quiet("one origin is left", a, one, two, three)
		source.mu.Lock()
		defer source.mu.Unlock()
		if len(source.shortReturns) > 0 {
			t.Error("an origin is remembered that left the order")
		}
	})
}

// An origin may leave the order while the key still uses it.
func TestP56_NextOriginOfOneThatLeftTheOrder(t *testing.T) {
	r := newRelay(t, xds.Delta, Options{}, "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
	at, o := r.client.origins, r.ordered()
	s := r.client.NewSource(testKey, nil, newTestSink(), nil)
	for _, c := range []struct {
		order    []*Origin
		at, want *Origin
	}{
		{at, at[0], at[1]},
		{at, at[2], at[0]},
		{at[:1], at[0], at[0]},
		{at[:1], at[2], at[0]},
		{at[1:], at[0], at[1]},
	} {
		o.set(testKey, c.order...)
		if got := s.nextOrigin(c.at, true); got != c.want {
			t.Errorf("%d origins, after %s: %s, want %s", len(c.order), c.at.Name, got.Name, c.want.Name)
		}
	}
}
