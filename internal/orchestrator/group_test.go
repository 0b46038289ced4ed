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

// A key has one stream, which subscribes to the union.
func TestP50_OneStreamRequestsTheUnion(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a, b := w.join("web", eds), w.join("web", eds)
		a.want("x", "y")
		b.want("y", "z")
		w.join("web", cds).want("*")
		w.join("db", eds).want("q")
		synctest.Wait()
		f := w.feed("web")
		equal(t, "streams", w.opened(), 2)
		equal(t, "requested of EDS", f.requested(eds), "x y z")
		equal(t, "requested of CDS", f.requested(cds), "*")
		equal(t, "requested for the other key", w.feed("db").requested(eds), "q")
	})
}

// A client that gives up its names does not end the others' interest, and does not become a
// wildcard (xds-relay#147).
func TestP51_GivingUpNamesEndsOnesOwnInterest(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a, b := w.join("web", eds).want("x", "y"), w.join("web", eds).want("y")
		synctest.Wait()
		f := w.feed("web")
		f.update(t, eds, false, "x=1", "y=1")
		a.woken()
		b.woken()
		a.want()
		equal(t, "a is woken once it is indexed", a.woken(), 1)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		equal(t, "requested", f.requested(eds), "y")
		f.update(t, eds, false, "y=2")
		equal(t, "a, which wants nothing", a.woken(), 0)
		equal(t, "b", b.woken(), 1)
		equal(t, "what was not subscribed", a.sees(subscription(), "y"), "?")
	})
}

// A subscriber neither wakes nor disturbs another subscriber.
func TestP16_MembersDoNotDisturbEachOther(t *testing.T) {
	bubble(t, func(o *Options) { o.Limits.NamesPerKey = 10 }, func(w *registryFixture) {
		a := w.join("web", eds).want("a")
		synctest.Wait()
		f := w.feed("web")
		f.update(t, eds, false, "a=1")
		a.woken()
		state := a.State()

		b := w.join("web", eds).want("b")
		b.Nacked(nack("1", "bad"), nil)
		b.want("b", "c")
		f.update(t, eds, false, "b=1")
		b.want(names("n", 11)...) // too many
		pass(refuseAfter)
		if b.refusal() == nil {
			t.Error("b is not ended")
		}
		b.leave()
		time.Sleep(time.Minute)
		equal(t, "a", a.woken(), 0)
		if a.refusal() != nil {
			t.Errorf("a is ended: %v", a.refusal())
		}
		if a.State().Snapshot(eds).Resource("a") != state.Snapshot(eds).Resource("a") {
			t.Error("a's resource is another one")
		}
	})
}

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

// New names are sent upstream merged and at once. Names that no client wants stay for linger.
func TestP52_LingerThenForgotten(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a := w.join("web", eds).want("x", "y")
		stay := w.join("web", cds).want("*")
		synctest.Wait()
		f := w.feed("web")
		f.update(t, eds, false, "x=1", "y=1")
		said := f.said()

		a.want("y")
		time.Sleep(9 * time.Second)
		synctest.Wait()
		equal(t, "within linger", f.requested(eds), "x y")
		// The name is wanted again, as if it had never been given up.
		a.want("x", "y")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		equal(t, "wanted again", f.said(), said)
		// The time counts from the last time that it was given up.
		a.want("y")
		time.Sleep(9 * time.Second)
		a.want("x", "y")
		time.Sleep(100 * time.Millisecond)
		a.want("y")
		time.Sleep(9 * time.Second)
		synctest.Wait()
		equal(t, "given up again", f.said(), said)
		time.Sleep(time.Second)
		synctest.Wait()
		equal(t, "after linger", f.requested(eds), "y")
		if f.sink.Newest(eds).Known("x") {
			t.Error("x is still known")
		}

		stay.want()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		equal(t, "the wildcard within linger", f.requested(cds), "*")
		time.Sleep(time.Second)
		synctest.Wait()
		equal(t, "the wildcard after linger", f.requested(cds), "")
	})
}

func TestP52_NewNamesAreMerged(t *testing.T) {
	w := newRegistryFixture(t, options(t))
	g, _ := w.manual(eds)
	var clients []*testClient
	for _, name := range names("n", 50) {
		c, m := w.subscriber(g, eds)
		clients = append(clients, c)
		g.post(m, func(l *changes) { l.sub = g.interned.Intern(subscription(name)) })
	}
	g.step(time.Now())
	equal(t, "told the origin", w.feeds[0].said(), 1)
	equal(t, "requested", w.feeds[0].requested(eds), strings.Join(names("n", 50), " "))
	for _, c := range clients {
		equal(t, "woken", c.wakes, 1)
	}
}

// A type that no client wants any more leaves no trace. When it is wanted again, it starts empty.
func TestP65_ForgottenAtOnce(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		w.join("web", cds).want("*")
		a := w.join("web", eds).want("x", "*")
		synctest.Wait()
		f := w.feed("web")
		f.update(t, cds, true, "c=1")
		f.update(t, eds, true, "x=1", "y=1")
		a.leave()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		equal(t, "requested", f.requested(eds), "")
		if s := f.sink.Newest(eds); s != nil {
			t.Errorf("%d resources are held", s.Len())
		}
		st := w.status("web")
		equal(t, "types", len(st.Types), 1)
		// A late response arrives.
		f.update(t, eds, true, "x=1")
		b := w.join("web", eds).want("x")
		equal(t, "x", b.sees(subscription("x"), "x"), "?")
		f.update(t, eds, true, "x=1", "y=1")
		f.update(t, eds, false, "x=2", "y=2", "z")
		equal(t, "x", b.sees(subscription("x"), "x"), "2")
		equal(t, "not requested", f.sink.Newest(eds).Len(), 1)
		if f.sink.Newest(eds).Known("z") {
			t.Error("an absence is known without a subscription")
		}
	})
}

// A State holds all types, and its generation counts what was published.
func TestStateNumbers(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a, b := w.join("web", cds).want("*"), w.join("web", eds).want("x")
		synctest.Wait()
		if a.State() != nil {
			t.Error("a State before anything is known")
		}
		f := w.feed("web")
		f.update(t, cds, true, "c=1")
		f.update(t, eds, false, "x=1")
		s := b.State()
		equal(t, "same State", a.State(), s)
		equal(t, "number", s.Number, 2)
		equal(t, "CDS since", s.Snapshot(cds).StateNumber, 1)
		equal(t, "EDS since", s.Snapshot(eds).StateNumber, 2)
		a.woken()
		b.woken()

		// A new version alone wakes no client, but it is shown.
		f.hand(t, snapshot.Update{Type: eds, Origin: "origin", Version: "v7"})
		equal(t, "version", b.State().Snapshot(eds).Version, "v7")
		equal(t, "a", a.woken(), 0)
		equal(t, "b", b.woken(), 0)
		// Content that equals the held one makes no State.
		s = b.State()
		f.hand(t, snapshot.Update{Type: eds, Origin: "origin", Version: "v7", Changed: []*xds.Resource{s.Snapshot(eds).Resource("x")}})
		equal(t, "nothing new", b.State(), s)
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

// A client that comes with its key does not go through the rules.
func TestClientWithItsKey(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		key := xds.NewKey("a", "key")
		s, err := w.reg.Join(subscriber.Info{Node: w.node(&corev3.Node{Cluster: "web"}), Key: key}).Subscribe(cds, &testClient{w: w})
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "key", s.Key(), key)
		equal(t, "keys", keysOf(w), key.String())
	})
}
