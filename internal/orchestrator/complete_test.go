package orchestrator

import (
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/orchestrator/audience"
	"xdsrelay/internal/xds/snapshot"
)

// The times after which an answer is complete and settled, as in content.
const completeAfter, settledAfter = time.Second, 15 * time.Second

// Clients that resume are woken when the wildcard's answer is complete, when it is settled, and when the
// origin removes a name that was never held. Others are not. content.TestP67_Completion has more.
func TestP67_WakesClientsThatResume(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		w.join("web", eds).want("e")
		f := w.feed("web")
		f.reached()
		pass(time.Hour) // the answer is timed from the request, not from the opening of the stream
		other, resumes := w.join("web", cds).want("*"), w.join("web", cds)
		sub := resumes.Intern(&snapshot.Subscription{Wildcard: true, Resumes: true})
		resumes.Request(sub)
		synctest.Wait()
		f.part(t, cds, "a")
		equal(t, "a to the other", other.sees(audience.Everything, "a"), "1")
		woken := func(what string, want int) {
			t.Helper()
			equal(t, what, resumes.woken(), want)
		}
		other.woken()
		resumes.woken()
		f.hand(t, snapshot.Update{Type: cds, Origin: "origin", Wildcard: true, Partial: true, Received: time.Now(), Removed: []string{"gone"}})
		woken("a name is removed", 1)
		pass(completeAfter - time.Millisecond)
		woken("early", 0)
		pass(time.Millisecond)
		woken("complete", 1)
		pass(settledAfter - completeAfter)
		woken("settled", 1)
		equal(t, "the other is woken", other.woken(), 0)
		f.part(t, cds, "later")
		late := w.join("web", cds)
		late.Request(late.Intern(sub))
		equal(t, "complete to a later client", late.State().Snapshot(cds).AnswersWildcard(sub), true)
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
