package orchestrator

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/store"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

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

// What was read in an outage and nobody asked for then is too old in its time as well.
func TestP53_WhatIsInMemoryGetsTooOld(t *testing.T) {
	dir := t.TempDir()
	good(t, dir)
	for range 2 { // lives
		life(t, dir, func(w *world) {
			w.join("web", cds).want("*")
			b := w.join("web", eds).want("never")
			f := w.feed("web")
			f.reached()
			f.update(t, cds, true, "c=2") // so that something is held
			f.failed()
			if n := w.loads(); n == 0 {
				t.Fatal("nothing is read")
			}
			time.Sleep(61 * time.Minute)
			before := b.State().Gen
			b.want("never", "x")
			synctest.Wait()
			equal(t, "shown since, if only for a moment", b.State().Gen-before, 0)
		}, func(o *store.Options) { o.MaxAge = time.Hour })
	}
}

// An outage is not cut short by one before.
func TestP53_WhatIsReadAnewLastsForItsTime(t *testing.T) {
	dir := t.TempDir()
	good(t, dir)
	log := life(t, dir, func(w *world) {
		a, b := w.join("web", cds).want("*"), w.join("web", eds).want("x")
		f := w.feed("web")
		f.failed()
		equal(t, "x", b.sees(subscription("x"), "x"), "1")
		time.Sleep(50 * time.Minute)
		f.reached()
		f.update(t, cds, true, "c=1")
		f.update(t, eds, false, "x=2")
		a.takes("*")
		b.takes("x")
		time.Sleep(8 * time.Minute)
		f.failed()
		b.want("x", "y")
		equal(t, "y", b.sees(subscription("y"), "y"), "1")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		late := w.join("web", eds).want("y")
		equal(t, "y to a newcomer", late.sees(subscription("y"), "y"), "1")
	}, func(o *store.Options) { o.MaxAge = time.Hour })
	if strings.Contains(log, "older than store.max_age") {
		t.Errorf("log: %s", log)
	}
}

// halfHungDisk hangs on routes alone.
type halfHungDisk struct{ *hungDisk }

func (d halfHungDisk) Has(_ xds.Key, typ xds.TypeURL) bool { return typ == eds || typ == rds }

func (d halfHungDisk) Load(key xds.Key, typ xds.TypeURL) (*store.Record, error) {
	if typ == eds {
		return d.rec, nil
	}
	return d.hungDisk.Load(key, typ)
}

// What is in memory is served while the disk hangs over something else.
func TestP53_ADiskThatHangsAndWhatIsInMemory(t *testing.T) {
	onHungDisk(t, func(w *world, d *hungDisk) {
		w.reg.opts.Store = halfHungDisk{d}
		d.rec.Entries = append(d.rec.Entries, store.Entry{Resource: resource(t, eds, "y", "1")})
		b := w.join("web", eds).want("x")
		f := w.feed("web")
		f.failed()
		equal(t, "x", b.sees(subscription("x"), "x"), "1")
		w.join("web", rds).want("r")
		pass(time.Second)
		equal(t, "readings", d.reads.Load(), 1)
		b.want("x", "y")
		synctest.Wait()
		equal(t, "y", b.sees(subscription("x", "y"), "y"), "1")
		pass(time.Hour)
		equal(t, "readings", d.reads.Load(), 1)
	})
}

// What is stored is confirmed by whichever of two streams the origin has spoken on.
func TestP50_P53_AWordOnEitherStreamConfirms(t *testing.T) {
	for _, first := range []bool{false, true} {
		bubble(t, nil, func(w *world) {
			w.reg.opts.Store = noStore{}
			a := w.join("web", cds).want("*")
			w.join("web", cds).want("n")
			f, g := w.feed("web"), w.second("web")
			connect(f, g)
			f.update(t, cds, true, "c=1")
			g.update(t, cds, false, "n=1")
			f.sink.Status(upstream.Status{Origin: "origin"})
			g.sink.Status(upstream.Status{Origin: "origin"})
			connect(f, g)
			pass(time.Hour)
			k := a.of().group.views[0].keeper
			if d := time.Since(k.confirmed()); d < time.Hour-time.Second {
				t.Errorf("confirmed %v ago though the origin is mute", d)
			}
			if first {
				f.update(t, cds, true, "c=1")
			} else {
				g.update(t, cds, false, "n=1")
			}
			equal(t, "confirmed so long ago", time.Since(k.confirmed()), 0)
		})
	}
}

// State reports whether a client sees a name at all.
func (w *world) State(c *client, name string) bool {
	w.t.Helper()
	r, _ := c.State().Snapshot(c.of().typ).Look(subscription(name), name)
	return r != nil
}
