package orchestrator

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// homing has a client of names whose part is on its way from the second stream
// home: others asked for the wildcard of the type, and have left.
func homing(t *testing.T, w *world, names []string, held ...*xds.Resource) (a *client, home, second *feed) {
	t.Helper()
	w.join("web", cds).want("c")
	wild := w.join("web", eds).want("*")
	a = w.join("web", eds).want(names...)
	synctest.Wait()
	home, second = w.feed("web"), w.second("web")
	connect(home, second)
	second.bring(t, eds, false, held...)
	wild.leave()
	time.Sleep(10 * time.Second)
	synctest.Wait()
	equal(t, "asked at home", home.asks(eds), second.asks(eds))
	return a, home, second
}

// What is not to be cached goes with the new stream as with any other, and is
// then held no more; nobody said that it is gone.
func TestP63_TheNewStreamEndsBeforeAllHasMoved(t *testing.T) {
	bubble(t, nil, func(w *world) {
		a, home, second := homing(t, w, []string{"a", "b"}, resource(t, eds, "a", "1"), uncached(t, eds, "b", "1"))
		sub := subscription("a", "b")
		home.bring(t, eds, false, uncached(t, eds, "b", "1"))
		home.hand(t, xds.Update{Type: eds, Ended: true})
		home.sink.Status(upstream.Status{Origin: "origin"})
		connect(home)
		home.bring(t, eds, false, resource(t, eds, "a", "1"))
		if got := a.sees(sub, "b"); got == "-" {
			t.Errorf("b is %s: it is taken for removed", got)
		}
		if second.over() {
			t.Error("dropped from the old stream before it is answered on the new")
		}
		home.bring(t, eds, false, uncached(t, eds, "b", "1"))
		equal(t, "b", a.sees(sub, "b"), "1")
		equal(t, "the old stream is over", second.over(), true)
	})
}

// What has expired on the new stream is not removed either.
func TestP62_ExpiredOnTheNewStream(t *testing.T) {
	bubble(t, nil, func(w *world) {
		a, home, second := homing(t, w, []string{"a", "b"}, resource(t, eds, "a", "1"), living(t, eds, "b", "1", time.Minute))
		home.bring(t, eds, false, living(t, eds, "b", "1", time.Second))
		second.bring(t, eds, false, living(t, eds, "b", "1", time.Minute))
		time.Sleep(2 * time.Second)
		home.bring(t, eds, false, resource(t, eds, "a", "1"))
		if got := a.sees(subscription("a", "b"), "b"); got == "-" {
			t.Error("b is taken for removed")
		}
	})
}

// What the old stream brought and is not to be cached goes with it, though the
// new one says nothing.
func TestP63_TheNewStreamIsSilent(t *testing.T) {
	bubble(t, nil, func(w *world) {
		a, _, second := homing(t, w, []string{"b"}, uncached(t, eds, "b", "1"))
		time.Sleep(15 * time.Second)
		synctest.Wait()
		equal(t, "the old stream is over", second.over(), true)
		equal(t, "b", a.sees(subscription("b"), "b"), "?")
	})
}

// An error that only the new stream gives is told all the same.
func TestP39_AnErrorOnTheNewStream(t *testing.T) {
	bubble(t, nil, func(w *world) {
		a, home, second := homing(t, w, []string{"b"}, resource(t, eds, "b", "1"))
		home.hand(t, xds.Update{Type: eds, Origin: "origin", Errors: []*xds.ResourceError{failed(t, "b", codes.Internal)}})
		time.Sleep(15 * time.Second)
		synctest.Wait()
		equal(t, "the old stream is over", second.over(), true)
		if a.State().Snapshot(eds).Error(subscription("b"), "b") == nil {
			t.Error("the error is lost")
		}
	})
}
