package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/store"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// withStore runs f with a relay that has a store in dir. Then it writes everything that was put.
func withStore(t *testing.T, dir string, f func(w *registryFixture), edit ...func(*store.Options)) (log string) {
	t.Helper()
	return lifeOf(t, dir, options(t).Metrics, f, edit...)
}

func lifeOf(t *testing.T, dir string, m *telemetry.Metrics, f func(w *registryFixture), edit ...func(*store.Options)) (log string) {
	t.Helper()
	var said strings.Builder
	o := options(t)
	o.Metrics = m
	o.Log = slog.New(slog.NewTextHandler(&said, nil))
	synctest.Test(t, func(t *testing.T) {
		so := store.Options{Path: dir, Interval: time.Second, Metrics: &o.Metrics.Store, Log: o.Log}
		for _, e := range edit {
			e(&so)
		}
		s, err := store.Open(so)
		if err != nil {
			t.Fatal(err)
		}
		o.Store = s
		w := newRegistryFixture(t, o)
		stop := xdstest.Run(t, func(ctx context.Context) error { return s.Run(ctx, context.Background(), w.reg.StoreEntries) })
		w.run()
		defer w.stop()
		defer stop()
		f(w)
	})
	return said.String()
}

func (f *feed) reached() {
	f.sink.Status(upstream.Status{Connected: true, Origin: "origin"})
	synctest.Wait()
}

func (f *feed) failed() {
	f.sink.Status(upstream.Status{Origin: "origin", Failed: true, Err: errors.New("connection refused")})
	synctest.Wait()
}

// takes acknowledges everything that the client sees.
func (c *testClient) takes() {
	synctest.Wait()
	c.acks(c.of().typ)
}

func (w *registryFixture) stale(key string) (types []string) {
	w.t.Helper()
	synctest.Wait()
	s := w.status(key)
	for _, of := range s.Types {
		if snap := s.State.Snapshot(of.Type.URL); snap != nil && snap.Stale {
			types = append(types, of.Type.Short)
		}
	}
	return types
}

// keep makes the store in dir hold endpoints of the key "web".
func keep(t *testing.T, dir string, what ...string) {
	t.Helper()
	var names []string
	for _, s := range what {
		name, _, _ := strings.Cut(s, "=")
		names = append(names, name)
	}
	withStore(t, dir, func(w *registryFixture) {
		c := w.join("web", eds).want(names...)
		f := w.feed("web")
		f.reached()
		f.update(t, eds, false, what...)
		c.takes()
	})
}

func withState(names ...string) *snapshot.Subscription {
	s := subscription(names...)
	s.Resumes = true
	return s
}

