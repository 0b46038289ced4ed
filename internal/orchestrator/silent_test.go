package orchestrator

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"xdsrelay/internal/store"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// silent says that nothing came on the open stream, as an upstream stream does, and
// does what follows: whether it ended for what is known from elsewhere, and is open again.
func (f *feed) silent(t *testing.T) (ended bool) {
	t.Helper()
	f.sink.Status(upstream.Status{Connected: true, Origin: "origin", SilentSince: time.Now().Add(-15 * time.Second)})
	ended, soon, err := f.sink.Silent(context.Background())
	if soon && !ended { // it is being looked for
		synctest.Wait()
		ended, soon, err = f.sink.Silent(context.Background())
	}
	if err != nil || soon {
		t.Fatal(soon, err)
	}
	if ended {
		f.sink.Status(upstream.Status{Origin: "origin"})
		if err := f.sink.Recall(context.Background()); err != nil {
			t.Fatal(err)
		}
		f.reached()
	}
	time.Sleep(2 * time.Second) // longer than an open stream takes to be proven
	synctest.Wait()
	return ended
}

// good has clients of the key web take clusters by the wildcard and endpoints by name.
func good(t *testing.T, dir string) {
	t.Helper()
	life(t, dir, func(w *world) {
		a, b := w.join("web", cds).want("*"), w.join("web", eds).want("x", "y")
		f := w.feed("web")
		f.reached()
		f.update(t, cds, true, "c=1")
		f.update(t, eds, false, "x=1", "y=1")
		a.takes("*")
		b.takes("x", "y")
	})
}

// An origin that takes streams and says nothing sends nobody away, and keeps nobody
// from the last known good; each thing is looked for once, and its word counts.
func TestP53_LastKnownGoodOfASilentOrigin(t *testing.T) {
	dir := t.TempDir()
	good(t, dir)
	log := life(t, dir, func(w *world) {
		a, b := w.join("web", cds).want("*"), w.join("web", eds).want("x", "never")
		f := w.feed("web")
		f.reached()
		if a.State() != nil {
			t.Error("something is served though the origin may speak")
		}
		equal(t, "the stream ends for what is on disk", f.silent(t), true)
		equal(t, "c", a.sees(subscription("*"), "c"), "1")
		equal(t, "x", b.sees(subscription("x"), "x"), "1")
		equal(t, "stale types", strings.Join(w.stale("web"), " "), "CDS EDS")
		equal(t, "the stream ends for what is not on disk", f.silent(t), false)
		loads := w.loads()
		b.want("x", "y", "never")
		synctest.Wait()
		if w.State(b, "y") {
			t.Error("what is asked for later is served while the stream that asked is open")
		}
		equal(t, "the stream ends for what is asked for later", f.silent(t), true)
		equal(t, "y", b.sees(subscription("y"), "y"), "1")
		equal(t, "the stream ends again", f.silent(t), false)
		equal(t, "loads", w.loads(), loads)
		if a.refusal() != nil || b.refusal() != nil {
			t.Error("a stream was ended")
		}

		_, _ = a.woken(), b.woken()
		f.update(t, cds, true, "c=1")
		equal(t, "told what is equal", a.woken(), 0)
		f.update(t, eds, false, "x=2", "y=1")
		equal(t, "told what is not", b.woken(), 1)
		equal(t, "stale types", strings.Join(w.stale("web"), " "), "")
	})
	if n := strings.Count(log, "served from the last known good: the origin says nothing"); n != 1 || strings.Contains(log, "clients are refused") {
		t.Errorf("log: %s", log)
	}
}

// An origin whose first response is of no use has spoken: what was looked for in its
// silence is looked for again in the next.
func TestP53_ABadFirstResponseEndsASilence(t *testing.T) {
	dir := t.TempDir()
	good(t, dir)
	log := life(t, dir, func(w *world) {
		w.join("web", eds).want("x")
		f := w.feed("web")
		f.reached()
		equal(t, "the stream ends for what is on disk", f.silent(t), true)
		f.sink.Status(upstream.Status{Connected: true, Origin: "origin", Spoken: true}) // and so it ended
		f.sink.Status(upstream.Status{Origin: "origin"})
		loads := w.loads()
		w.join("web", eds).want("y")
		f.reached()
		equal(t, "the stream ends again", f.silent(t), true)
		equal(t, "loads", w.loads(), loads+1)
	})
	if n := strings.Count(log, "served from the last known good: the origin says nothing"); n != 2 {
		t.Errorf("log: %s", log)
	}
}

