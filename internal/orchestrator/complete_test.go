package orchestrator

import (
	"fmt"
	"testing"
	"time"

	"xdsrelay/internal/orchestrator/audience"
	"xdsrelay/internal/xds/snapshot"
)

// The times after which an answer is complete and settled, as in content.
const completeAfter, settledAfter = time.Second, 15 * time.Second

// A delta origin's answer to a wildcard is complete once no response has added a name for as long
// as the longest pause so far, 1 s at least, however long that takes. It is settled after 15 s
// without a new name. Only clients that resume are woken by that.
func TestP67_WildcardOfADeltaOrigin(t *testing.T) {
	for what, c := range map[string]struct {
		first, pause time.Duration // before the first response, and between two
		parts        int
		again        int           // followed by this many responses without a new name
		complete     time.Duration // after the last part
	}{
		"one response":                     {0, 0, 1, 0, time.Second},
		"several":                          {0, 900 * time.Millisecond, 4, 0, time.Second},
		"a slow first response":            {4 * time.Second, 3 * time.Second, 4, 0, 4 * time.Second},
		"a very slow first response":       {20 * time.Second, 10 * time.Second, 4, 0, 20 * time.Second},
		"changes that add nothing":         {0, 400 * time.Millisecond, 3, 4, time.Second},
		"an answer that takes two minutes": {0, 800 * time.Millisecond, 150, 0, time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, nil, func(w *registryFixture) {
				other := w.join("web", cds).want("*")
				state := w.join("web", cds)
				sub := state.Intern(&snapshot.Subscription{Wildcard: true, Resumes: true})
				state.Request(sub)
				f := w.feed("web")
				f.reached()
				pass(c.first)
				var added time.Time
				for n := range c.parts {
					if n > 0 {
						pass(c.pause)
					}
					name := fmt.Sprint("c", n)
					f.part(t, cds, name)
					added = time.Now()
					if got := other.sees(audience.Everything, name); got != "1" {
						t.Errorf("%s waits: %q", name, got)
					}
					equal(t, "complete before the last part", state.State().Snapshot(cds).AnswersWildcard(sub), false)
				}
				for range c.again {
					pass(c.pause)
					f.part(t, cds, "c0")
				}
				other.woken()
				state.woken()
				until := func(what string, after time.Duration, is func(*snapshot.Snapshot) bool) {
					t.Helper()
					pass(time.Until(added.Add(after - time.Millisecond)))
					equal(t, what+" early", is(state.State().Snapshot(cds)), false)
					pass(time.Until(added.Add(after)))
					equal(t, what, is(state.State().Snapshot(cds)), true)
				}
				if c.again == 0 {
					until("complete", c.complete, func(s *snapshot.Snapshot) bool { return s.AnswersWildcard(sub) })
				}
				if c.complete < settledAfter {
					state.woken()
					until("settled", settledAfter, func(s *snapshot.Snapshot) bool { return s.Settled })
				}
				equal(t, "another client is woken", other.woken(), 0)
				equal(t, "the client with state is woken", state.woken() > 0, true)
				// A later client finds it complete.
				f.part(t, cds, "later")
				late := w.join("web", cds)
				late.Request(late.Intern(sub))
				pass(10 * time.Millisecond)
				is := late.State().Snapshot(cds)
				equal(t, "complete to a later client", is.AnswersWildcard(sub) && is.Settled, true)
			})
		})
	}
}

// The pause before the first response begins when the wildcard is requested. The stream may have
// been open for long.
func TestP67_WildcardIsRequestedLater(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		w.join("web", eds).want("e")
		f := w.feed("web")
		f.reached()
		pass(time.Hour)
		c := w.join("web", cds).want("*")
		pass(2 * time.Second)
		f.part(t, cds, "a")
		pass(1900 * time.Millisecond)
		equal(t, "complete early", c.State().Snapshot(cds).Complete, false)
		pass(100 * time.Millisecond)
		equal(t, "complete", c.State().Snapshot(cds).Complete, true)
	})
}

// What the origin removes itself is gone while its stream is open, also if it was never held.
// Clients that resume are woken.
func TestP67_RemovedByTheOrigin(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		c := w.join("web", cds)
		sub := c.Intern(&snapshot.Subscription{Wildcard: true, Resumes: true})
		c.Request(sub)
		f := w.feed("web")
		f.reached()
		f.part(t, cds, "a")
		equal(t, "missing", c.sees(sub, "gone"), "?")
		c.woken()
		f.hand(t, snapshot.Update{Type: cds, Origin: "origin", Wildcard: true, Partial: true, Received: time.Now(), Removed: []string{"gone"}})
		equal(t, "removed", c.sees(sub, "gone"), "-")
		equal(t, "woken", c.woken(), 1)
		f.failed()
		equal(t, "removed on a stream that has ended", c.sees(sub, "gone"), "?")
	})
}