// A relay that starts while no origin is reachable serves the newest generation that a client
// acknowledged, marked as stale. The origin's answers replace it name by name.
func TestP66_StoredIsServedWhileTheOriginIsAway(t *testing.T) {
	dir := t.TempDir()
	withStore(t, dir, func(w *registryFixture) {
		a, b := w.join("web", cds).want("*"), w.join("web", eds).want("x", "y")
		f := w.feed("web")
		f.reached()
		f.update(t, cds, true, "c=1", "d=1")
		f.update(t, eds, false, "x=1", "y=1")
		a.takes()
		b.takes()
		time.Sleep(2 * time.Second)
		f.update(t, cds, true, "c=2", "d") // no client acknowledges this
		f.update(t, eds, false, "y=2")
	})
	metrics := options(t).Metrics
	log := lifeOf(t, dir, metrics, func(w *registryFixture) {
		a, b := w.join("web", cds).want("*"), w.join("web", eds).want("x")
		f := w.feed("web")
		synctest.Wait()
		if a.State() != nil {
			t.Error("the store is served though the origin may be reachable")
		}
		if s := f.sink.Newest(cds); s.Len() != 2 || !s.Part(snapshot.ByWildcard).Answered() {
			t.Errorf("%d stored resources are listed upstream", s.Len())
		}
		f.failed()
		equal(t, "c", a.sees(subscription("*"), "c"), "1")
		equal(t, "d, whose deletion no client acknowledged", a.sees(subscription("*"), "d"), "1")
		equal(t, "x", b.sees(subscription("x"), "x"), "1")
		b.want("x", "y")
		equal(t, "y, requested later", b.sees(subscription("y"), "y"), "1")
		equal(t, "x to a client with state", b.sees(withState("x"), "x"), "?")
		if a.refusal() != nil || b.refusal() != nil {
			t.Error("a stream was ended")
		}
		equal(t, "stale types", strings.Join(w.stale("web"), " "), "CDS EDS")
		if s := a.State().Snapshot(cds); !s.Stale || s.Origin != "origin" || s.Received.IsZero() {
			t.Errorf("stale %v, of %q, received %v", s.Stale, s.Origin, s.Received)
		}

		f.reached()
		f.update(t, cds, true, "c=1")
		equal(t, "stale types", strings.Join(w.stale("web"), " "), "CDS EDS") // the origin has not answered for d
		f.update(t, cds, true, "d")
		equal(t, "d", a.sees(subscription("*"), "d"), "-")
		equal(t, "stale types", strings.Join(w.stale("web"), " "), "EDS")
		f.update(t, eds, false, "x=1", "y=2")
		equal(t, "x to a client with state", b.sees(withState("x"), "x"), "1")
		equal(t, "stale types", strings.Join(w.stale("web"), " "), "")
	})
	if !strings.Contains(log, "served from the last known good: no origin answers") || strings.Contains(log, "the relay has none of the requested resources") ||
		strings.Count(log, "last known good: the origin has responded") != 1 {
		t.Errorf("log: %s", log)
	}
	equal(t, "stale types at the end", metrics.Stale.Value(), 0)
}

// The store is served once the open stream has had no response for first_answer_timeout.
func TestP66_StoredIsServedWhileTheOriginIsSilent(t *testing.T) {
	dir := t.TempDir()
	keep(t, dir, "x=1")
	log := withStore(t, dir, func(w *registryFixture) {
		b := w.join("web", eds).want("x")
		f := w.feed("web")
		f.reached()
		pass(14 * time.Second)
		if b.State() != nil {
			t.Error("the store is served before first_answer_timeout")
		}
		pass(2 * time.Second)
		equal(t, "x", b.sees(subscription("x"), "x"), "1")
		f.update(t, eds, false, "x=2")
		equal(t, "x", b.sees(subscription("x"), "x"), "2")
		b.takes()
	})
	if !strings.Contains(log, "served from the last known good: the origin does not respond") {
		t.Errorf("log: %s", log)
	}
}

// A stream is refused only if no origin is reachable and nothing that it wants is held, answered or
// stored. The subscriptions of the key's other clients do not matter (P16).
func TestP16_P53_RefusalDependsOnTheSubscription(t *testing.T) {
	dir := t.TempDir()
	keep(t, dir, "x=1")
	log := withStore(t, dir, func(w *registryFixture) {
		first := w.join("web", eds).want("unknown")
		f := w.feed("web")
		synctest.Wait()
		equal(t, "refused before an attempt failed", first.refusal() != nil, false)
		f.failed()
		r := first.refusal()
		if r == nil || !strings.Contains(r.Error(), "key web: the relay has none of the requested resources, and no origin answers: origin origin: connection refused") {
			t.Errorf("refusal %v", r)
		}
		equal(t, "key that is why", r.Key, "web")
		first.leave()
		second := w.join("web", eds)
		equal(t, "refused before it asks", second.refusal() != nil, false)
		second.want("x", "unknown")
		equal(t, "x", second.sees(subscription("x"), "x"), "1")
		equal(t, "refused though x is stored", second.refusal() != nil, false)
		stateful := w.join("web", eds)
		stateful.Request(stateful.Intern(withState("x")))
		equal(t, "a client with state is refused though x is stored", stateful.refusal() != nil, false)
		third := w.join("web", xds.RouteType).want("r")
		equal(t, "another type is refused", third.refusal() != nil, true)
		f.failed()
		f.reached()
		fourth := w.join("web", xds.RouteType).want("r")
		equal(t, "refused though the origin can be reached", fourth.refusal() != nil, false)
	})
	equal(t, "told", strings.Count(log, "the relay has none of the requested resources"), 1)
}

