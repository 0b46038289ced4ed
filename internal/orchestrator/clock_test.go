package orchestrator

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"xdsrelay/internal/store"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// wrong is a wall clock of a store that is wrong by so much.
type wrong struct{ by atomic.Int64 }

func (w *wrong) set(by time.Duration) { w.by.Store(int64(by)) }

func (w *wrong) options(o *store.Options) {
	o.MaxAge = time.Hour
	o.Now = func() time.Time { return time.Now().Add(time.Duration(w.by.Load())) }
}

const years = 10 * 365 * 24 * time.Hour

// kept has these taken in a life of its own.
func kept(t *testing.T, dir string, said ...string) {
	t.Helper()
	life(t, dir, func(w *world) {
		var names []string
		for _, s := range said {
			name, _, _ := strings.Cut(s, "=")
			names = append(names, name)
		}
		b := w.join("web", eds).want(names...)
		f := w.feed("web")
		f.reached()
		f.update(t, eds, false, said...)
		b.takes(names...)
	})
}

// By a clock that is years ahead all on disk is too old. Once it is set right, that is
// served, in the same outage.
func TestP53_AClockThatIsAheadAtBoot(t *testing.T) {
	dir := t.TempDir()
	kept(t, dir, "x=1")
	var clock wrong
	clock.set(years)
	life(t, dir, func(w *world) {
		b := w.join("web", eds).want("x")
		w.feed("web").failed()
		if b.refusal() == nil {
			t.Fatal("it is served, though too old by what is known")
		}
		b.leave()
		loads := w.loads()
		pass(7 * lookEvery)
		if n := w.loads() - loads; n < 6 || n > 8 {
			t.Errorf("it was looked for %d times in seven minutes", n)
		}
		clock.set(0)
		pass(lookEvery + time.Second)
		b = w.join("web", eds).want("x")
		equal(t, "x", b.sees(subscription("x"), "x"), "1")
		loads = w.loads()
		pass(30 * time.Minute)
		equal(t, "looked for again", w.loads()-loads, 0)
	}, clock.options)
}

// By a clock that is years behind it is from the future, and served. Once the clock is
// set right, it gets too old when it does.
func TestP53_AClockThatIsBehindAtBoot(t *testing.T) {
	dir := t.TempDir()
	kept(t, dir, "x=1")
	var clock wrong
	clock.set(-years)
	life(t, dir, func(w *world) {
		w.join("web", eds).want("x")
		w.feed("web").failed()
		pass(5 * time.Minute)
		clock.set(45 * time.Minute)
		pass(9 * time.Minute)
		equal(t, "x", w.join("web", eds).want("x").sees(subscription("x"), "x"), "1")
		pass(2*time.Minute + time.Second) // and not just as it is looked for again
		if _, err := w.try("web", eds); err == nil {
			t.Error("it is served though too old")
		}
	}, clock.options)
}

// What is too old by a clock that is ahead is not lost by what is written meanwhile:
// once the clock is set right it is served, in this life and the next.
func TestP53_AClockThatIsAheadLosesNothing(t *testing.T) {
	dir := t.TempDir()
	kept(t, dir, "x=1", "y=1")
	var clock wrong
	clock.set(years)
	all := func(w *world) {
		t.Helper()
		b := w.join("web", eds).want("x", "y")
		equal(t, "x", b.sees(subscription("x", "y"), "x"), "2")
		equal(t, "y", b.sees(subscription("x", "y"), "y"), "1")
	}
	life(t, dir, func(w *world) {
		b := w.join("web", eds).want("x")
		f := w.feed("web")
		f.reached()
		f.update(t, eds, false, "x=2")
		b.takes("x")
		pass(2 * time.Second)
		clock.set(0)
		pass(time.Minute)
		f.failed()
		all(w)
	}, clock.options)
	life(t, dir, func(w *world) {
		w.join("web", eds).want("x")
		w.feed("web").failed()
		all(w)
	}, clock.options)
}

// But if the clock was right, what is too old is not made young by what is new beside
// it, and goes in time; then what is new counts.
func TestP53_WhatIsTooOldIsNotMadeYoung(t *testing.T) {
	for name, after := range map[string]time.Duration{"while it is carried": 5 * time.Minute, "once it is not": 20 * time.Minute} {
		dir := t.TempDir()
		kept(t, dir, "x=1", "y=1")
		var clock wrong
		life(t, dir, func(w *world) {
			pass(2 * time.Hour)
			b := w.join("web", eds).want("x")
			f := w.feed("web")
			f.reached()
			f.update(t, eds, false, "x=2")
			b.takes("x")
			pass(after)
		}, clock.options)
		life(t, dir, func(w *world) {
			pass(2*time.Hour + after + time.Minute)
			b := w.join("web", eds).want("y")
			w.feed("web").failed()
			equal(t, name+": y is refused", b.refusal() != nil, true)
		}, clock.options)
		life(t, dir, func(w *world) {
			pass(2*time.Hour + after + time.Minute)
			b := w.join("web", eds).want("x")
			w.feed("web").failed()
			if after < carry {
				equal(t, name+": x is refused", b.refusal() != nil, true)
			} else {
				equal(t, name+": x", b.sees(subscription("x"), "x"), "2")
			}
		}, clock.options)
	}
}

