package orchestrator

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/store"
	"xdsrelay/internal/xds"
)

// Who asks for what is not stored is sent away while no origin can be reached, and
// nobody else is for it: who asks for what is stored gets that, whoever came first.
func TestP16_P53_WhoAsksForNothingStoredIsSentAwayAlone(t *testing.T) {
	dir := t.TempDir()
	kept(t, dir, "x=1")
	for name, asks := range map[string]struct {
		typ  xds.TypeURL
		name string
	}{
		"another type":              {xds.RouteType, "unknown"},
		"another name":              {eds, "unknown"},
		"a type that is not on any": {xds.SecretType, "unknown"},
	} {
		for _, leaves := range []bool{true, false} {
			life(t, dir, func(w *world) {
				first := w.join("web", asks.typ).want(asks.name)
				w.feed("web").failed()
				if first.refusal() == nil {
					t.Errorf("%s: who asks for it is not sent away", name)
				}
				if leaves {
					first.leave()
				}
				time.Sleep(time.Minute)
				if asks.typ != eds {
					if _, err := w.try("web", asks.typ); err == nil {
						t.Errorf("%s: it is let in though nothing of the type is stored", name)
					}
				}
				second, err := w.try("web", eds)
				if err != nil {
					t.Fatalf("%s: who asks for what is stored is not let in: %v", name, err)
				}
				second.want("unknown")
				if second.refusal() == nil {
					t.Errorf("%s: the second who asks for it is not sent away", name)
				}
				third, err := w.try("web", eds)
				if err != nil {
					t.Fatalf("%s: who asks for what is stored is not let in: %v", name, err)
				}
				w.join("web", eds).want("unknown")
				time.Sleep(time.Minute)
				if third.refusal() != nil {
					t.Errorf("%s: who asks for nothing yet is sent away", name)
				}
				third.want("x")
				equal(t, name+": x", third.sees(subscription("x"), "x"), "1")
				equal(t, name+": refused", third.refusal() == nil, true)
				last := w.join("web", asks.typ).want(asks.name)
				equal(t, name+": refused though something is held", last.refusal() == nil, true)
			})
		}
	}
}

// While no origin can be reached, and nothing is served, that is logged once for an
// outage, however often it is looked on the disk.
func TestP53_RefusingIsToldOnce(t *testing.T) {
	dir := t.TempDir()
	kept(t, dir, "x=1")
	log := life(t, dir, func(w *world) {
		time.Sleep(2 * time.Hour)
		b := w.join("web", eds).want("x")
		f := w.feed("web")
		f.failed()
		equal(t, "refused", b.refusal() != nil, true)
		time.Sleep(7 * lookEvery)
		f.failed()
		time.Sleep(7 * lookEvery)
		f.reached()
		time.Sleep(2 * proven)
		f.failed()
	}, func(o *store.Options) { o.MaxAge = time.Hour })
	equal(t, "told", strings.Count(log, "clients are refused"), 2)
}

// flaky is a store of which nothing can be read while it fails.
type flaky struct {
	*counted
	fails atomic.Bool
}

var errFlaky = errors.New("too many open files")

func (f *flaky) Load(key xds.Key, typ xds.TypeURL) (*store.Record, error) {
	if f.fails.Load() {
		f.n.Add(1)
		return nil, errFlaky
	}
	return f.counted.Load(key, typ)
}

func (f *flaky) Seed(key xds.Key, typ xds.TypeURL) (*store.Record, error) {
	if f.fails.Load() {
		f.n.Add(1)
		return nil, errFlaky
	}
	return f.counted.Seed(key, typ)
}

// unreadable is a life in which the store begins as one that cannot be read.
func unreadable(t *testing.T, dir string, f func(w *world, disk *flaky)) {
	t.Helper()
	disk := new(flaky)
	disk.fails.Store(true)
	bubbleWith(t, func(t *testing.T, o *Options) func() {
		s, err := store.Open(store.Options{Path: dir, Interval: time.Second, Metrics: &o.Metrics.Store, Log: o.Log})
		if err != nil {
			t.Fatal(err)
		}
		disk.counted = &counted{Store: s}
		o.Store = disk
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- s.Run(ctx, context.Background()) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}, func(w *world) { f(w, disk) })
}

