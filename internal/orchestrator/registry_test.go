package orchestrator

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// A node without a key is refused, with the rules that were tried.
func TestP5_UnmappedIsRefused(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		for _, c := range []struct {
			node   *corev3.Node
			reason telemetry.Reason
			says   string
		}{
			{&corev3.Node{Id: "someone"}, telemetry.Unmapped, "aggregation.rules[1]"},
			{&corev3.Node{Id: "keyless"}, telemetry.KeyError, "aggregation.rules[0]"},
		} {
			_, err := w.tryNode(c.node, "10.0.0.1", cds)
			r := refusalOf(t, err)
			equal(t, "code", r.Code, codes.PermissionDenied)
			equal(t, "reason", r.Reason, c.reason)
			if !strings.Contains(r.Error(), c.says) {
				t.Errorf("message does not name %s: %s", c.says, r.Error())
			}
		}
		equal(t, "streams", w.opened(), 0)
		equal(t, "keys", len(w.reg.Groups()), 0)
	})
}

func TestRunOwnsTheGroups(t *testing.T) {
	o := options(t)
	synctest.Test(t, func(t *testing.T) {
		w := newRegistryFixture(t, o)
		refused := func(when string) {
			t.Helper()
			_, err := w.try("web", cds)
			if r := refusalOf(t, err); r.Code != codes.Unavailable || r.Reason != telemetry.Draining {
				t.Errorf("%s: %v", when, r)
			}
		}
		refused("before Run")
		running := func() bool {
			select {
			case <-w.reg.Running():
				return true
			default:
				return false
			}
		}
		if running() {
			t.Error("running before Run")
		}
		w.run()
		if !running() {
			t.Error("Running is not closed while Run runs")
		}
		a := w.join("web", cds).want("*")
		f := w.feed("web")
		w.stop()
		if f.alive() {
			t.Error("the stream outlives Run")
		}
		refused("after Run")
		// A stream that ends later has no effect.
		a.want("x")
		a.joined.Leave()
		a.joined.Leave()
	})
}

// A key without clients keeps its interest.
func TestP52_IdleKeyIsFrozen(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a, b := w.join("web", eds).want("x", "y"), w.join("web", cds).want("*")
		f := w.feed("web")
		f.sink.Status(upstream.Status{Connected: true})
		f.update(t, eds, false, "x=1", "y=1")
		f.update(t, cds, true, "c=1")
		a.want("y") // x lingers
		synctest.Wait()
		said := f.said()
		b.leave()
		a.leave()
		time.Sleep(10*time.Minute - time.Second)
		synctest.Wait()
		equal(t, "told the origin", f.said(), said)
		equal(t, "requested", f.requested(eds), "x y")
		if st := w.status("web"); st.IdleSince.IsZero() {
			t.Error("the key is not idle")
		}

		// The key is revived. Names that are not wanted any more linger from now on.
		c := w.join("web", eds).want("y")
		equal(t, "y", c.sees(subscription("y"), "y"), "1")
		time.Sleep(9 * time.Second)
		synctest.Wait()
		equal(t, "told the origin", f.said(), said)
		time.Sleep(time.Second)
		synctest.Wait()
		equal(t, "requested of EDS", f.requested(eds), "y")
		equal(t, "requested of CDS", f.requested(cds), "")
		time.Sleep(time.Hour)
		equal(t, "streams", w.opened(), 1)
	})
}

// While its origin is away, an idle key with held resources stays.
func TestP52_IdleKeyStaysWhileItsOriginIsAway(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		held, bare := w.join("held", eds).want("x"), w.join("bare", eds).want("x")
		for _, key := range []string{"held", "bare"} {
			w.feed(key).sink.Status(upstream.Status{Connected: true})
		}
		w.feed("held").update(t, eds, false, "x=1")
		held.leave()
		bare.leave()
		for _, key := range []string{"held", "bare"} {
			w.feed(key).sink.Status(upstream.Status{Failed: true})
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if w.reg.Group(xds.NewKey("bare")) != nil {
			t.Error("a key without held resources stayed")
		}
		if w.reg.Group(xds.NewKey("held")) == nil {
			t.Fatal("the key was dropped, though its origin is away")
		}
		// The time counts once the origin is back. It restarts each time that the origin was away.
		w.feed("held").sink.Status(upstream.Status{Connected: true})
		time.Sleep(10*time.Minute - 1)
		equal(t, "keys just before idle_ttl", keysOf(w), "held")
		w.feed("held").sink.Status(upstream.Status{Failed: true})
		synctest.Wait()
		w.feed("held").sink.Status(upstream.Status{Connected: true})
		time.Sleep(10*time.Minute - 1)
		equal(t, "keys just before idle_ttl, the second time", keysOf(w), "held")
		time.Sleep(time.Nanosecond)
		equal(t, "keys after it", keysOf(w), "")
	})
}

