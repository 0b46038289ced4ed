package orchestrator

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/store"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// relay joins as another relay of the cluster, with a key.
func (w *registryFixture) relay(key string, typ xds.TypeURL) (*testClient, error) {
	c := &testClient{w: w}
	c.joined = w.reg.Join(subscriber.Info{Node: w.node(&corev3.Node{Id: "from-" + key, Cluster: "unmapped"}), Relay: true, Key: xds.NewKey(key), End: c.End})
	s, err := c.joined.Subscribe(typ, c)
	c.Subscriber = s
	synctest.Wait()
	return c, err
}

func (w *registryFixture) mustRelay(key string, typ xds.TypeURL) *testClient {
	w.t.Helper()
	c, err := w.relay(key, typ)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// responded says that the origin has answered on a new stream.
func (f *feed) responded() {
	f.reached()
	f.sink.Status(upstream.Status{Connected: true, Responded: true, Origin: "origin"})
	synctest.Wait()
}

// relayed hands over an update that another relay brought.
func (f *feed) relayed(t testing.TB, typ xds.TypeURL, name, value string) {
	t.Helper()
	f.hand(t, snapshot.Update{Type: typ, Origin: "member", Relayed: true, Wildcard: true, Partial: true, Received: time.Now(),
		Changed: []*xds.Resource{resource(t, typ, name, value)}})
}

// Another relay sees what origins said, and nothing that a relay brought.
func TestRelays_SeeWhatOriginsSaid(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		c, r := w.join("web", cds).want("*"), w.mustRelay("web", cds).want("*")
		f := w.feed("web")
		f.reached()
		f.relayed(t, cds, "a", "1")
		equal(t, "the client", c.sees(subscription("*"), "a"), "1")
		equal(t, "the relay, of what a relay brought", r.sees(subscription("*"), "a"), "?")
		r.woken()
		f.update(t, cds, true, "a=1") // an equal resource
		equal(t, "the relay, of what the origin said", r.sees(subscription("*"), "a"), "1")
		equal(t, "the relay is woken", r.woken() > 0, true)
		f.relayed(t, cds, "a", "2")
		equal(t, "the client, then", c.sees(subscription("*"), "a"), "2")
		equal(t, "the relay, then", r.sees(subscription("*"), "a"), "?")
	})
}

// What a relay brought has waited for Settle there. It does not wait again.
func TestRelays_SettleOnce(t *testing.T) {
	bubble(t, func(o *Options) { o.Settle = time.Hour }, func(w *registryFixture) {
		c := w.join("web", cds).want("*")
		f := w.feed("web")
		f.sink.Status(upstream.Status{Connected: true, Relayed: true, Stream: 7, OpenedAt: time.Now()})
		f.relayed(t, cds, "a", "1") // a first answer is urgent
		f.relayed(t, cds, "a", "2")
		equal(t, "of a relay", c.sees(subscription("*"), "a"), "2")
		f.sink.Status(upstream.Status{Connected: true, Stream: 8, OpenedAt: time.Now()})
		f.update(t, cds, true, "a=2")
		f.update(t, cds, true, "a=3")
		equal(t, "of an origin", c.sees(subscription("*"), "a"), "2")
	})
}

// wokenBy is a subscriber.Waker.
type wokenBy func()

func (f wokenBy) Wake() { f() }

// The first answer of an origin may come in the step in which the group learns of its stream. Not even
// within this step does a relay see what another relay brought before.
func TestRelays_SeeNothingOfTheSourceBefore(t *testing.T) {
	w := newRegistryFixture(t, options(t))
	g, _ := w.manual(eds)
	h, sub, saw := g.firstUpstream(), subscription("a"), ""
	_, relay := w.subscriber(g, eds)
	relay.relay = true
	relay.waker = wokenBy(func() {
		if r, is := relay.State().Snapshot(eds).Look(sub, "a"); is == snapshot.Present {
			saw += contentOf(r)
		}
	})
	g.post(relay, func(c *changes) { c.sub = relay.Intern(sub) })
	bring := func(value string, s upstream.Status) {
		s.Connected, s.Responded, s.OpenedAt = true, true, time.Now()
		h.Status(s)
		g.apply(update{snapshot.Update{Type: eds, Relayed: s.Relayed, Changed: []*xds.Resource{resource(t, eds, "a", value)}}, h, make(chan bool, 1), nil})
		g.step(time.Now())
	}
	g.step(time.Now())
	bring("1", upstream.Status{Stream: 7, Relayed: true})
	bring("2", upstream.Status{Stream: 8})
	equal(t, "what the relay saw", strings.Trim(saw, "2"), "")
	equal(t, "it saw the origin's", saw != "", true)
}

