package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"xdsrelay/internal/store"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// life is one of a relay with a store in dir: f, and then all that is to be written
// is.
func life(t *testing.T, dir string, f func(w *world), edit ...func(*store.Options)) (log string) {
	t.Helper()
	return lifeOf(t, dir, options(t).Metrics, f, edit...)
}

func lifeOf(t *testing.T, dir string, m *telemetry.Metrics, f func(w *world), edit ...func(*store.Options)) (log string) {
	t.Helper()
	var said strings.Builder
	bubbleWith(t, func(t *testing.T, o *Options) func() {
		o.Metrics = m
		o.Log = slog.New(slog.NewTextHandler(&said, nil))
		so := store.Options{Path: dir, Interval: time.Second, Metrics: &o.Metrics.Store, Log: o.Log}
		for _, e := range edit {
			e(&so)
		}
		s, err := store.Open(so)
		if err != nil {
			t.Fatal(err)
		}
		o.Store = &counted{Store: s}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- s.Run(ctx, context.Background()) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}, f)
	return said.String()
}

// counted is a store that counts what is read.
type counted struct {
	*store.Store
	n atomic.Int64
}

func (c *counted) Load(key xds.Key, typ xds.TypeURL) (*store.Record, error) {
	c.n.Add(1)
	return c.Store.Load(key, typ)
}

func (w *world) loads() int64 {
	synctest.Wait()
	return w.reg.opts.Store.(*counted).n.Load()
}

// bubbleWith is bubble with something that runs beside the registry, and ends before it.
func bubbleWith(t *testing.T, begin func(*testing.T, *Options) (end func()), f func(w *world)) {
	t.Helper()
	o := options(t)
	synctest.Test(t, func(t *testing.T) {
		end := begin(t, &o)
		w := newWorld(t, o)
		w.run()
		defer w.stop()
		defer end()
		f(w)
	})
}

func (f *feed) reached() {
	f.sink.Status(upstream.Status{Connected: true, Origin: "origin"})
	synctest.Wait()
}

func (f *feed) failed() {
	f.sink.Status(upstream.Status{Origin: "origin", Failed: true, Err: errors.New("connection refused"), Attempts: 1})
	synctest.Wait()
}

// takes is an ACK of all that the client sees.
func (c *client) takes(names ...string) {
	synctest.Wait()
	s := c.State().Snapshot(c.of().typ)
	news := false
	for _, n := range names {
		if n == "*" {
			news = c.Good().TakeAll(s) || news
			continue
		}
		r, is := s.Look(subscription(names...), n)
		if is != xds.Present {
			c.w.t.Fatalf("%s is not there to be taken", n)
		}
		news = c.Good().Take(new(xds.Receipt), s.Gen, []xds.Took{{Resource: r}}, false) || news
	}
	if news {
		c.Improved()
	}
	synctest.Wait()
}

func (w *world) stale(key string) (types []string) {
	w.t.Helper()
	for _, k := range w.reg.Keys() {
		for _, ty := range k.Types {
			if k.Key == key && ty.Stale {
				types = append(types, ty.Short)
			}
		}
	}
	return types
}

// A relay that starts while the origin is away serves what clients acknowledged in
// its life before, and says that it is stale; when the origin answers, that counts,
// and nobody is told what is equal.
func TestP53_LastKnownGood(t *testing.T) {
	dir := t.TempDir()
	life(t, dir, func(w *world) {
		a, b := w.join("web", cds).want("*"), w.join("web", eds).want("x", "y")
		f := w.feed("web")
		f.reached()
		f.update(t, cds, true, "c=1", "d=1")
		f.update(t, eds, false, "x=1", "y=1")
		a.takes("*")
		b.takes("x", "y")
		time.Sleep(2 * time.Second)
		f.update(t, cds, true, "c=2", "d") // which nobody takes
		f.update(t, eds, false, "y=2")
	})
	log := life(t, dir, func(w *world) {
		a, b := w.join("web", cds).want("*"), w.join("web", eds).want("x")
		f := w.feed("web")
		synctest.Wait()
		if a.State() != nil {
			t.Error("something is served though the origin may be there")
		}
		f.failed()
		equal(t, "c", a.sees(subscription("*"), "c"), "1")
		equal(t, "d, whose removal nobody took", a.sees(subscription("*"), "d"), "1")
		equal(t, "x", b.sees(subscription("x"), "x"), "1")
		b.want("x", "y")
		equal(t, "y, asked for later", b.sees(subscription("y"), "y"), "1")
		late := w.join("web", eds).want("x")
		equal(t, "x to a late joiner", late.sees(subscription("x"), "x"), "1")
		if a.refusal() != nil || b.refusal() != nil {
			t.Error("a stream was ended")
		}
		equal(t, "stale types", strings.Join(w.stale("web"), " "), "CDS EDS")
		if s := a.State().Snapshot(cds); !s.Stale || s.Origin != "origin" || s.Received.IsZero() {
			t.Errorf("stale %v, of %q, received %v", s.Stale, s.Origin, s.Received)
		}

		f.reached()
		_, _ = a.woken(), b.woken()
		f.update(t, cds, true, "c=1")
		equal(t, "told what is equal", a.woken(), 0)
		equal(t, "stale types", strings.Join(w.stale("web"), " "), "CDS EDS") // of d the origin has not spoken
		f.update(t, cds, true, "d")
		equal(t, "told that d is gone", a.woken(), 1)
		equal(t, "stale types", strings.Join(w.stale("web"), " "), "EDS")
		f.update(t, eds, false, "x=1")
		equal(t, "told what is equal", b.woken(), 0)
		if f.sink.(*link).group.recall.served.IsZero() {
			t.Error("it is told that the origin's word is served, though y is stale")
		}
		f.update(t, eds, false, "y=2")
		equal(t, "told what is not", b.woken(), 1)
		equal(t, "stale types", strings.Join(w.stale("web"), " "), "")
		f.update(t, eds, false, "y=3")
		f.failed() // which takes nothing from anybody
		f.reached()
		f.update(t, eds, false, "y=4")
	})
	if n := strings.Count(log, "any more: the origin has spoken"); n != 1 {
		t.Errorf("that the origin's word is served again is told %d times", n)
	}
	if !strings.Contains(log, "served from the last known good") || strings.Contains(log, "clients are refused") {
		t.Errorf("log: %s", log)
	}
}