// store.max_age bounds the age of what is served, including what was read before.
func TestP66_TooOldIsNotServed(t *testing.T) {
	dir := t.TempDir()
	keep(t, dir, "x=1")
	for _, age := range []time.Duration{0, 2 * time.Hour, time.Hour, time.Minute} {
		withStore(t, dir, func(w *registryFixture) {
			pass(30 * time.Minute) // each life restarts the fake clock
			a := w.join("web", eds).want("x")
			f := w.feed("web")
			if age == time.Hour { // the origin answers another type
				w.join("web", cds).want("*")
				f.reached()
				f.update(t, cds, true, "c=1")
				pass(31 * time.Minute)
			}
			f.failed()
			served := age == 0 || age == 2*time.Hour
			equal(t, "refused", a.refusal() != nil, !served)
		}, func(o *store.Options) { o.MaxAge = age })
	}
}

// slowStore is a store that takes a while to read a key.
type slowStore struct {
	Store
	takes time.Duration
}

func (s slowStore) Load(ctx context.Context, key xds.Key) map[xds.TypeURL]*store.Stored {
	time.Sleep(s.takes) // fake time
	return s.Store.Load(ctx, key)
}

// withSlowStore runs f with a relay whose store has endpoint x=1 of the key "web", and takes a
// while to read it.
func withSlowStore(t *testing.T, takes time.Duration, f func(w *registryFixture)) {
	dir := t.TempDir()
	keep(t, dir, "x=1")
	withStore(t, dir, func(w *registryFixture) {
		w.reg.opts.Store = slowStore{w.reg.opts.Store, takes}
		f(w)
	})
}

// The streams of a new key wait for the store, so that their first requests list what is stored.
func TestP66_StoreIsReadBeforeTheFirstStream(t *testing.T) {
	withSlowStore(t, 900*time.Millisecond, func(w *registryFixture) {
		w.join("web", eds).want("x", "*")
		pass(800 * time.Millisecond)
		equal(t, "open streams", len(w.streams("web")), 2)
		for _, f := range w.streams("web") {
			equal(t, "a stream runs before the store was read", f.alive(), false)
		}
		pass(200 * time.Millisecond)
		for _, f := range w.streams("web") {
			equal(t, "a stream runs", f.alive(), true)
			equal(t, "the stream lists x", f.sink.Newest(eds).Resource("x") != nil, true)
		}
	})
}

// A slow store delays the streams of a new key by a second at most, and no client of a healthy
// origin longer than that.
func TestP66_SlowStoreDelaysNoOrigin(t *testing.T) {
	withSlowStore(t, time.Minute, func(w *registryFixture) {
		a, b := w.join("web", cds).want("*"), w.join("web", eds).want("x", "*")
		pass(900 * time.Millisecond)
		equal(t, "a stream runs", w.feed("web").alive(), false)
		pass(100 * time.Millisecond)
		f, second := w.feed("web"), w.second("web")
		equal(t, "the first stream runs", f.alive(), true)
		equal(t, "the second stream runs", second.alive(), true)
		f.reached()
		f.update(t, cds, true, "c=1")
		equal(t, "c", a.sees(subscription("*"), "c"), "1")
		pass(time.Minute)
		f.failed()
		second.failed()
		equal(t, "x, which was read meanwhile", b.sees(subscription("x"), "x"), "1")
	})
}

// While the store is being read, no client is refused because an attempt failed: the store may have
// what it wants. It is refused after first_answer_timeout, and accepted again once the store was
// read.
func TestP53_P66_NoRefusalWhileTheStoreIsRead(t *testing.T) {
	withSlowStore(t, 20*time.Second, func(w *registryFixture) {
		x, y := w.join("web", eds).want("x"), w.join("web", eds).want("y")
		pass(time.Second)
		w.feed("web").failed()
		pass(13 * time.Second)
		equal(t, "x is refused", x.refusal() != nil, false)
		equal(t, "y is refused", y.refusal() != nil, false)
		pass(2 * time.Second)
		equal(t, "y is refused after first_answer_timeout", y.refusal() != nil, true)
		pass(5 * time.Second)
		again := w.join("web", eds).want("x")
		equal(t, "a new client is refused", again.refusal() != nil, false)
		equal(t, "x", again.sees(subscription("x"), "x"), "1")
		equal(t, "the first client is still refused", x.of().refused, false)
	})
}