// Once the stream to the origin is another one, a relay sees nothing until the origin has answered on
// it: what this relay has may be older than what the other one has. Names count as answered after a
// while, and a wildcard that comes in parts once it is complete.
func TestRelays_WaitForTheNextStream(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		r := w.mustRelay("web", cds).want("*")
		f := w.feed("web")
		f.reached()
		f.update(t, cds, true, "a=1")
		equal(t, "the relay", r.sees(subscription("*"), "a"), "1")
		f.sink.Status(upstream.Status{Connected: true, Stream: 99, OpenedAt: time.Now()})
		synctest.Wait()
		equal(t, "the relay, of the stream before", r.sees(subscription("*"), "a"), "?")
		f.hand(t, snapshot.Update{Type: cds, Origin: "o", Wildcard: true, Partial: true, Received: time.Now()})
		synctest.Wait()
		equal(t, "the relay, of a part", r.sees(subscription("*"), "a"), "?")
		r.woken()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		equal(t, "the relay, then", r.sees(subscription("*"), "a"), "1")
		equal(t, "the relay is woken", r.woken() > 0, true)
	})
}

// What another relay brings of a wildcard is complete. But it may have been too early to say that a
// resource is gone which a client has (P67).
func TestRelays_CompleteAnswers(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		c := w.join("web", cds).want("*")
		f := w.feed("web")
		f.sink.Status(upstream.Status{Connected: true, Relayed: true, Stream: 7, OpenedAt: time.Now()})
		f.relayed(t, cds, "a", "1")
		synctest.Wait()
		s := c.State().Snapshot(cds)
		equal(t, "complete", s.Complete, true)
		equal(t, "settled", s.Settled, false)
		time.Sleep(snapshot.WildcardWait)
		synctest.Wait()
		equal(t, "settled at last", c.State().Snapshot(cds).Settled, true)
	})
}

// When the origin's stream ends, relays drop its do_not_cache resources too (P63).
func TestRelays_EndWithUncacheableResources(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		c, r := w.join("web", cds).want("*"), w.mustRelay("web", cds).want("*")
		f := w.feed("web")
		f.reached()
		f.bring(t, cds, true, uncached(t, cds, "a", "1"))
		f.hand(t, snapshot.Update{Type: cds, Wildcard: true, Ended: true})
		equal(t, "the relay, and the client, are ended", fmt.Sprint(r.refusal() != nil, c.refusal() != nil), "true false")
	})
}

// What is stored is served to clients, and not to other relays.
func TestRelays_DoNotSeeWhatIsStored(t *testing.T) {
	dir := t.TempDir()
	keep(t, dir, "x=1")
	withStore(t, dir, func(w *registryFixture) {
		c, r := w.join("web", eds).want("x"), w.mustRelay("web", eds).want("x")
		f := w.feed("web")
		f.failed()
		equal(t, "the client", c.sees(subscription("x"), "x"), "1")
		equal(t, "the relay", r.sees(subscription("x"), "x"), "?")
	})
}

