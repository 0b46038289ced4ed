package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

const (
	cds = xds.ClusterType
	eds = xds.EndpointType
	rds = xds.RouteType
)

// A push of equal resources wakes only clients that NACK something, until they acknowledge.
func TestP15_PushWakesClientsWithANACK(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a, b, left := w.join("web", eds).want("a"), w.join("web", eds).want("a"), w.join("web", eds).want("a")
		synctest.Wait()
		f := w.feed("web")
		push := func(version string) {
			t.Helper()
			f.hand(t, snapshot.Update{Type: eds, Origin: "origin", Version: version, Received: time.Now(),
				Changed: []*xds.Resource{resource(t, eds, "a", "1")}, Pushed: []string{"a"}})
		}
		push("1")
		b.Nacked(nack("1", "bad"), nil)
		left.Nacked(nack("1", "bad"), nil)
		synctest.Wait()
		left.leave()
		synctest.Wait()
		a.woken()
		b.woken()
		push("2")
		push("3")
		equal(t, "a is woken", a.woken(), 0)
		equal(t, "b is woken", b.woken(), 2)
		b.acks(eds)
		push("4")
		equal(t, "b is woken", b.woken(), 0)
	})
}

// A type that no client wants any more leaves no trace. When it is wanted again, it starts empty.
func TestP65_TypeIsForgotten(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a, b := w.join("web", cds).want("*"), w.join("web", eds).want("x")
		f := w.feed("web")
		f.update(t, eds, false, "x=1")
		f.update(t, cds, true, "c=1")
		b.leave()
		pass(10 * time.Second)
		equal(t, "in the State", a.State().Snapshot(eds), nil)
		equal(t, "types", len(w.status("web").Types), 1)
		equal(t, "to the stream", f.sink.Newest(eds), nil)
		equal(t, "x", w.join("web", eds).want("x").sees(subscription("x"), "x"), "?")
	})
}

// A first answer wakes the clients that have the wildcard, even if it is empty (P11), and no
// others.
func TestP11_FirstAnswerWakesEvenIfEmpty(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a, b, c := w.join("web", cds).want("*"), w.join("web", cds).want("x"), w.join("web", cds).want()
		for _, c := range []*testClient{a, b, c} {
			c.woken()
		}
		w.feed("web").update(t, cds, true)
		equal(t, "wildcard", a.woken(), 1)
		equal(t, "by name", b.woken(), 0)
		equal(t, "nothing", c.woken(), 0)
		equal(t, "x", b.sees(subscription("x"), "x"), "?")
		w.feed("web").update(t, cds, true)
		equal(t, "wildcard, the second time", a.woken(), 0)
	})
}

// With settle, changes wait for more changes, but first answers do not. Applied content is held at
// once.
func TestSettle(t *testing.T) {
	bubble(t, func(o *Options) { o.Settle = time.Second }, func(w *registryFixture) {
		a := w.join("web", eds).want("x", "y", "z")
		f, sub := w.feed("web"), subscription("x", "y", "z")
		f.update(t, eds, false, "x=1")
		equal(t, "the first answer", a.sees(sub, "x"), "1")
		f.update(t, eds, false, "y=1")
		equal(t, "a name first known", a.sees(sub, "y"), "1")
		a.woken()

		f.update(t, eds, false, "x=2")
		time.Sleep(600 * time.Millisecond)
		f.update(t, eds, false, "y=2")
		equal(t, "held", contentOf(f.sink.Newest(eds).Resource("y")), "2")
		equal(t, "before it settled", a.sees(sub, "x")+a.sees(sub, "y"), "11")
		equal(t, "woken before", a.woken(), 0)
		time.Sleep(400 * time.Millisecond) // from the first change
		equal(t, "settled", a.sees(sub, "x")+a.sees(sub, "y"), "22")
		equal(t, "woken once", a.woken(), 1)

		// A change that is undone within the time is no change.
		f.update(t, eds, false, "x=3")
		f.update(t, eds, false, "x=2")
		time.Sleep(2 * time.Second)
		equal(t, "there and back", a.woken(), 0)

		// A first answer publishes waiting changes too.
		f.update(t, eds, false, "x=4")
		f.update(t, eds, false, "z")
		equal(t, "taken along", a.sees(sub, "x")+a.sees(sub, "z"), "4-")
	})
}

