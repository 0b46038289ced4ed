package orchestrator

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/upstream"
)

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