// What the wildcard brought counts more than what is on disk by name: that may be from
// long before, and who asks by name is given the wildcard's copy meanwhile (P50).
func TestP53_TheWildcardsCopyIsNotTakenBack(t *testing.T) {
	dir := t.TempDir()
	life(t, dir, func(w *world) {
		b := w.join("web", cds).want("c")
		f := w.feed("web")
		f.reached()
		f.update(t, cds, false, "c=1")
		b.takes("c")
	})
	life(t, dir, func(w *world) {
		a := w.join("web", cds).want("*")
		f := w.feed("web")
		f.reached()
		f.update(t, cds, true, "c=2")
		a.takes("*")
		f.failed()
		b := w.join("web", cds).want("c")
		synctest.Wait()
		equal(t, "c by name", b.sees(subscription("c"), "c"), "2")
	})
	life(t, dir, func(w *world) {
		a, b := w.join("web", cds).want("*"), w.join("web", cds).want("c")
		w.feed("web").failed()
		equal(t, "c", a.sees(subscription("*"), "c"), "2")
		equal(t, "c by name", b.sees(subscription("c"), "c"), "2")
	})
}

// What nobody acknowledged is not served, nor what is of another key; then clients
// are refused as if there were no store.
func TestP53_NothingGoodIsNothing(t *testing.T) {
	dir := t.TempDir()
	life(t, dir, func(w *world) {
		w.join("web", eds).want("x")
		f := w.feed("web")
		f.reached()
		f.update(t, eds, false, "x=1")
		other := w.join("db", eds).want("x")
		f = w.feed("db")
		f.reached()
		f.update(t, eds, false, "x=db")
		other.takes("x")
	})
	life(t, dir, func(w *world) {
		a := w.join("web", eds).want("x")
		w.feed("web").failed()
		if a.refusal() == nil {
			t.Error("the stream was not ended, though nothing is good")
		}
		b := w.join("db", eds).want("x")
		w.feed("db").failed()
		equal(t, "the other key", b.sees(subscription("x"), "x"), "db")
	})
}

// A stream that opens while the last known good is taken over may have asked without
// it: that does not count then, and the origin's word is waited for. If the stream
// comes to nothing, it does.
func TestP53_RecalledTooLate(t *testing.T) {
	w := newWorld(t, options(t))
	w.reg.opts.Store = noStore{}
	g := newGroup(w.reg, xds.NewKey("web"), w.node(&corev3.Node{Id: "n"}))
	v := newView(xds.TypeOf(cds), new(telemetry.Type), new(past))
	v.wildcard, v.wildAt = true, g.home()
	g.setViews([]*view{v})
	g.away = true
	g.recall.due = true
	g.recall.records = map[xds.TypeURL]*remembered{cds: remember(&store.Record{
		Key: g.key, Type: cds, Origin: "origin", Wildcard: true, Entries: []store.Entry{{Resource: resource(t, cds, "c", "1"), Wild: true}},
	}, time.Time{}, false)}
	held := func(want int) {
		t.Helper()
		if s := v.held.Load(); s.Len() != want || s.Stale != (want > 0) || s.Answered != (want > 0) {
			t.Errorf("%d resources are held, stale %v, answered %v", s.Len(), s.Stale, s.Answered)
		}
	}
	g.home().Status(upstream.Status{Connected: true})
	g.recallAway(time.Now())
	held(0)
	g.home().Status(upstream.Status{Failed: true})
	g.recallAway(time.Now())
	held(1)
}

