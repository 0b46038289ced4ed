package orchestrator

import (
	"testing"
	"time"

	"xdsrelay/internal/orchestrator/subscriptions"
	"xdsrelay/internal/xds/snapshot"
)

// sinceFirst returns how long after the first part the wildcard's answer is complete for a client
// that resume. 0 means never.
func sinceFirst(c *client, began time.Time) time.Duration {
	for range 600 {
		if s := c.State().Snapshot(cds); s != nil && s.AnswersWildcard(subscriptions.EverythingResumed) {
			return time.Since(began).Round(100 * time.Millisecond)
		}
		pass(100 * time.Millisecond)
	}
	return 0
}

// A delta origin's answer to a wildcard is complete once no response has added a name for 3 s, or
// 15 s after the first response. Only clients that resume are woken by that.
func TestP67_TheWildcardOfADeltaOrigin(t *testing.T) {
	for what, c := range map[string]struct {
		parts int // each a second after the previous one
		again int // followed by this many parts without a new name
		want  time.Duration
	}{
		"one response":                 {1, 0, 3 * time.Second},
		"several":                      {4, 0, 6 * time.Second},
		"changes that add nothing":     {2, 3, 4 * time.Second},
		"an origin that never ends it": {20, 0, 15 * time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, nil, func(w *registryFixture) {
				other := w.join("web", cds).want("*")
				state := w.join("web", cds)
				sub := state.Intern(&snapshot.Subscription{Wildcard: true, Resumed: true})
				state.Subscribe(sub)
				f := w.feed("web")
				f.reached()
				began := time.Now()
				var took time.Duration
				for n := range c.parts + c.again {
					name := string(rune('a' + min(n, c.parts-1)))
					f.part(t, cds, name)
					if got := other.sees(subscriptions.Everything, name); got != "1" {
						t.Errorf("%s waits: %q", name, got)
					}
					if n+1 < c.parts+c.again {
						pass(time.Second)
					}
					if s := state.State().Snapshot(cds); took == 0 && s.AnswersWildcard(sub) {
						took = time.Since(began)
					}
				}
				other.woken()
				state.woken()
				if took == 0 {
					took = sinceFirst(state, began)
					equal(t, "another client is woken", other.woken(), 0)
					equal(t, "the client with state is woken", state.woken() > 0, true)
				}
				equal(t, "complete after", took, c.want)
				// A later client finds it complete.
				f.part(t, cds, "later")
				late := w.join("web", cds)
				late.Subscribe(late.Intern(sub))
				pass(10 * time.Millisecond)
				equal(t, "complete to a later client", late.State().Snapshot(cds).AnswersWildcard(sub), true)
			})
		})
	}
}

// While the stream is closed the rest cannot come.
func TestP67_TheStreamBreaksBetweenTwoParts(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		c := w.join("web", cds)
		c.Subscribe(c.Intern(&snapshot.Subscription{Wildcard: true, Resumed: true}))
		f := w.feed("web")
		f.reached()
		f.part(t, cds, "a")
		f.failed()
		pass(time.Minute)
		equal(t, "complete while the origin is away", c.State().Snapshot(cds).Complete, false)
		f.reached()
		pass(5 * time.Second)
		equal(t, "complete before the new stream has a response", c.State().Snapshot(cds).Complete, false)
		f.part(t, cds, "a", "b")
		pass(3 * time.Second)
		equal(t, "complete", c.State().Snapshot(cds).Complete, true)
	})
}

// A SotW origin answers a wildcard in one response.
func TestP67_TheWildcardOfASotWOrigin(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		c := w.join("web", cds).want("*")
		f := w.feed("web")
		f.update(t, cds, true, "a=1")
		equal(t, "complete", c.State().Snapshot(cds).Complete, true)
	})
}

// A deletion that takes effect later (P36) is not a response, so it completes no answer.
func TestP67_ADelayedDeletionCompletesNothing(t *testing.T) {
	bubble(t, func(o *Options) { o.RemovalDelay = 5 * time.Second }, func(w *registryFixture) {
		other := w.join("web", cds).want("*")
		other.Routed()
		c := w.join("web", cds)
		c.Subscribe(c.Intern(&snapshot.Subscription{Wildcard: true, Resumed: true}))
		f := w.feed("web")
		f.reached()
		f.part(t, cds, "a", "b")
		other.acks(cds)
		pass(time.Second)
		f.hand(t, snapshot.Update{Type: cds, Origin: "origin", Version: "v2", Wildcard: true, Partial: true, Received: time.Now(), Removed: []string{"b"}})
		f.failed()
		pass(20 * time.Second)
		if s := c.State().Snapshot(cds); s.Complete || s.Len() != 1 {
			t.Errorf("complete %v with %d resources, though the origin is away", s.Complete, s.Len())
		}
	})
}

// A new stream restarts the answer. A response of another type does not affect it.
func TestP67_ANewStreamRestartsTheAnswer(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		c := w.join("web", cds)
		c.Subscribe(c.Intern(&snapshot.Subscription{Wildcard: true, Resumed: true}))
		w.join("web", eds).want("*")
		f := w.feed("web")
		f.reached()
		f.part(t, cds, "a")
		pass(time.Second)
		f.failed()
		pass(time.Second)
		f.reached()
		f.part(t, eds, "l")
		complete := func(want bool) {
			t.Helper()
			if got := c.State().Snapshot(cds).Complete; got != want {
				t.Errorf("complete is %v, want %v", got, want)
			}
		}
		pass(5 * time.Second)
		complete(false)
		f.part(t, cds, "a", "b")
		pass(completeAfter - time.Second)
		complete(false)
		pass(completeAfter)
		complete(true)
	})
}

// An origin may send nothing on a new stream, so the wait for it is bounded.
func TestP67_ANewStreamThatSaysNothing(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		c := w.join("web", cds).want("*")
		f := w.feed("web")
		f.reached()
		f.part(t, cds, "a")
		f.failed()
		f.reached()
		pass(completeLatest + 2*completeAfter)
		if !c.State().Snapshot(cds).Complete {
			t.Error("never complete")
		}
	})
}

// A partial answer replaces nothing in the store. The answer is stored once it is complete.
func TestP66_APartIsNotStored(t *testing.T) {
	dir := t.TempDir()
	withStore(t, dir, func(w *registryFixture) {
		c := w.join("web", cds).want("*")
		f := w.feed("web")
		f.reached()
		f.part(t, cds, "a", "b", "c", "d")
		c.takes() // before it is complete
		pass(20 * time.Second)
	})
	withStore(t, dir, func(w *registryFixture) {
		c := w.join("web", cds).want("*")
		f := w.feed("web")
		f.reached()
		f.part(t, cds, "a")
		c.takes()
		f.failed()
		pass(5 * time.Second)
	})
	withStore(t, dir, func(w *registryFixture) {
		c := w.join("web", cds).want("*")
		f := w.feed("web")
		f.failed()
		pass(20 * time.Second)
		if n := c.State().Snapshot(cds).Len(); n != 4 {
			t.Errorf("%d of 4 are served from the store", n)
		}
	})
}
