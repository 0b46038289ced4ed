package orchestrator

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// While no upstream stream is open, nothing expires, even if no client wants it. The origin could
// not send it again, and a restarted client will want it. Once a stream is open, it expires after
// linger.
func TestP52_P53_HeldResourcesLingerWhileTheOriginIsAway(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		w.join("web", eds).want("x")
		all, b := w.join("web", cds).want("*"), w.join("web", eds).want("y")
		f := w.feed("web")
		f.reached()
		f.update(t, cds, true, "c=1")
		f.update(t, eds, false, "x=1", "y=1")
		f.sink.Status(upstream.Status{Origin: "origin"})
		f.failed()
		all.leave()
		b.leave()
		pass(time.Hour)
		equal(t, "requested", f.requested(eds), "x y")
		b = w.join("web", eds).want("y")
		equal(t, "y", b.sees(subscription("y"), "y"), "1")
		all = w.join("web", cds).want("*")
		equal(t, "c", all.sees(subscription("*"), "c"), "1")
		all.leave()
		b.leave()
		pass(time.Hour)
		f.reached()
		equal(t, "requested once it is back", f.requested(eds)+" "+f.requested(cds), "x y *")
		pass(9 * time.Second)
		equal(t, "requested within linger", f.requested(eds)+" "+f.requested(cds), "x y *")
		pass(time.Second)
		equal(t, "requested after linger", f.requested(eds)+" "+f.requested(cds), "x ")
	})
}

// While no stream is open, a client that subscribes by name is served the wildcard's resource. That
// holds even if no client has wanted the wildcard for long.
func TestP53_WildcardResourcesAreHeld(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a := w.join("web", cds).want("*")
		f := w.feed("web")
		f.reached()
		f.update(t, cds, true, "c=1")
		f.failed()
		b := w.join("web", cds).want("c")
		a.leave()
		pass(time.Hour)
		equal(t, "c", b.sees(subscription("c"), "c"), "1")
		if r := b.refusal(); r != nil {
			t.Errorf("refused: %v", r)
		}
	})
}

// A stream that ended before the group's next step counts as having been open.
func TestP53_ShortStreamCountsAsOpen(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		w.join("web", eds).want("x")
		b := w.join("web", eds).want("y")
		f := w.feed("web")
		f.update(t, eds, false, "x=1", "y=1")
		f.sink.Status(upstream.Status{Connected: true, Origin: "origin"})
		f.failed()
		b.leave()
		pass(time.Hour)
		equal(t, "requested", f.requested(eds), "x y")
	})
}

// A type that is kept only because no origin is reachable takes no room from a wanted one
// (types_per_key). Types that other clients want stay.
func TestP53_UnwantedTypeMakesRoom(t *testing.T) {
	bubble(t, func(o *Options) { o.Limits.TypesPerKey = 3 }, func(w *registryFixture) {
		const lds = xds.ListenerType
		a := w.join("web", cds).want("*")
		f := w.feed("web")
		f.reached()
		f.update(t, cds, true, "c=1")
		n := w.join("web", cds).want("n")
		f2 := w.second("web")
		f2.reached()
		f2.update(t, cds, false, "n=1")
		e := w.join("web", eds).want("x", "y")
		f.update(t, eds, false, "x=1", "y=1")
		l := w.join("web", lds).want("*")
		f.update(t, lds, true, "l=1")
		f.failed()
		f2.failed()
		n.leave()
		e.leave()
		pass(time.Minute)
		equal(t, "requested", f.requested(eds)+f2.requested(cds), "x yn")
		l.leave()
		pass(time.Hour)
		b := w.join("web", rds).want("r")
		pass(time.Second)
		equal(t, "refused for want of an origin", b.refusal() != nil, true)
		equal(t, "requested", f.requested(cds)+f.requested(eds)+f.requested(lds)+f.requested(rds), "**r")
		equal(t, "c", a.sees(subscription("*"), "c"), "1")
		l = w.join("web", lds).want("*")
		equal(t, "l", l.sees(subscription("*"), "l"), "1")
		if d := w.join("web", eds); d.refusal() == nil {
			t.Error("a fourth type is let in")
		}
	})
}

// The type stays on disk.
func TestP53_DroppedTypeStaysOnDisk(t *testing.T) {
	dir := t.TempDir()
	withStore(t, dir, func(w *registryFixture) {
		w.reconfigured(func(s *Settings) { s.Limits.TypesPerKey = 2 })
		w.join("web", rds).want("r")
		a := w.join("web", eds).want("x")
		f := w.feed("web")
		f.reached()
		f.update(t, rds, false, "r=1")
		f.update(t, eds, false, "x=1")
		a.takes()
		f.failed()
		a.leave()
		pass(time.Hour)
		w.join("web", cds).want("*")
		pass(time.Hour)
		equal(t, "requested", f.requested(rds)+f.requested(eds)+f.requested(cds), "r*")
	})
	withStore(t, dir, func(w *registryFixture) {
		b := w.join("web", eds).want("x")
		w.feed("web").failed()
		equal(t, "x", b.sees(subscription("x"), "x"), "1")
	})
}

// A client subscribes to a name that the origin said is absent. A delta origin is asked for it once
// more, at most once in linger, whichever client subscribes.
func TestP25_AbsentIsRequestedAgain(t *testing.T) {
	for _, sotw := range []bool{false, true} {
		bubble(t, func(o *Options) { o.SotWOrigins = sotw }, func(w *registryFixture) {
			a := w.join("web", eds).want("held", "absent", "pending")
			f := w.feed("web")
			f.reached()
			f.update(t, eds, false, "held=1", "absent")
			said := f.said()
			again := func(what string, want bool) {
				t.Helper()
				synctest.Wait()
				got := f.said() > said && strings.Join(f.again(eds), " ") == "absent"
				equal(t, what, got, want && !sotw)
				equal(t, "requested", f.requested(eds), "absent held pending")
				said = f.said()
			}
			a.want("absent", "held", "pending")
			again("no new name", false)
			b := w.join("web", eds).want("held", "absent", "pending")
			again("another client", true)
			equal(t, "absent", b.sees(subscription("absent"), "absent"), "-")
			w.join("web", eds).want("absent")
			again("a third client within linger", false)
			pass(10 * time.Second)
			b.Resubscribe([]string{"absent", "held", "pending", "unknown"})
			again("a client that has it already, after linger", true)
			pass(10 * time.Second)
			f.update(t, eds, false, "absent=1")
			w.join("web", eds).want("absent")
			again("a name that exists by now", false)
		})
	}
}