// At most max_idle keys are without clients. The one that was idle longest is dropped first, never
// one with a client.
func TestP52_MaxIdle(t *testing.T) {
	bubble(t, func(o *Options) { o.MaxIdle = 2 }, func(w *registryFixture) {
		busy := w.join("busy", eds)
		var clients []*testClient
		for i := range 4 {
			clients = append(clients, w.join(fmt.Sprint("k", i), eds).want("x"))
			w.feed(fmt.Sprint("k", i)).update(t, eds, false, "x=1")
			w.feed(fmt.Sprint("k", i)).sink.Status(upstream.Status{Failed: true}) // away
		}
		clients[1].leave()
		clients[0].leave()
		w.join("k1", eds).leave() // used again: k0 is the oldest now
		clients[2].leave()
		equal(t, "keys", keysOf(w), "busy k1 k2 k3")
		clients[3].leave()
		equal(t, "keys", keysOf(w), "busy k2 k3")
		if w.feed("k1").alive() {
			t.Error("the stream of k1 still runs")
		}
		equal(t, "gauge", w.reg.opts.Metrics.Keys.Value(), 3)
		busy.leave()
	})
}

func keysOf(w *registryFixture) string {
	synctest.Wait()
	var out []string
	for _, g := range w.reg.Groups() {
		out = append(out, g.key.String())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// New keys are opened at a bounded rate, so that the changes of other keys do not wait for all of
// them. A client of an open key waits for nothing.
func TestP16_NewKeysArePaced(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		atOnce := opensAtOnce * runtime.GOMAXPROCS(0)
		began := time.Now()
		go func() {
			for i := range 2 * atOnce {
				if _, err := w.reg.Join(subscriber.Info{Node: w.node(&corev3.Node{Cluster: fmt.Sprint("k", i)}), End: func(*refusal.Refusal) {}}).Subscribe(eds, &testClient{w: w}); err != nil {
					t.Error(err)
				}
			}
		}()
		synctest.Wait()
		equal(t, "keys at once", len(w.reg.Groups()), atOnce)
		w.join("k0", eds)
		equal(t, "wait of a client of an open key", time.Since(began), 0)
		pass(opensAtOnce * time.Second / opensPerSecond)
		equal(t, "keys in time", len(w.reg.Groups()), 2*atOnce)
	})
}

func TestLimitKeys(t *testing.T) {
	bubble(t, func(o *Options) { o.Limits.Keys = 2 }, func(w *registryFixture) {
		a, b := w.join("a", eds), w.join("b", eds)
		_, err := w.try("c", eds)
		r := refusalOf(t, err)
		equal(t, "code", r.Code, codes.Unavailable)
		equal(t, "reason", r.Reason, telemetry.LimitKeys)
		w.join("a", cds)
		b.leave()
		w.join("c", eds) // b makes room
		equal(t, "keys", keysOf(w), "a c")
		equal(t, "gauge", w.reg.opts.Metrics.Keys.Value(), 2)
		if a.refusal() != nil {
			t.Error("a was ended")
		}
	})
}

