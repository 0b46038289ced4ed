package orchestrator

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// moving is a group whose names of CDS are on the second stream and whose
// wildcard has just ended, while EDS keeps the first stream busy: the names are
// on their way to the first.
type moving struct {
	*world
	t             *testing.T
	client        *client
	first, second *feed
	names         []string
}

// departs has such a group hold these ("a=1", or "a" for absent) when the move
// begins. The names are those, and pending ones.
func departs(w *world, t *testing.T, held []string, pending ...string) *moving {
	m := &moving{world: w, t: t}
	w.join("web", eds).want("e")
	wild := w.join("web", cds).want("*")
	synctest.Wait()
	for _, h := range held {
		name, _, _ := strings.Cut(h, "=")
		m.names = append(m.names, name)
	}
	m.names = append(m.names, pending...)
	m.client = w.join("web", cds).want(m.names...)
	m.first, m.second = w.feed("web"), w.second("web")
	connect(m.first, m.second)
	m.first.update(t, cds, true)
	if len(held) > 0 {
		m.second.update(t, cds, false, held...)
	}
	wild.leave()
	time.Sleep(10*time.Second - 1)
	m.client.woken()
	time.Sleep(time.Nanosecond)
	synctest.Wait()
	return m
}

// is checks what the client sees of the names, and on which streams they are.
func (m *moving) is(when, sees string, streams int) {
	m.t.Helper()
	var got []string
	for _, n := range m.names {
		got = append(got, m.client.sees(subscription(m.names...), n))
	}
	equal(m.t, when, strings.Join(got, " "), sees)
	equal(m.t, when+": streams", len(m.streams("web")), streams)
}

// What moves is asked for on both streams, and the old one is closed once the
// new has answered the same.
func TestP50_WhatMovesIsAnsweredOnTheNewBeforeItIsDroppedFromTheOld(t *testing.T) {
	bubble(t, nil, func(w *world) {
		m := departs(w, t, []string{"a=1", "b=1", "gone"}, "p")
		w.asks(t, "a b gone p", "a b gone p")
		equal(t, "of EDS", m.first.asks(eds)+m.second.asks(eds), "e")
		m.first.update(t, cds, false, "a=1")
		m.is("one of two", "1 1 - ?", 2)
		m.first.update(t, cds, false, "b=1")
		m.is("both", "1 1 - ?", 1)
		w.asks(t, "a b gone p")
		equal(t, "woken", m.client.woken(), 0)
		// From here on the first alone counts.
		m.first.update(t, cds, false, "a=2", "b", "p=2", "gone=2")
		m.is("afterwards", "2 - 2 2", 1)
	})
}

// Until then the old one alone counts, for what is held: nothing goes back in
// time, and what the one removes the other still holds.
func TestP50_UntilItHasMovedTheOldStreamCounts(t *testing.T) {
	bubble(t, nil, func(w *world) {
		m := departs(w, t, []string{"a=1", "b=1", "c=1"}, "p", "q")
		m.second.update(t, cds, false, "a=2")
		m.first.update(t, cds, false, "a=1", "b", "c=2", "p=1") // older, and newer
		m.is("what is not known counts at once", "2 1 1 1 ?", 2)
		m.first.update(t, cds, false, "p=2", "q")
		m.is("and so does what follows", "2 1 1 2 -", 2)
		m.second.update(t, cds, false, "p=1", "q=1") // older
		m.second.update(t, cds, false, "p")
		m.is("until the old one has come so far", "2 1 1 2 -", 2)
		m.second.update(t, cds, false, "p=2", "q")
		m.second.update(t, cds, false, "p=3")
		m.is("then that counts", "2 1 1 3 -", 2)
		m.first.update(t, cds, false, "p=3")
		m.second.update(t, cds, false, "b", "c=2")
		m.is("all but one", "2 - 2 3 -", 2)
		m.first.update(t, cds, false, "a=2")
		m.is("all", "2 - 2 3 -", 1)
	})
}

// What the two do not agree on in time is as the new one says; what that says
// nothing of stays (P57).
func TestP50_AMoveEndsInTime(t *testing.T) {
	bubble(t, nil, func(w *world) {
		m := departs(w, t, []string{"a=1", "b=1", "c=1"})
		time.Sleep(5 * time.Second)
		m.first.update(t, cds, false, "a=2", "b")
		// The stream was opened anew meanwhile: the time counts from then.
		m.first.sink.Status(upstream.Status{Origin: "origin"})
		time.Sleep(time.Hour)
		m.is("away", "1 1 1", 2)
		connect(m.first)
		time.Sleep(15*time.Second - 1)
		m.is("within absent_after", "1 1 1", 2)
		time.Sleep(time.Nanosecond)
		m.is("after it", "2 - 1", 1)
	})
}

