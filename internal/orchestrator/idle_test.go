package orchestrator

import (
	"fmt"
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
		for typ, c := range map[xds.TypeURL]*testClient{cds: first, eds: last} {
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

// A dropped key leaves nothing in memory, also if its group ends before its mailbox is empty.
func TestP52_DroppedKeyIsReleased(t *testing.T) {
	o := options(t)
	o.MaxIdle = 0
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newRegistryFixture(t, o)
		w.run()
		defer w.stop()
		var groups []weak.Pointer[Group]
		churn := func(keys int) {
			for i := range keys {
				key := fmt.Sprintf("key-%d", i)
				a, b := w.join(key, eds).want("x", "y"), w.join(key, cds).want("*")
				f := w.feed(key)
				f.sink.Status(upstream.Status{Connected: true})
				f.update(t, eds, false, "x=1")
				f.update(t, cds, true, "c=1")
				groups = append(groups, weak.Make(a.of().group))
				b.leave()
				a.joined.Leave() // drops the key
				w.feeds = nil
			}
			synctest.Wait()
			equal(t, "keys", len(w.reg.groups), 0)
		}
		churn(10)
		before := heap()
		const keys, most = 200, 500
		churn(keys)
		var left int
		var perKey int64
		for range 20 { // the runtime's cleanups run after the collector
			perKey = (heap() - before) / keys
			left = 0
			for _, g := range groups {
				if g.Value() != nil {
					left++
				}
			}
			if left == 0 && perKey < most {
				return
			}
		}
		t.Errorf("each dropped key leaves %d bytes, want less than %d; %d of %d groups are still in memory", perKey, most, left, len(groups))
	})
}