// State reports whether a client sees a name at all.
func (w *world) State(c *client, name string) bool {
	w.t.Helper()
	r, _ := c.State().Snapshot(c.of().typ).Look(subscription(name), name)
	return r != nil
}

// Without a store, or anything in it, silence ends no stream.
func TestP53_SilenceWithoutALastKnownGood(t *testing.T) {
	bubble(t, nil, func(w *world) {
		a := w.join("web", cds).want("*")
		f := w.feed("web")
		f.reached()
		equal(t, "ended", f.silent(t), false)
		equal(t, "sent away", a.refusal() != nil, false)
	})
	life(t, t.TempDir(), func(w *world) {
		a := w.join("web", cds).want("*")
		f := w.feed("web")
		f.reached()
		equal(t, "ended", f.silent(t), false)
		equal(t, "sent away", a.refusal() != nil, false)
	})
}

// apart has clients of the key web ask for clusters by the wildcard and by the name n, and
// both streams be open.
func (w *world) apart() (all, named *client, wild, names *feed) {
	all, named = w.join("web", cds).want("*"), w.join("web", cds).want("n")
	wild, names = w.feed("web"), w.second("web")
	wild.reached()
	names.reached()
	return all, named, wild, names
}

// goodApart has them take c and n.
func goodApart(t *testing.T, dir string) {
	t.Helper()
	life(t, dir, func(w *world) {
		a, b, f, g := w.apart()
		f.update(t, cds, true, "c=1")
		g.update(t, cds, false, "n=1")
		a.takes("*")
		b.takes("n")
	})
}

// Of a type that is asked for on two streams, each ends for its own part.
func TestP50_P53_SilenceOfOneOfTwoStreams(t *testing.T) {
	dir := t.TempDir()
	goodApart(t, dir)
	life(t, dir, func(w *world) {
		a, b, f, g := w.apart()
		equal(t, "the wildcard's stream ends", f.silent(t), true)
		equal(t, "c", a.sees(subscription("*"), "c"), "1")
		if w.State(b, "n") {
			t.Error("n is served while the stream that asked for it is open")
		}
		equal(t, "that of names ends", g.silent(t), true)
		equal(t, "n", b.sees(subscription("n"), "n"), "1")
		equal(t, "the wildcard's stream ends again", f.silent(t), false)
	})
}

// What gets too old meanwhile is given to nobody, and no stream ends for it again.
func TestP53_SilentForLongerThanMaxAge(t *testing.T) {
	goesOn(t)
	dir := t.TempDir()
	good(t, dir)
	life(t, dir, func(w *world) {
		w.join("web", eds).want("x")
		f := w.feed("web")
		f.reached()
		equal(t, "the stream ends for what is on disk", f.silent(t), true)
		equal(t, "and again", f.silent(t), false)
		time.Sleep(59 * time.Minute)
		late := w.join("web", eds).want("x")
		equal(t, "a newcomer gets x", late.sees(subscription("x"), "x"), "1")
		time.Sleep(2 * time.Minute)
		if w.State(w.join("web", eds).want("x"), "x") {
			t.Error("a newcomer gets what is too old")
		}
		for range 10 {
			equal(t, "the stream ends for what is too old", f.silent(t), false)
			time.Sleep(15 * time.Second)
		}
	}, func(o *store.Options) { o.MaxAge = time.Hour })
}

// What nobody asks for is not taken off the disk while an origin hangs: it says of
// nothing that it is gone.
func TestP53_AHangingOriginForgetsNothing(t *testing.T) {
	dir := t.TempDir()
	good(t, dir)
	life(t, dir, func(w *world) {
		b := w.join("web", eds).want("x")
		f := w.feed("web")
		f.reached()
		equal(t, "the stream ends for what is on disk", f.silent(t), true)
		f.hand(t, xds.Update{Type: eds, Origin: "origin", Guess: true, Removed: []string{"z"}, Received: time.Now()})
		time.Sleep(2 * carry)
		b.takes("x")
		time.Sleep(time.Minute)
	})
	life(t, dir, func(w *world) {
		b := w.join("web", eds).want("x", "y")
		w.feed("web").failed()
		equal(t, "x", b.sees(subscription("x", "y"), "x"), "1")
		equal(t, "y, which nobody asked for", b.sees(subscription("x", "y"), "y"), "1")
	})
}