// A relay's ACK stores nothing, and a relay does not delay deletions.
func TestRelays_AreNoClients(t *testing.T) {
	dir := t.TempDir()
	withStore(t, dir, func(w *registryFixture) {
		r := w.mustRelay("web", cds).want("*")
		if _, err := r.joined.Subscribe(rds, r); err != nil {
			t.Fatal(err)
		}
		f := w.feed("web")
		f.reached()
		f.update(t, cds, true, "a=1")
		r.takes()
		w.reconfigured(func(s *Settings) { s.Limits.NamesPerKey, s.Limits.KeysPerPeer = 1, 1 })
		more := w.mustRelay("other", eds).want("x", "y", "z")
		synctest.Wait()
		equal(t, "refused for a limit", more.refusal() != nil, false)
		g := r.of().group
		equal(t, "stored", g.find(cds).storeWriter.newest.Load() == nil, true)
		equal(t, "counted as routed", g.routed.Load(), 0)
		equal(t, "node upstream", g.node.ID, "from-web")
		equal(t, "key", r.Key(), xds.NewKey("web"))
	})
}

// A key that another member owns is kept for linger, and the log says so.
func TestFollowedKeyIsKeptForLinger(t *testing.T) {
	var log bytes.Buffer
	bubble(t, func(o *Options) {
		o.Owns = func(xds.Key) bool { return false }
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
	}, func(w *registryFixture) {
		w.join("web", cds).want("*").leave()
		time.Sleep(w.reg.settings().Linger)
		synctest.Wait()
		equal(t, "keys", len(w.reg.Groups()), 0)
	})
	if !strings.Contains(log.String(), "no clients for upstream.linger, and another member owns it\" key=web linger=10s") {
		t.Error(log.String())
	}
}

// Once every origin has failed for a while, the relays of a key are ended with UNAVAILABLE, and others
// are refused until an origin serves the key. If nothing is held, that happens at once.
func TestRelays_EndWhenOriginsAreLost(t *testing.T) {
	for _, holds := range []bool{true, false} {
		bubble(t, func(o *Options) { o.Owns = func(xds.Key) bool { return false } }, func(w *registryFixture) {
			c, r := w.join("web", cds).want("*"), w.mustRelay("web", cds).want("*")
			f := w.feed("web")
			if holds {
				f.reached()
				f.update(t, cds, true, "a=1")
			}
			f.failed()
			equal(t, "ended at once", r.refusal() != nil, !holds)
			time.Sleep(originsLostFor)
			synctest.Wait()
			if got := r.refusal(); got == nil || got.Code != codes.Unavailable {
				t.Fatalf("the relay is ended with %v", got)
			}
			equal(t, "the client is ended", c.refusal() != nil, !holds)
			r.leave()
			f.sink.Status(upstream.Status{Connected: true, Relayed: true, Stream: 7, OpenedAt: time.Now()})
			synctest.Wait()
			if _, err := w.relay("web", cds); err == nil {
				t.Error("a relay is served what another relay brings")
			}
			time.Sleep(retryOriginsAfter)
			synctest.Wait()
			w.mustRelay("web", cds).leave() // so that this relay tries origins again
			f.failed()
			time.Sleep(originsLostFor)
			synctest.Wait()
			if _, err := w.relay("web", cds); err == nil {
				t.Error("a relay is served although origins failed again")
			}
			f.reached()
			if _, err := w.relay("web", cds); err == nil {
				t.Error("a relay is served before the origin has answered")
			}
			f.responded()
			w.mustRelay("web", cds)
		})
	}
}

// A relay that nobody asks for a key does not try origins. So it does not refuse other relays for ever:
// once one asks, it tries origins.
func TestRelays_AreNotRefusedForEver(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		r := w.mustRelay("web", cds).want("*")
		f := w.feed("web")
		f.failed()
		if r.refusal() == nil {
			t.Fatal("the relay is not refused")
		}
		r.leave()
		f.sink.Status(upstream.Status{Origin: "origin"}) // it waits for an interest
		time.Sleep(retryOriginsAfter - time.Second)
		synctest.Wait()
		if _, err := w.relay("web", cds); err == nil {
			t.Error("a relay is served at once")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		w.mustRelay("web", cds)
	})
}