// noStore has nothing.
type noStore struct{}

func (noStore) Touch(xds.Key, xds.TypeURL, store.Source)         {}
func (noStore) Release(xds.Key, xds.TypeURL, store.Source)       {}
func (noStore) Expires(*store.Record) (time.Time, bool)          { return time.Time{}, false }
func (noStore) Has(xds.Key, xds.TypeURL) bool                    { return false }
func (noStore) TooOld(xds.Key, xds.TypeURL) bool                 { return false }
func (noStore) Load(xds.Key, xds.TypeURL) (*store.Record, error) { return nil, nil }
func (noStore) Seed(xds.Key, xds.TypeURL) (*store.Record, error) { return nil, nil }

// With max_age what was confirmed longer ago is not served.
func TestP53_TooOldIsNothing(t *testing.T) {
	dir := t.TempDir()
	life(t, dir, func(w *world) {
		a := w.join("web", eds).want("x")
		w.feed("web").reached()
		w.feed("web").update(t, eds, false, "x=1")
		a.takes("x")
	})
	for _, age := range []time.Duration{0, time.Hour, time.Minute} {
		life(t, dir, func(w *world) {
			time.Sleep(30 * time.Minute) // a bubble's clock begins anew
			a := w.join("web", eds).want("x")
			w.feed("web").failed()
			equal(t, "refused", a.refusal() != nil, age == time.Minute)
			if r := a.refusal(); r != nil && !strings.Contains(r.Error(), "key web: what was held is older than store.max_age, and no origin can be reached") {
				t.Error(r)
			}
		}, func(o *store.Options) { o.MaxAge = age })
	}
}

// Secrets are written nowhere, and read from nowhere (P6); what is not to be cached
// is not kept either (P63).
func TestP6_P63_SecretsAreNotKept(t *testing.T) {
	dir := t.TempDir()
	life(t, dir, func(w *world) {
		a := w.join("web", xds.SecretType).want("s")
		w.feed("web").reached()
		w.feed("web").update(t, xds.SecretType, false, "s=hush")
		if a.Good() != nil {
			t.Error("it is noted who took Secrets")
		}
	})
	if files, _ := filepath.Glob(filepath.Join(dir, "*.good")); len(files) > 0 {
		t.Errorf("files: %v", files)
	}
}

// A relay that starts while the origin is there does not lose what is on disk before
// its clients are back; what the origin says meanwhile counts once it is taken.
func TestP53_GoodSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	begin := func(w *world, names ...string) (*client, *feed) {
		a := w.join("web", eds).want(names...)
		f := w.feed("web")
		f.reached()
		return a, f
	}
	life(t, dir, func(w *world) {
		a, f := begin(w, "x", "y", "z")
		f.update(t, eds, false, "x=1", "y=1", "z=1")
		a.takes("x", "y", "z")
	})
	life(t, dir, func(w *world) {
		a, f := begin(w, "x", "y")
		f.update(t, eds, false, "x=2", "y=2")
		a.takes("x")
		time.Sleep(2 * time.Second)
	})
	life(t, dir, func(w *world) {
		a := w.join("web", eds).want("x", "y", "z")
		w.feed("web").failed()
		for name, want := range map[string]string{"x": "2", "y": "1", "z": "1"} {
			equal(t, name, a.sees(subscription("x", "y", "z"), name), want)
		}
	})
}