// An old stream that is away has nothing newer to say.
func TestP50_AMoveFromAStreamThatIsAway(t *testing.T) {
	bubble(t, nil, func(w *world) {
		m := departs(w, t, []string{"a=1", "b=1"})
		m.second.sink.Status(upstream.Status{Failed: true})
		m.first.update(t, cds, false, "a=2")
		m.is("not all are answered", "1 1", 2)
		m.first.update(t, cds, false, "b")
		m.is("all are", "2 -", 1)
	})
	bubble(t, nil, func(w *world) {
		m := departs(w, t, []string{"a=1", "b=1"})
		m.second.sink.Status(upstream.Status{Failed: true})
		m.first.update(t, cds, false, "a=2")
		time.Sleep(15*time.Second - 1)
		m.is("not all are answered", "1 1", 2)
		time.Sleep(time.Nanosecond)
		m.is("nor will they be", "2 1", 1)
	})
}

// Where nothing is held there is nothing to wait for.
func TestP50_NothingToMove(t *testing.T) {
	bubble(t, nil, func(w *world) {
		departs(w, t, nil, "p", "q")
		w.asks(t, "p q")
	})
}

// The wildcard is wanted again before its names have moved: neither stream is told
// anything, since both are asked for names, and the wildcard is asked for beside
// them. Nobody downstream hears of it.
func TestP50_TheOtherPartComesBackMeanwhile(t *testing.T) {
	bubble(t, nil, func(w *world) {
		m := departs(w, t, []string{"a=1", "b=1"})
		m.first.update(t, cds, false, "a=1")
		m.client.woken()
		told := m.first.said() + m.second.said()
		wild := w.join("web", cds).want("*")
		w.asks(t, "a b", "a b", "*")
		third := w.streams("web")[2]
		connect(third)
		equal(t, "asked of EDS", m.first.asks(eds)+m.second.asks(eds)+third.asks(eds), "e")
		third.update(t, cds, true, "a=w")
		equal(t, "the wildcard", wild.sees(subscription("*"), "a")+wild.sees(subscription("*"), "b"), "w-")
		equal(t, "told the other two", m.first.said()+m.second.said(), told)
		m.is("the names", "1 1", 3)
		// The wildcard's stream says nothing of names.
		third.update(t, cds, false, "a=3")
		m.second.update(t, cds, false, "a=2")
		m.is("the old stream counts", "2 1", 3)
		m.first.update(t, cds, false, "a=2", "b=1")
		m.is("they have moved", "2 1", 2)
		w.asks(t, "a b", "*")
		equal(t, "told the first", m.first.said(), told-m.second.said())
		equal(t, "woken by it", m.client.woken(), 1) // a=2
		if err := m.second.late(xds.Update{Type: cds, Changed: []*xds.Resource{resource(t, cds, "a", "1")}}); err != nil {
			t.Fatal(err)
		}
		m.is("what was on its way", "2 1", 2)
		third.update(t, cds, true, "a=v")
		equal(t, "the wildcard", wild.sees(subscription("*"), "a"), "v")
		wild.leave()
		time.Sleep(10 * time.Second)
		w.asks(t, "a b")
		equal(t, "told the first", m.first.said(), told-m.second.said())
		equal(t, "streams, ever", w.opened(), 3)
	})
}

// There are never more than three, whatever comes back, and at rest there are two.
func TestP50_AThirdStreamIsTheSecondInTheEnd(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.join("web", eds).want("e")
		m := departs(w, t, []string{"a=1"})
		more := w.join("web", eds).want("*") // beside what is about to go
		synctest.Wait()
		equal(t, "EDS on the second", m.second.asks(eds), "*")
		wild := w.join("web", cds).want("*")
		w.asks(t, "a", "a", "*")
		third := w.streams("web")[2]
		connect(third)
		third.update(t, cds, true, "w=1")
		m.second.update(t, eds, true, "e=1")
		m.first.update(t, cds, false, "a=1")
		// The second is needed still, so what is on the third goes there.
		w.asks(t, "a", "*", "*")
		m.second.update(t, cds, true, "w=1")
		w.asks(t, "a", "*")
		equal(t, "EDS", m.first.asks(eds)+" "+m.second.asks(eds), "e *")
		equal(t, "w", wild.sees(subscription("*"), "w"), "1")
		more.leave()
		wild.leave()
		time.Sleep(10 * time.Second)
		w.asks(t, "a")
		equal(t, "streams, ever", w.opened(), 3)
	})
}

// Names that come and go meanwhile.
func TestP50_NamesChangeWhileTheyMove(t *testing.T) {
	bubble(t, nil, func(w *world) {
		m := departs(w, t, []string{"a=1", "b=1"})
		m.names = []string{"a", "c"}
		m.client.want("a", "c")
		time.Sleep(10 * time.Second)
		w.asks(t, "a c", "a c")
		m.second.update(t, cds, false, "c=1")
		m.first.update(t, cds, false, "a=1")
		m.is("c is not answered yet", "1 1", 2)
		m.first.update(t, cds, false, "c=1")
		m.is("all are", "1 1", 1)
		if m.first.sink.Held(cds).Known("b") {
			t.Error("b is not forgotten")
		}
		m.client.want()
		time.Sleep(10 * time.Second)
		w.asks(t, "")
	})
}

