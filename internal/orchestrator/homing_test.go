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

// ended tells a stream's end to what it brought of CDS and is not to be kept.
func (m *travel) ended(f *feed) {
	m.t.Helper()
	f.hand(m.t, xds.Update{Type: cds, Wildcard: m.wild, Ended: true})
}

// What the old stream let go of is nothing to wait for: the second stream is
// closed at once.
func TestP50_WhatLapsesOnTheOldStreamIsNotWaitedFor(t *testing.T) {
	for _, what := range []string{"expired", "its stream ended", "nobody wants it"} {
		travels(t, "a=1", func(t *testing.T, m *travel) {
			b := uncached(t, cds, "b", "1")
			if what == "expired" {
				b = living(t, cds, "b", "1", 3*time.Second)
			}
			m.second.bring(t, cds, m.wild, b)
			m.says(m.first, "a=1")
			m.is("b has yet to come", "1 1", 2)
			switch what {
			case "expired":
				time.Sleep(3*time.Second - 1)
				m.is("a moment before", "1 1", 2)
				time.Sleep(time.Nanosecond)
			case "its stream ended":
				m.ended(m.second)
			case "nobody wants it":
				m.client.leave()
			}
			m.is(what, "1 ?", 1)
		})
	}
}

// But the new stream has it, be it another: that is served then, since nobody said
// that it is gone, and the old one's next word has to be the same first.
func TestP50_WhatLapsesOnTheOldStreamIsServedFromTheNew(t *testing.T) {
	for _, expires := range []bool{true, false} {
		travels(t, "a=1 c=1", func(t *testing.T, m *travel) {
			b := uncached(t, cds, "b", "1")
			if expires {
				b = living(t, cds, "b", "1", 3*time.Second)
			}
			m.second.bring(t, cds, m.wild, b)
			if !expires {
				m.first.bring(t, cds, m.wild, resource(t, cds, "a", "1"), resource(t, cds, "b", "2"))
				m.ended(m.second)
			} else {
				m.first.bring(t, cds, m.wild, resource(t, cds, "a", "1"))
				time.Sleep(3 * time.Second)
				m.is("expired", "1 ? 1", 2)
				m.first.bring(t, cds, m.wild, resource(t, cds, "b", "2"))
			}
			m.is("c has yet to come", "1 2 1", 2)
			if m.client.State().Snapshot(cds).Received.IsZero() {
				t.Error("nobody knows when that came")
			}
			m.second.bring(t, cds, m.wild, resource(t, cds, "b", "1"))
			m.is("an older word", "1 2 1", 2)
			m.second.bring(t, cds, m.wild, resource(t, cds, "b", "2"))
			m.second.bring(t, cds, m.wild, resource(t, cds, "b", "3"))
			m.is("a newer one", "1 3 1", 2)
			m.first.bring(t, cds, m.wild, resource(t, cds, "b", "3"), resource(t, cds, "c", "1"))
			m.is("moved", "1 3 1", 1)
		})
	}
}

// A heartbeat on either stream puts off the end of what both have.
func TestP62_HeartbeatsWhileAPartMoves(t *testing.T) {
	for _, onNew := range []bool{true, false} {
		travels(t, "a=1", func(t *testing.T, m *travel) {
			m.second.bring(t, cds, m.wild, living(t, cds, "b", "1", 5*time.Second))
			m.first.bring(t, cds, m.wild, living(t, cds, "b", "1", 5*time.Second))
			f := m.second
			if onNew {
				f = m.first
			}
			m.client.woken()
			for range 2 {
				time.Sleep(4 * time.Second)
				f.bring(t, cds, m.wild, f.sink.Held(cds).Held("b").Renew(5*time.Second, time.Now()))
				m.is("renewed", "1 1", 2)
			}
			equal(t, "woken", m.client.woken(), 2)
			// An older TTL of the new stream, and one of another content, are no news.
			m.first.bring(t, cds, m.wild, living(t, cds, "b", "1", time.Second))
			m.first.bring(t, cds, m.wild, living(t, cds, "b", "2", time.Minute))
			equal(t, "woken", m.client.woken(), 0)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if got := m.client.sees(m.sub, "b"); got != "2" {
				t.Errorf("b, which lives on on the new stream alone, is %s", got)
			}
		})
	}
}

// What the new stream brought first, and is not to be cached, goes with it, and
// the old one's word counts again.
func TestP63_TheNewStreamEndsWhileItIsAhead(t *testing.T) {
	for _, said := range []bool{true, false} {
		travels(t, "a=1", func(t *testing.T, m *travel) {
			if m.wild {
				return
			}
			m.first.bring(t, cds, false, uncached(t, cds, "b", "2"), resource(t, cds, "c", "1"))
			if said {
				m.second.bring(t, cds, false, resource(t, cds, "b", "1"))
			}
			m.is("ahead", "1 2 1", 2)
			m.ended(m.first)
			if said {
				m.is("the new one has ended", "1 1 1", 2)
				return
			}
			m.is("the new one has ended", "1 ? 1", 2)
			m.second.bring(t, cds, false, resource(t, cds, "b", "1"))
			m.is("the old one says it", "1 1 1", 2)
		})
	}
}