// A file that is damaged is nothing, and is told of.
func TestP53_DamagedIsNothing(t *testing.T) {
	dir := t.TempDir()
	life(t, dir, func(w *world) {
		a := w.join("web", eds).want("x")
		w.feed("web").reached()
		w.feed("web").update(t, eds, false, "x=1")
		a.takes("x")
	})
	files, err := filepath.Glob(filepath.Join(dir, "*.good"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files: %v, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(files[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	log := life(t, dir, func(w *world) {
		a := w.join("web", eds).want("x")
		w.feed("web").failed()
		if a.refusal() == nil {
			t.Error("the stream was not ended")
		}
	})
	if !strings.Contains(log, files[0]) || !strings.Contains(log, "key=web type="+string(eds)) {
		t.Errorf("the file is not named, or of what it is: %s", log)
	}
}

// What replaces all of a type, and nobody has taken, leaves what is on disk as it is:
// a set with holes would say that the rest is gone.
func TestP53_AnAnswerIsKeptAsAWhole(t *testing.T) {
	dir := t.TempDir()
	life(t, dir, func(w *world) {
		a := w.join("web", cds).want("*")
		f := w.feed("web")
		f.reached()
		f.update(t, cds, true, "a=1", "b=1")
		a.takes("*")
		f.update(t, cds, true, "a", "b", "c=1", "d=1") // before it is written, and refused
		time.Sleep(2 * time.Second)
		a.Improved()
	})
	life(t, dir, func(w *world) { // an origin that begins with nothing, and answers half
		w.join("web", cds).want("*")
		f := w.feed("web")
		f.reached()
		f.update(t, cds, true)
		f.update(t, cds, true, "c=1")
		time.Sleep(2 * time.Second)
	})
	life(t, dir, func(w *world) {
		a := w.join("web", cds).want("*")
		w.feed("web").failed()
		equal(t, "a", a.sees(subscription("*"), "a"), "1")
		equal(t, "b", a.sees(subscription("*"), "b"), "1")
		equal(t, "c, which nobody took", a.sees(subscription("*"), "c"), "-")
	})
}

// Of an answer with something that is not to be stored, what is left would say that
// it is gone: nothing of it is served.
func TestP62_P63_AnAnswerWithHolesIsNotKept(t *testing.T) {
	dir := t.TempDir()
	life(t, dir, func(w *world) {
		a := w.join("web", cds).want("*")
		f := w.feed("web")
		f.reached()
		f.hand(t, xds.Update{Type: cds, Origin: "origin", Wildcard: true, Received: time.Now(),
			Changed: []*xds.Resource{resource(t, cds, "a", "1"), resource(t, cds, "b", "1").Renew(time.Hour, time.Now())}})
		a.takes("*")
	})
	life(t, dir, func(w *world) {
		a := w.join("web", cds).want("*")
		w.feed("web").failed()
		if a.refusal() == nil {
			t.Error("a part of an answer is served")
		}
	})
}

// While no origin is there, what was good stays so for as long as that takes.
func TestP53_ALongOutageLosesNothing(t *testing.T) {
	dir := t.TempDir()
	life(t, dir, func(w *world) {
		b := w.join("web", eds).want("x", "y")
		f := w.feed("web")
		f.reached()
		f.update(t, eds, false, "x=1", "y=1")
		b.takes("x", "y")
	})
	life(t, dir, func(w *world) {
		b := w.join("web", eds).want("x")
		w.feed("web").failed()
		time.Sleep(24 * time.Hour)
		b.takes("x")
		b.Improved()
		time.Sleep(2 * time.Second)
	})
	life(t, dir, func(w *world) {
		b := w.join("web", eds).want("y")
		w.feed("web").failed()
		equal(t, "y", b.sees(subscription("y"), "y"), "1")
	})
}

// With max_age what was recalled is given to nobody any more once it is too old, also
// in one outage.
func TestP53_WhatGetsTooOldIsNotServedAnyMore(t *testing.T) {
	dir := t.TempDir()
	life(t, dir, func(w *world) {
		b := w.join("web", eds).want("x")
		f := w.feed("web")
		f.reached()
		f.update(t, eds, false, "x=1")
		b.takes("x")
	})
	life(t, dir, func(w *world) {
		b := w.join("web", eds).want("x")
		w.feed("web").failed()
		equal(t, "x", b.sees(subscription("x"), "x"), "1")
		time.Sleep(59 * time.Minute)
		equal(t, "a newcomer gets x", w.join("web", eds).want("x").sees(subscription("x"), "x"), "1")
		time.Sleep(2*time.Minute + time.Second) // and not just as it is looked for again
		if _, err := w.try("web", eds); err == nil || !strings.Contains(err.Error(), "is older than store.max_age") {
			t.Errorf("a newcomer comes to %v though nothing is held that may be served", err)
		}
	}, func(o *store.Options) { o.MaxAge = time.Hour })
}

// What is held is not read from disk, however often the origin goes away, and a key
// that goes takes its mark with it.
func TestP53_WhatIsHeldIsNotRead(t *testing.T) {
	dir := t.TempDir()
	life(t, dir, func(w *world) {
		b := w.join("web", eds).want("x", "y")
		f := w.feed("web")
		f.reached()
		f.update(t, eds, false, "x=1", "y=1")
		b.takes("x", "y")
	})
	metrics := options(t).Metrics
	lifeOf(t, dir, metrics, func(w *world) {
		w.join("web", eds).want("x", "y")
		f := w.feed("web")
		f.failed()
		flap := func() {
			f.reached()
			f.update(t, eds, false, "x=1")
			time.Sleep(2 * time.Second) // until the store has looked at what is new
			f.failed()
		}
		flap()
		loads := w.loads()
		flap()
		flap()
		equal(t, "loads", w.loads(), loads)
		equal(t, "stale types", metrics.Stale.Value(), 1) // of y the origin has not spoken
	})
	equal(t, "stale types of keys that are gone", metrics.Stale.Value(), 0)
}