// While the stream is closed the rest cannot come.
func TestP67_StreamEndsBetweenTwoParts(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		c := w.join("web", cds)
		c.Request(c.Intern(&snapshot.Subscription{Wildcard: true, Resumes: true}))
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
		pass(5 * time.Second) // as long as the new stream's first response took
		equal(t, "complete", c.State().Snapshot(cds).Complete, true)
	})
}

// A response to a subscription to the wildcard that has ended says nothing of the next one. The relay has
// forgotten what came before it, and the stream may not know yet that the subscription ended.
func TestP67_LateResponseToAnEndedSubscription(t *testing.T) {
	for what, late := range map[string]snapshot.Update{
		"a removal by a relay":     {Relayed: true, Partial: true, Removed: []string{"b"}},
		"a part of a split answer": {Partial: true},
		"a SotW response":          {},
	} {
		bubble(t, nil, func(w *registryFixture) {
			w.join("web", eds).want("e")
			c := w.join("web", cds).want("*")
			f := w.feed("web")
			f.reached()
			f.part(t, cds, "a", "b")
			c.leave()
			pass(10*time.Second + time.Millisecond) // linger
			equal(t, "requested", f.requested(cds), "")
			again := w.join("web", cds)
			sub := again.Intern(&snapshot.Subscription{Wildcard: true, Resumes: true})
			again.Request(sub)
			pass(time.Millisecond)
			equal(t, "requested again", f.requested(cds), "*")
			late.Type, late.Origin, late.Wildcard, late.Received = cds, "origin", true, time.Now()
			if err := f.late(late); err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
			equal(t, what+" completes the answer", again.State().Snapshot(cds).AnswersWildcard(sub), false)
			f.part(t, cds, "a", "b")
			pass(2 * time.Minute) // as long as the first response took, at least
			equal(t, "complete", again.State().Snapshot(cds).AnswersWildcard(sub), true)
		})
	}
}

// A SotW origin answers a wildcard in one response.
func TestP67_WildcardOfASotWOrigin(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		c := w.join("web", cds).want("*")
		f := w.feed("web")
		f.update(t, cds, true, "a=1")
		equal(t, "complete", c.State().Snapshot(cds).Complete, true)
		equal(t, "settled", c.State().Snapshot(cds).Settled, true)
	})
}

// A deletion that takes effect later (P36) is not a response, so it completes no answer.
func TestP67_DelayedDeletionCompletesNothing(t *testing.T) {
	bubble(t, func(o *Options) { o.RemovalDelay = 5 * time.Second }, func(w *registryFixture) {
		other := w.join("web", cds).want("*")
		other.alsoRoutes()
		c := w.join("web", cds)
		c.Request(c.Intern(&snapshot.Subscription{Wildcard: true, Resumes: true}))
		f := w.feed("web")
		f.reached()
		f.part(t, cds, "a", "b")
		other.acks(cds)
		pass(time.Second / 2)
		f.hand(t, snapshot.Update{Type: cds, Origin: "origin", Version: "v2", Wildcard: true, Partial: true, Received: time.Now(), Removed: []string{"b"}})
		f.failed()
		pass(20 * time.Second)
		if s := c.State().Snapshot(cds); s.Complete || s.Len() != 1 {
			t.Errorf("complete %v with %d resources, though the origin is away", s.Complete, s.Len())
		}
	})
}

// A new stream restarts the answer. A response of another type does not affect it.
func TestP67_NewStreamRestartsTheAnswer(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		c := w.join("web", cds)
		c.Request(c.Intern(&snapshot.Subscription{Wildcard: true, Resumes: true}))
		w.join("web", eds).want("*")
		f := w.feed("web")
		f.reached()
		f.part(t, cds, "a")
		pass(time.Second / 2)
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
		pass(5*time.Second - time.Millisecond) // as long as the first response took
		complete(false)
		pass(time.Millisecond)
		complete(true)
	})
}

// Silence of a new stream completes nothing: a working origin answers it (P55).
func TestP67_SilentNewStreamCompletesNothing(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		c := w.join("web", cds).want("*")
		f := w.feed("web")
		f.reached()
		f.part(t, cds, "a")
		f.failed()
		f.reached()
		pass(time.Minute)
		equal(t, "complete", c.State().Snapshot(cds).Complete, false)
	})
}

// A partial answer replaces nothing in the store. The answer is stored once it is complete.
func TestP66_PartialAnswerIsNotStored(t *testing.T) {
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