// An Update whose group has ended does not wait forever.
func TestUpdateOfAGroupThatIsOver(t *testing.T) {
	bubble(t, func(o *Options) { o.IdleTTL = 0 }, func(w *registryFixture) {
		a := w.join("web", eds).want("x")
		f := w.feed("web")
		a.leave()
		if f.alive() {
			t.Error("the stream still runs")
		}
		if _, err := f.sink.Update(context.Background(), snapshot.Update{Type: eds}); !errors.Is(err, errDropped) {
			t.Errorf("Update: %v", err)
		}
	})
}

// The mailbox has a subscriber at most once, whatever it does, and the last change counts.
func TestMailboxIsBounded(t *testing.T) {
	w := newRegistryFixture(t, options(t))
	g, _ := w.manual(eds)
	c, m := w.subscriber(g, eds)
	for _, n := range names("n", 1000) {
		m.Request(m.Intern(subscription(n)))
	}
	equal(t, "mail", len(g.mailbox.queue), 1)
	g.step(time.Now())
	equal(t, "woken", c.wakes, 1)
	equal(t, "requested", w.feeds[0].requested(eds), "n-000999")
	union, _ := g.allTypes()[0].audience.Union()
	equal(t, "indexed", strings.Join(slices.Collect(union.All()), " "), "n-000999")
}

// A version that still settles is known before it is published.
func TestNewestBeforeItIsPublished(t *testing.T) {
	bubble(t, func(o *Options) { o.Settle = time.Minute }, func(w *registryFixture) {
		c := w.join("web", cds).want("*")
		f := w.feed(`web`)
		f.version(t, "v1", "a", "1")
		f.version(t, "v2", "a", "2")
		equal(t, "published and newest", c.State().Snapshot(cds).Version+" "+c.Newest().Version, "v1 v2")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		equal(t, "published", c.State().Snapshot(cds).Version, "v2")
	})
}

// The NACKs of a key are dropped with it.
func TestP17_NacksGoWithTheirKey(t *testing.T) {
	bubble(t, func(o *Options) { o.IdleTTL = 0 }, func(w *registryFixture) {
		a, b := w.join("web", cds), w.join("db", cds)
		a.Nacked(subscriber.Nack{Version: "1", Message: "no", Node: "a"}, nil)
		b.Nacked(subscriber.Nack{Version: "1", Message: "no", Node: "b"}, nil)
		rows := func() (out []string) {
			for n := range w.reg.Nacks(0) {
				out = append(out, n.Key.String())
			}
			return out
		}
		equal(t, "rows", fmt.Sprint(rows()), "[db web]")
		a.leave()
		pass(time.Second)
		equal(t, "rows of keys in use", fmt.Sprint(rows()), "[db]")
	})
}

// A group is told that a client with clusters or endpoints has listeners or routes as well, in
// whichever order it requests them (P36), and until it leaves.
func TestP36_ClientsWithRoutesAreCounted(t *testing.T) {
	for _, types := range [][]xds.TypeURL{{cds, rds}, {xds.ListenerType, cds}, {eds, xds.ListenerType, rds}} {
		var group *Group
		bubble(t, nil, func(w *registryFixture) {
			c := w.reg.Join(subscriber.Info{Node: w.node(&corev3.Node{Cluster: "web"}), End: func(*refusal.Refusal) {}})
			for i, typ := range types {
				s, err := c.Subscribe(typ, &testClient{w: w})
				if err != nil {
					t.Fatal(err)
				}
				group = s.(*clientType).group
				equal(t, fmt.Sprint("counted after ", typ), group.routed.Load() > 0, i > 0)
			}
			c.Leave()
			synctest.Wait()
			equal(t, "counted after Leave", group.routed.Load(), 0)
		})
	}
}