// A stream of names that do not exist is not ended for them, though there is a file of
// their type.
func TestP50_P53_SilenceBesideAWildcardThatSpeaks(t *testing.T) {
	dir := t.TempDir()
	life(t, dir, func(w *world) {
		a := w.join("web", cds).want("*")
		w.join("web", cds).want("never")
		f, g := w.feed("web"), w.second("web")
		f.reached()
		g.reached()
		f.update(t, cds, true, "c=1")
		a.takes("*")
		time.Sleep(10 * time.Second) // until it is written
		for range 5 {
			equal(t, "the stream of names ends", g.silent(t), false)
		}
	})
}

// What was recalled of one stream is too old in its time, also when the other speaks.
func TestP53_TooOldBesideAStreamThatSpeaks(t *testing.T) {
	dir := t.TempDir()
	goodApart(t, dir)
	life(t, dir, func(w *world) {
		_, b, f, g := w.apart()
		equal(t, "the stream of names ends", g.silent(t), true)
		equal(t, "n", b.sees(subscription("n"), "n"), "1")
		f.update(t, cds, true, "c=2")
		time.Sleep(2 * time.Hour) // which a group that turns in circles would never let pass
		if w.State(w.join("web", cds).want("n"), "n") {
			t.Error("a newcomer gets what is too old")
		}
	}, func(o *store.Options) { o.MaxAge = time.Hour })
}

// What is to be looked for again in one outage is not in another.
func TestP53_WhatIsTooOldIsNoConcernOnceTheOriginSpeaks(t *testing.T) {
	dir := t.TempDir()
	good(t, dir)
	life(t, dir, func(w *world) {
		time.Sleep(2 * time.Hour)
		w.join("web", eds).want("x")
		f := w.feed("web")
		f.failed()
		time.Sleep(time.Second)
		f.reached()
		f.update(t, eds, false, "x=2")
		time.Sleep(2 * time.Minute)
		w.join("web", rds).want("r") // of which nothing is on disk
		synctest.Wait()
		f.sink.Status(upstream.Status{Origin: "origin"})
		f.reached()
		equal(t, "the stream ends", f.silent(t), false)
		f.failed()
		time.Sleep(2 * time.Minute)
	}, func(o *store.Options) { o.MaxAge = time.Hour })
}

// slowDisk has something of everything, and does not come to read it until it is let.
type slowDisk struct {
	noStore
	let chan struct{}
}

func (slowDisk) Has(xds.Key, xds.TypeURL) bool { return true }

func (d slowDisk) Load(xds.Key, xds.TypeURL) (*store.Record, error) {
	<-d.let
	return nil, nil
}

// A disk that hangs keeps no key from its origin.
func TestP53_AStreamStaysOpenWhileTheDiskIsRead(t *testing.T) {
	bubble(t, nil, func(w *world) {
		let := make(chan struct{})
		w.reg.opts.Store = slowDisk{let: let}
		w.join("web", eds).want("x")
		f := w.feed("web")
		f.reached()
		for i := range 3 {
			time.Sleep(maxLoading)
			end, soon, err := f.sink.Silent(context.Background())
			if end || soon != (i == 0) || err != nil {
				t.Errorf("end %v, soon %v, %v", end, soon, err)
			}
		}
		close(let)
		equal(t, "the stream ends for nothing", f.silent(t), false)
	})
}

// What is too old meanwhile goes while the disk is read, which may hang.
func TestP53_TooOldWhileTheDiskIsRead(t *testing.T) {
	w := newWorld(t, options(t))
	w.reg.opts.Store = noStore{}
	g := newGroup(w.reg, xds.NewKey("web"), w.node(&corev3.Node{Id: "n"}))
	v := newView(xds.TypeOf(cds), new(telemetry.Type), new(past))
	v.wildcard, v.wildAt = true, g.home()
	g.setViews([]*view{v})
	until := time.Now().Add(time.Minute)
	g.recall.due = true
	g.recall.records = map[xds.TypeURL]*remembered{cds: remember(&store.Record{
		Key: g.key, Type: cds, Origin: "origin", Wildcard: true, Entries: []store.Entry{{Resource: resource(t, cds, "c", "1"), Wild: true}},
	}, until, false)}
	g.home().sent = &xds.Interest{Types: []xds.TypeInterest{{Type: cds, Wildcard: true}}}
	g.home().Status(upstream.Status{Failed: true})
	now := time.Now()
	g.observe(now)
	g.recallAway(now)
	equal(t, "held", v.held.Load().Len(), 1)
	g.recall.loading = &reading{into: make(chan *loaded), until: until.Add(time.Hour)}
	now = until.Add(time.Second)
	g.recallAway(now)
	equal(t, "held", v.held.Load().Len(), 0)
	g.publish()
	if d := g.wait(now); d <= 0 {
		t.Errorf("it waits %v, and so turns in circles", d)
	}
}
