package orchestrator

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/telemetry"
)

// reconfigured puts other settings in force.
func (w *registryFixture) reconfigured(change func(*Settings)) {
	s := *w.reg.settings()
	change(&s)
	w.reg.Reconfigure(s)
	synctest.Wait()
}

// If MaxIdle is lowered, keys without clients are dropped, the longest idle first. If it is raised,
// more may stay.
func TestReconfigureKeys(t *testing.T) {
	for what, fewer := range map[string]func(*Settings){
		"max_idle": func(s *Settings) { s.MaxIdle = 1 },
		"keys":     func(s *Settings) { s.Limits.Keys = 2 },
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, nil, func(w *registryFixture) {
				a := w.join("a", eds)
				for i := range 3 {
					w.join(fmt.Sprint("idle", i), eds).leave()
				}
				before := *w.reg.settings()
				w.reconfigured(fewer)
				equal(t, "keys", keysOf(w), "a idle2")
				equal(t, "gauge", w.reg.opts.Metrics.Keys.Value(), 2)
				w.reg.Reconfigure(before)
				w.join("b", eds)
				equal(t, "keys after", keysOf(w), "a b idle2")
				if a.refusal() != nil {
					t.Error("a was ended")
				}
			})
		})
	}
}

// An idle key waits for the idle_ttl that is in force now.
func TestReconfigureIdleTTL(t *testing.T) {
	bubble(t, func(o *Options) { o.IdleTTL = time.Hour }, func(w *registryFixture) {
		w.join("a", eds).leave()
		time.Sleep(time.Minute)
		equal(t, "keys", keysOf(w), "a")
		w.reconfigured(func(s *Settings) { s.IdleTTL = 2 * time.Minute })
		time.Sleep(time.Minute - time.Second)
		equal(t, "keys before", keysOf(w), "a")
		time.Sleep(2 * time.Second)
		equal(t, "keys after", keysOf(w), "")
	})
}

// A key may have more names than a lowered limit. A client that gives names up, or wants names that
// others have, goes on. Only a client that wants another name is ended.
func TestReconfigureNamesEndsOnlyGrowingClients(t *testing.T) {
	bubble(t, func(o *Options) { o.Linger = time.Hour }, func(w *registryFixture) {
		a, b := w.join("a", eds).want("v", "w", "x", "y"), w.join("a", eds).want("x", "z")
		w.feed("a").update(t, eds, false, "v=1", "w=1", "x=1", "y=1", "z=1")
		w.reconfigured(func(s *Settings) { s.Limits.NamesPerKey = 2 })
		goesOn := func(what string, c *testClient, requested string) {
			t.Helper()
			synctest.Wait()
			if r := c.refusal(); r != nil {
				t.Fatalf("%s: %v", what, r)
			}
			equal(t, what, w.feed("a").requested(eds), requested)
		}
		goesOn("the same", a.want("v", "w", "x", "y"), "v w x y z")
		goesOn("a name less", a.want("w", "x", "y"), "w x y z")
		goesOn("a name that another has", b.want("w", "x", "z"), "w x y z")
		goesOn("one for another", a.want("u", "w", "x"), "u w x z")
		goesOn("a newcomer with what others have", w.join("a", eds).want("u"), "u w x z")
		b.want("w", "x", "z", "s")
		pass(refuseAfter)
		if r := b.refusal(); r == nil || r.Reason != telemetry.LimitNamesPerKey {
			t.Errorf("one more: %v", r)
		}
		goesOn("the one that is left", a, "u w x")
	})
}