// What cannot be read for a moment is read again, and clients wait for it.
func TestP53_WhatCannotBeReadIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	kept(t, dir, "x=1")
	unreadable(t, dir, func(w *world, disk *flaky) {
		b := w.join("web", eds).want("x")
		w.feed("web").failed()
		time.Sleep(5 * time.Second)
		equal(t, "sent away, though it is not known what there is", b.refusal() != nil, false)
		disk.fails.Store(false)
		time.Sleep(3 * time.Second)
		equal(t, "x", b.sees(subscription("x"), "x"), "1")
	})
}

// If it cannot be read for longer clients are sent away, and it is looked for now and
// then, in the same outage.
func TestP53_WhatCannotBeReadKeepsNobodyForEver(t *testing.T) {
	dir := t.TempDir()
	kept(t, dir, "x=1")
	unreadable(t, dir, func(w *world, disk *flaky) {
		b := w.join("web", eds).want("x")
		w.feed("web").failed()
		time.Sleep(16 * time.Second)
		equal(t, "sent away", b.refusal() != nil, true)
		time.Sleep(10 * time.Minute)
		if n := disk.n.Load(); n > 20 {
			t.Errorf("it was tried %d times in ten minutes", n)
		}
		if _, err := w.try("web", eds); err == nil {
			t.Error("who asks for it is let in meanwhile")
		}
		disk.fails.Store(false)
		time.Sleep(lookEvery + time.Second)
		equal(t, "x", w.join("web", eds).want("x").sees(subscription("x"), "x"), "1")
	})
}

// Nobody waits for what nobody asks for any more.
func TestP53_WhatCannotBeReadAndNobodyAsksFor(t *testing.T) {
	dir := t.TempDir()
	kept(t, dir, "x=1")
	unreadable(t, dir, func(w *world, disk *flaky) {
		b := w.join("web", eds).want("x")
		r := w.join("web", xds.RouteType).want("r")
		w.feed("web").failed()
		b.leave()
		time.Sleep(20 * time.Second)
		equal(t, "sent away", r.refusal() != nil, true)
		synctest.Wait()
	})
}

// What cannot be read for a moment is neither removed nor written anew without what
// nobody has asked for yet, whatever the origin and the clients say meanwhile.
func TestP53_WhatCannotBeReadIsNotLost(t *testing.T) {
	for _, takes := range []bool{false, true} {
		dir := t.TempDir()
		kept(t, dir, "x=1", "y=1")
		unreadable(t, dir, func(w *world, disk *flaky) {
			b := w.join("web", eds).want("x")
			f := w.feed("web")
			f.reached()
			f.update(t, eds, false, "x=2")
			if takes {
				b.takes("x")
			}
			time.Sleep(5 * time.Second)
			disk.fails.Store(false)
			time.Sleep(5 * time.Second)
		})
		life(t, dir, func(w *world) {
			b := w.join("web", eds).want("x", "y")
			w.feed("web").failed()
			want := "1"
			if takes {
				want = "2"
			}
			equal(t, "x", b.sees(subscription("x", "y"), "x"), want)
			equal(t, "y", b.sees(subscription("x", "y"), "y"), "1")
		})
	}
}

// But what can never be read does not keep what is good from being written for ever.
func TestP53_WhatCanNeverBeReadIsReplaced(t *testing.T) {
	dir := t.TempDir()
	kept(t, dir, "x=1", "y=1")
	unreadable(t, dir, func(w *world, disk *flaky) {
		b := w.join("web", eds).want("x")
		f := w.feed("web")
		f.reached()
		f.update(t, eds, false, "x=2")
		b.takes("x")
		time.Sleep(carry + 2*time.Minute)
	})
	life(t, dir, func(w *world) {
		b := w.join("web", eds).want("x")
		w.feed("web").failed()
		equal(t, "x", b.sees(subscription("x"), "x"), "2")
	})
}