// The new stream is held against what was held when it was asked, and not
// against what the old one brings: its absence from an older answer would be a
// removal (P65).
func TestP65_AStreamIsNotHeldAgainstWhatAnotherBrings(t *testing.T) {
	bubble(t, nil, func(w *world) {
		m := departs(w, t, []string{"a=1"}, "p")
		m.second.update(t, cds, false, "p=1")
		for f, want := range map[*feed]int{m.first: 1, m.second: 2} {
			n := 0
			for range f.sink.Held(cds).Part(false).Resources {
				n++
			}
			equal(t, "held for a stream", n, want)
		}
		m.first.update(t, cds, false, "a=1")
		m.is("p is not answered on the first", "1 1", 2)
		m.first.update(t, cds, false, "p=1")
		m.is("it is", "1 1", 1)
	})
}

// A wildcard moves as names do.
func TestP50_AWildcardMoves(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.join("web", eds).want("e")
		names := w.join("web", cds).want("n")
		synctest.Wait()
		wild, sub := w.join("web", cds).want("*"), subscription("*")
		f, second := w.feed("web"), w.second("web")
		connect(f, second)
		f.update(t, cds, false, "n=1")
		second.update(t, cds, true, "a=1", "b=1")
		names.leave()
		time.Sleep(10 * time.Second)
		w.asks(t, "*", "*")
		wild.woken()
		is := func(when, a, b, c string, streams int) {
			t.Helper()
			equal(t, when, wild.sees(sub, "a")+wild.sees(sub, "b")+wild.sees(sub, "c"), a+b+c)
			equal(t, when+": streams", len(w.streams("web")), streams)
		}
		second.update(t, cds, true, "b=2", "c=2")
		f.update(t, cds, true, "a=1", "b=1") // as it was before
		is("an older answer", "1", "2", "2", 2)
		f.update(t, cds, true, "b=2")
		is("all but c", "1", "2", "2", 2)
		f.update(t, cds, true, "c=2", "d=2")
		is("all that is held, and d", "1", "2", "2", 2)
		equal(t, "d, which may be older or newer", wild.sees(sub, "d"), "-")
		second.update(t, cds, true, "d=2")
		is("all", "1", "2", "2", 1)
		equal(t, "d", wild.sees(sub, "d"), "2")
		f.update(t, cds, true, "a")
		is("afterwards", "-", "2", "2", 1)
	})
}

// Nothing is held of it, but its answer: that has to come as well (P11).
func TestP50_AnEmptyWildcardMoves(t *testing.T) {
	for _, answered := range []bool{true, false} {
		bubble(t, nil, func(w *world) {
			w.join("web", eds).want("e")
			names := w.join("web", cds).want("n")
			synctest.Wait()
			wild := w.join("web", cds).want("*")
			f, second := w.feed("web"), w.second("web")
			connect(f, second)
			if answered {
				second.update(t, cds, true)
			}
			names.leave()
			time.Sleep(10 * time.Second)
			if answered {
				w.asks(t, "*", "*")
				f.update(t, cds, true)
			}
			w.asks(t, "*")
			f.update(t, cds, true, "a=1")
			equal(t, "a", wild.sees(subscription("*"), "a"), "1")
		})
	}
}

// If there is nothing else on the first stream, the second is the first from
// then on, and nothing is asked again.
func TestP50_TheSecondStreamBecomesTheFirst(t *testing.T) {
	for _, c := range []struct{ first, then string }{{"*", "n"}, {"n", "*"}} {
		bubble(t, nil, func(w *world) {
			a, b := w.join("web", cds).want(c.first), w.join("web", cds)
			synctest.Wait()
			b.want(c.then)
			f, second := w.feed("web"), w.second("web")
			connect(f, second)
			second.update(t, cds, c.then == "*", "n=1")
			said := second.said()
			a.leave()
			time.Sleep(10 * time.Second)
			w.asks(t, c.then)
			equal(t, "the stream that is left", w.feed("web"), second)
			equal(t, "told", second.said(), said)
			equal(t, "n", b.sees(subscription(c.then), "n"), "1")
			st, _ := w.reg.Key(xds.NewKey("web"))
			equal(t, "status", st.Upstream.Connected, true)
			if st.Second != nil {
				t.Error("a second stream is shown")
			}
			second.update(t, cds, c.then == "*", "n=2")
			equal(t, "n", b.sees(subscription(c.then), "n"), "2")
			// Another type joins it there.
			w.join("web", eds).want("e")
			synctest.Wait()
			equal(t, "asked of EDS", second.asks(eds), "e")
			equal(t, "streams, ever", w.opened(), 2)
		})
	}
}

// One type needs the second stream, so what another has there may stay.
func TestP50_TheSecondStreamStaysForAnotherType(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.join("web", eds).want("*", "e")
		wild := w.join("web", cds).want("*")
		w.join("web", cds).want("n")
		synctest.Wait()
		f, second := w.feed("web"), w.second("web")
		connect(f, second)
		second.update(t, cds, false, "n=1")
		wild.leave()
		time.Sleep(time.Minute)
		w.asks(t, "", "n")
		equal(t, "EDS", f.asks(eds)+" "+second.asks(eds), "* e")
	})
}