// The keys that only other relays use do not count, and other relays are never refused for the limit.
func TestLimitKeysOfRelays(t *testing.T) {
	bubble(t, func(o *Options) { o.Limits.Keys = 1 }, func(w *registryFixture) {
		x := w.mustRelay("x", cds)
		a := w.join("a", eds)
		y := w.mustRelay("y", cds)
		_, err := w.try("x", eds)
		equal(t, "reason", refusalOf(t, err).Reason, telemetry.LimitKeys)
		a.leave()
		w.join("x", eds) // a makes room
		equal(t, "keys", keysOf(w), "x y")
		x.leave()
		y.leave()
		_, err = w.try("z", eds)
		equal(t, "y makes room", err, nil)
		equal(t, "keys", keysOf(w), "x z")
	})
}

func TestLimitKeysPerPeer(t *testing.T) {
	bubble(t, func(o *Options) { o.Limits.KeysPerPeer = 2 }, func(w *registryFixture) {
		join := func(cluster, peer string) (*testClient, error) {
			return w.tryNode(&corev3.Node{Id: "n", Cluster: cluster}, peer, eds)
		}
		must := func(c *testClient, err error) *testClient {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		a, a2 := must(join("a", "10.0.0.1")), must(join("a", "10.0.0.1"))
		must(join("b", "10.0.0.1"))
		_, err := join("c", "10.0.0.1")
		r := refusalOf(t, err)
		equal(t, "code", r.Code, codes.ResourceExhausted)
		equal(t, "reason", r.Reason, telemetry.LimitKeysPerPeer)
		must(join("b", "10.0.0.1")).leave() // a key that the peer already has
		must(join("c", "10.0.0.2"))
		a.leave()
		if _, err := join("d", "10.0.0.1"); err == nil {
			t.Error("a's key is no longer counted, though a subscriber is left")
		}
		a2.leave()
		must(join("d", "10.0.0.1"))
		equal(t, "peers", len(w.reg.peers), 2)
	})
}

func TestLimitTypesPerKey(t *testing.T) {
	bubble(t, func(o *Options) { o.Limits.TypesPerKey = 2 }, func(w *registryFixture) {
		a, b := w.join("web", cds).want("*"), w.join("web", eds).want("x")
		c := w.join("web", rds).want("r")
		r := c.refusal()
		if r == nil || r.Code != codes.Unavailable || r.Reason != telemetry.LimitTypesPerKey {
			t.Fatalf("refusal: %v", r)
		}
		equal(t, "requested", w.feed("web").requested(rds), "")
		if a.refusal() != nil || b.refusal() != nil {
			t.Error("others were ended")
		}
		w.join("web", eds).want("y")
		c.leave()
		b.leave()
		time.Sleep(10 * time.Second) // EDS: x and y
		if w.join("web", rds).refusal() == nil {
			t.Error("admitted, though a client has EDS")
		}
	})
}

// The limit on names is a limit on bytes. A long name counts for several until it is removed.
func TestLimitNamesPerKeyCountsLongNames(t *testing.T) {
	long := strings.Repeat("x", 2*xds.NameUnit+1)
	bubble(t, func(o *Options) { o.Linger, o.Limits.NamesPerKey = time.Second, 4 }, func(w *registryFixture) {
		a := w.join("web", eds).want(long)
		b := w.join("web", eds).want("y", "z")
		pass(refuseAfter)
		if r := b.refusal(); r == nil || r.Reason != telemetry.LimitNamesPerKey {
			t.Errorf("beside a name of three units, two more: %v", r)
		}
		c := w.join("web", eds).want("y")
		a.want("x") // the long one lingers, and makes room
		d := w.join("web", eds).want("u", "v")
		for _, other := range []*testClient{a, c, d} {
			if r := other.refusal(); r != nil {
				t.Errorf("ended: %v", r)
			}
		}
		equal(t, "requested", w.feed("web").requested(eds), "u v x y")
	})
}

// A client over the limit may come back again and again. Its names change nothing in the key, so
// that the key's other clients do not wait meanwhile.
func TestP16_RefusedNamesChangeNothing(t *testing.T) {
	o := options(t)
	o.Limits.NamesPerKey = 4
	w := newRegistryFixture(t, o)
	g, _ := w.manual(eds)
	_, a := w.subscriber(g, eds)
	g.applySubscriber(subscriberChanges{a, changes{sub: subscription("x", "y")}})
	g.step(time.Now())
	said := w.feeds[0].said()
	_, b := w.subscriber(g, eds)
	g.applySubscriber(subscriberChanges{b, changes{sub: subscription(names("n", 3)...)}})
	equal(t, "refused", b.ended, true)
	g.step(time.Now())
	equal(t, "told the origin", w.feeds[0].said(), said)
	g.removeSubscriber(b)
	equal(t, "told although it left", b.ending.Stop(), false)
}

func TestLimitNamesPerKey(t *testing.T) {
	bubble(t, func(o *Options) { o.Limits.NamesPerKey = 4 }, func(w *registryFixture) {
		a, b := w.join("web", eds).want("x", "y"), w.join("web", rds).want("r", "s")
		c := w.join("web", eds).want("x") // no new name
		f := w.feed("web")
		f.update(t, eds, false, "x=1", "y=1")
		d := w.join("web", eds).want("x", "z")
		pass(refuseAfter - time.Nanosecond)
		if r := d.refusal(); r != nil {
			t.Fatalf("told at once, and may come back at once: %v", r)
		}
		pass(time.Nanosecond)
		r := d.refusal()
		if r == nil || r.Code != codes.Unavailable || r.Reason != telemetry.LimitNamesPerKey {
			t.Fatalf("refusal: %v", r)
		}
		equal(t, "requested", f.requested(eds), "x y")
		d.want("x") // too late
		for _, other := range []*testClient{a, b, c} {
			if other.refusal() != nil {
				t.Error("another was ended")
			}
			other.woken()
		}
		f.update(t, eds, false, "x=2")
		equal(t, "the others go on", a.woken()+c.woken(), 2)
		equal(t, "the one that was ended", d.woken(), 0)
	})
}

// A group whose last subscriber left is not dropped if another subscriber has joined meanwhile.
func TestDropOfAKeyThatWasJoined(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a := w.join("web", eds)
		g := a.of().group
		if w.reg.drop(g) {
			t.Fatal("dropped with a subscriber")
		}
		a.leave()
		if !w.reg.drop(g) {
			t.Fatal("not dropped without subscribers")
		}
		if b := w.join("web", eds); b.of().group == g {
			t.Error("joined a group that has ended")
		}
	})
}