// An answer to the wildcard that is too old goes in time as well, if nobody asks for it
// any more, and does not keep what is asked for by name from being served.
func TestP53_AWildcardThatIsTooOldGoes(t *testing.T) {
	dir := t.TempDir()
	life(t, dir, func(w *world) {
		a := w.join("web", cds).want("*")
		w.feed("web").reached()
		w.feed("web").update(t, cds, true, "c=1", "d=1")
		a.takes("*")
	})
	var clock wrong
	life(t, dir, func(w *world) {
		pass(2 * time.Hour)
		a := w.join("web", cds).want("c")
		w.feed("web").reached()
		w.feed("web").update(t, cds, false, "c=2")
		a.takes("c")
		pass(20 * time.Minute)
	}, clock.options)
	life(t, dir, func(w *world) {
		pass(2*time.Hour + 21*time.Minute)
		a := w.join("web", cds).want("c", "d")
		w.feed("web").failed()
		equal(t, "c", a.sees(subscription("c", "d"), "c"), "2")
		equal(t, "d", a.sees(subscription("c", "d"), "d"), "?")
	}, clock.options)
}

// While the origin is there what is served stays young, though a name of an earlier
// life is not asked for any more, and the origin says the same under another version.
func TestP53_WhatIsConfirmedStaysYoung(t *testing.T) {
	dir := t.TempDir()
	kept(t, dir, "x=1", "y=1")
	var clock wrong
	life(t, dir, func(w *world) {
		b := w.join("web", eds).want("x")
		f := w.feed("web")
		f.reached()
		f.update(t, eds, false, "x=1")
		b.takes("x")
		pass(3 * time.Hour)
	}, clock.options)
	life(t, dir, func(w *world) {
		pass(3*time.Hour + 45*time.Minute)
		b := w.join("web", eds).want("x")
		w.feed("web").failed()
		equal(t, "x", b.sees(subscription("x"), "x"), "1")
	}, clock.options)
}

// While the origin is back and mute it confirms nothing: what is stored is as old as its
// last word, until it speaks, be that of no use.
func TestP53_WhatAMuteOriginHoldsGetsOlder(t *testing.T) {
	for name, c := range map[string]struct {
		speaks bool
		after  time.Duration
		served bool
	}{
		"young":    {false, 69 * time.Minute, true},
		"too old":  {false, 71 * time.Minute, false},
		"it spoke": {true, 3*time.Hour + 45*time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var clock wrong
			life(t, dir, func(w *world) {
				b := w.join("web", eds).want("x")
				f := w.feed("web")
				f.reached()
				f.update(t, eds, false, "x=1")
				b.takes("x")
				pass(10 * time.Minute)
				f.sink.Status(upstream.Status{Origin: "origin"})
				pass(time.Second)
				f.reached()
				pass(time.Minute)
				if c.speaks {
					f.sink.Status(upstream.Status{Connected: true, Origin: "origin", Spoken: true})
				}
				pass(3 * time.Hour)
			}, clock.options)
			life(t, dir, func(w *world) {
				pass(c.after)
				b := w.join("web", eds).want("x")
				w.feed("web").failed()
				equal(t, "refused", b.refusal() == nil, c.served)
			}, clock.options)
		})
	}
}

// For how long what nobody has asked for is carried goes by the monotonic clock: the
// wall clock may be set as soon as the network is there.
func TestP53_HowLongIsCarriedIsMonotonic(t *testing.T) {
	w := newWorld(t, options(t)) // and in no bubble, whose times have none
	g := newGroup(w.reg, xds.NewKey("web"), w.node(&corev3.Node{Id: "n"}))
	g.home().Status(upstream.Status{Connected: true, Spoken: true})
	g.apply(update{from: g.home(), applied: make(chan bool, 1)})
	for what, at := range map[string]*time.Time{"heard": g.heardAt.Load(), "confirmed": g.confirmedAt.Load()} {
		if !strings.Contains(at.String(), "m=") {
			t.Errorf("%s: %v", what, at)
		}
	}
}