// An acknowledged generation is stored even while the origin leaves another name unanswered, which
// is served from the store.
func TestP66_StoredBesideAnUnansweredName(t *testing.T) {
	dir := t.TempDir()
	keep(t, dir, "q=1", "x=1")
	withStore(t, dir, func(w *registryFixture) {
		c := w.join("web", eds).want("q", "x")
		f := w.feed("web")
		f.failed()
		equal(t, "q", c.sees(subscription("q"), "q"), "1")
		f.reached()
		f.update(t, eds, false, "x=2")
		c.takes()
	})
	withStore(t, dir, func(w *registryFixture) {
		c := w.join("web", eds).want("q", "x")
		w.feed("web").failed()
		equal(t, "x", c.sees(subscription("x"), "x"), "2")
		equal(t, "q", c.sees(subscription("q"), "q"), "1")
	})
}

// puts is a store that counts the calls of Put.
type puts struct {
	Store
	n int
}

func (p *puts) Put(key xds.Key, typ xds.TypeURL, s *snapshot.Snapshot) {
	p.n++
	p.Store.Put(key, typ, s)
}

// A generation that comes from the store is stored again only once the origin has answered, even if
// a client acknowledges it before.
func TestP66_StoredIsNotStoredAgain(t *testing.T) {
	dir := t.TempDir()
	keep(t, dir, "x=1")
	withStore(t, dir, func(w *registryFixture) {
		p := &puts{Store: w.reg.opts.Store}
		w.reg.opts.Store = p
		c := w.join("web", eds).want("x")
		f := w.feed("web")
		f.failed()
		equal(t, "x", c.sees(subscription("x"), "x"), "1")
		c.takes()
		equal(t, "puts before the origin answers", p.n, 0)
		f.reached()
		f.update(t, eds, false, "x=1")
		c.takes()
		equal(t, "puts after it", p.n, 1)
	})
}

// A heartbeat makes a generation with the same content. It is not stored again.
func TestP66_HeartbeatsAreNotStored(t *testing.T) {
	withStore(t, t.TempDir(), func(w *registryFixture) {
		p := &puts{Store: w.reg.opts.Store}
		w.reg.opts.Store = p
		c := w.join("web", eds).want("a", "b")
		f := w.feed("web")
		f.reached()
		f.bring(t, eds, false, living(t, eds, "a", "1", time.Minute), resource(t, eds, "b", "1"))
		c.takes()
		first := c.State().Snapshot(eds)
		for range 3 {
			pass(time.Second)
			f.bring(t, eds, false, first.Resource("a").StartTTL(time.Now()))
			c.takes()
		}
		if gen := c.State().Snapshot(eds).Gen; p.n != 1 || gen == first.Gen {
			t.Errorf("put %d times, generation %d after %d", p.n, gen, first.Gen)
		}
		f.update(t, eds, false, "b=2")
		c.takes()
		equal(t, "puts", p.n, 2)
	})
}

// A slow client acknowledges a generation that is older than the stored one. It is not stored.
func TestP66_OlderIsNotStored(t *testing.T) {
	withStore(t, t.TempDir(), func(w *registryFixture) {
		p := &puts{Store: w.reg.opts.Store}
		w.reg.opts.Store = p
		fast, slow := w.join("web", eds).want("a"), w.join("web", eds).want("a")
		f := w.feed("web")
		f.reached()
		f.update(t, eds, false, "a=1")
		synctest.Wait()
		older := slow.State().Snapshot(eds)
		f.update(t, eds, false, "a=2")
		fast.takes()
		slow.Acked(older.Gen, older)
		equal(t, "puts", p.n, 1)
		equal(t, "newest", fast.of().storeWriter.Load().newest.Load().Gen, fast.State().Snapshot(eds).Gen)
	})
}