// Subscribers join, leave and change their subscriptions on many goroutines while updates arrive.
// At the end nothing is left of them.
func TestChurn(t *testing.T) {
	edit := func(o *Options) { o.Linger, o.IdleTTL, o.MaxIdle = 0, time.Millisecond, 3 }
	bubble(t, edit, func(w *registryFixture) {
		const workers, rounds = 8, 200
		done := make(chan struct{})
		for i := range workers {
			go func() {
				defer func() { done <- struct{}{} }()
				for n := range rounds {
					w.churn(fmt.Sprint("k", (i+n)%6), n)
				}
			}()
		}
		for range workers {
			<-done
		}
		equal(t, "peers", len(w.reg.peers), 0)
		time.Sleep(time.Millisecond)
		equal(t, "keys", keysOf(w), "")
		equal(t, "gauge", w.reg.opts.Metrics.Keys.Value(), 0)
	})
}

// churn is a client that joins, changes its subscription and leaves, between updates.
func (w *registryFixture) churn(cluster string, n int) {
	c := &testClient{w: w}
	node := w.node(&corev3.Node{Id: "n", Cluster: cluster})
	c.joined = w.reg.Join(subscriber.Info{Node: node, End: c.End})
	m, err := c.joined.Subscribe(eds, c)
	if err != nil {
		w.t.Error(err)
		return
	}
	c.Subscriber = m
	c.of().group.firstUpstream().Status(upstream.Status{Connected: true}) // otherwise it would be kept (P52)
	c.want(names("n", n%7)...)
	if n%3 == 0 {
		u := snapshot.Update{Type: eds, Changed: []*xds.Resource{resource(w.t, eds, "n-000001", fmt.Sprint(n))}}
		if _, err := c.of().group.firstUpstream().Update(context.Background(), u); err != nil {
			w.t.Error(err)
		}
	}
	m.State().Snapshot(eds)
	if n%10 == 0 {
		time.Sleep(time.Millisecond)
	}
	c.want("other")
	c.joined.Leave()
}
