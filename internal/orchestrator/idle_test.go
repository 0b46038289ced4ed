package orchestrator

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Derived data that a key's clients share stays while there is a client, and is released with the
// last one. An idle key only costs its held resources. Later clients are served all the same.
func TestP52_IdleKeyKeepsNothingDerived(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		first, last := w.join("web", cds).want("*"), w.join("web", eds).want("x")
		f := w.feed("web")
		f.sink.Status(upstream.Status{Connected: true})
		f.update(t, cds, true, "c=1")
		f.update(t, eds, false, "x=1")
		snaps := map[xds.TypeURL]*snapshot.Snapshot{}
		var made []weak.Pointer[[]byte]
		for typ, c := range map[xds.TypeURL]*client{cds: first, eds: last} {
			s := c.State().Snapshot(typ)
			snaps[typ] = s
			made = append(made, weak.Make(s.Derived(func() any { return &[]byte{1} }).(*[]byte)))
		}
		first.leave()
		runtime.GC()
		for _, m := range made {
			if m.Value() == nil {
				t.Fatal("released while there is a client")
			}
		}
		last.leave()
		for typ, s := range snaps {
			again := false
			s.Derived(func() any { again = true; return new([]byte) })
			equal(t, "let go of "+string(typ), again, true)
		}
		runtime.GC()
		for _, m := range made {
			if m.Value() != nil {
				t.Error("kept by something else")
			}
		}

		time.Sleep(time.Minute)
		synctest.Wait()
		c := w.join("web", cds).want("*")
		equal(t, "the cluster", c.sees(subscription("*"), "c"), "1")
		e := w.join("web", eds).want("x")
		equal(t, "its endpoints", e.sees(subscription("x"), "x"), "1")
		equal(t, "the snapshot is the same", e.State().Snapshot(eds), snaps[eds])
		e.woken()
		f.update(t, eds, false, "x=2")
		equal(t, "woken", e.woken(), 1)
		equal(t, "endpoints that are new", e.sees(subscription("x"), "x"), "2")
	})
}