// Names that the origin does not answer count as answered after a while, so that another relay gets a
// response.
func TestRelays_NamesWithoutAnAnswer(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		r := w.mustRelay("web", eds).want("x")
		f := w.feed("web")
		f.responded()
		time.Sleep(namesAnsweredBy - time.Second)
		synctest.Wait()
		equal(t, "a snapshot before", r.State().Snapshot(eds) != nil, false)
		r.woken()
		time.Sleep(time.Second)
		equal(t, "woken", r.woken(), 1)
		equal(t, "a snapshot then", r.State().Snapshot(eds) != nil, true)
		f.update(t, eds, false, "x=1")
		equal(t, "x", r.sees(subscription("x"), "x"), "1")
	})
}

// A relay that holds nothing asks other members before it refuses its clients, once for each outage.
// What an origin says then replaces the seed.
func TestP66_Seeds(t *testing.T) {
	for _, has := range []bool{true, false} {
		asked := 0
		edit := func(o *Options) {
			o.Seeds = func(context.Context, xds.Key) map[xds.TypeURL]*store.Stored {
				asked++
				time.Sleep(time.Second)
				if !has {
					return nil
				}
				b := snapshot.NewBuilder(xds.TypeOf(eds))
				b.ApplyStored(snapshot.Update{Type: eds, Origin: "origin", Received: time.Now(), Changed: []*xds.Resource{resource(t, eds, "x", "seed")}})
				s, _ := b.Snapshot(nil, 0)
				return map[xds.TypeURL]*store.Stored{eds: {Snapshot: s}}
			}
		}
		bubble(t, edit, func(w *registryFixture) {
			c := w.join("web", eds).want("x")
			f := w.feed("web")
			f.failed()
			equal(t, "refused while members are asked", c.refusal() != nil, false)
			time.Sleep(time.Second)
			equal(t, "refused then", c.refusal() != nil, !has)
			f.failed()
			equal(t, "asked", asked, 1)
			if !has {
				return
			}
			equal(t, "x", c.sees(subscription("x"), "x"), "seed")
			f.reached()
			f.update(t, eds, false, "x=1")
			equal(t, "x of the origin", c.sees(subscription("x"), "x"), "1")
		})
	}
}

// The younger of a seed and what is stored is served.
func TestP66_SeedOrStored(t *testing.T) {
	for what, c := range map[string]struct {
		age  time.Duration
		want string
	}{"younger": {0, "seed"}, "older": {time.Hour, "stored"}} {
		bubble(t, nil, func(w *registryFixture) {
			g, typ := w.manual(eds)
			made := func(value string, age time.Duration) *snapshot.Snapshot {
				b := snapshot.NewBuilder(typ.Type)
				b.ApplyStored(snapshot.Update{Type: eds, Received: time.Now().Add(-age), Changed: []*xds.Resource{resource(t, eds, "x", value)}})
				s, _ := b.Snapshot(nil, 0)
				return s
			}
			g.stored = map[xds.TypeURL]*store.Stored{eds: {Snapshot: made("stored", time.Minute)}}
			typ.content.SetStored(g.stored[eds].Snapshot)
			g.seeds.Store(&map[xds.TypeURL]*store.Stored{eds: {Snapshot: made("seed", c.age)}})
			g.takeSeeds()
			equal(t, what, contentOf(typ.content.Stored().Resource("x")), c.want)
		})
	}
}

// A seed has what is held, and no other relay's members are asked for it.
func TestP66_SeedForAnother(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		equal(t, "of an unknown key", len(w.reg.Seed(xds.NewKey("web"))), 0)
		w.join("web", cds).want("*")
		f := w.feed("web")
		equal(t, "before an answer", len(w.reg.Seed(xds.NewKey("web"))), 0)
		f.reached()
		f.part(t, cds, "a")
		equal(t, "of a part of an answer", len(w.reg.Seed(xds.NewKey("web"))), 0)
		f.update(t, cds, true, "a=1")
		f.failed()
		all := w.reg.Seed(xds.NewKey("web"))
		equal(t, "types", len(all), 1)
		equal(t, "a", contentOf(all[0].Resource("a")), "1")
	})
}
