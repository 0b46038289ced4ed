package upstream

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/xds"
)

// queue is a relay whose first origin is away, and that soon takes an origin for
// silent.
func queue(t *testing.T, o Options) (r *relay, first, second *fakeOrigin) {
	first, second = startFake(t), startFake(t)
	o.Variant = xds.Delta
	r = startRelay(t, o, first.address, second.address)
	r.client.sites[0].failed(errTest)
	return r, first, second
}

// keyed begins a key that the second origin serves.
func (r *relay) keyed(second *fakeOrigin, name string) (*Stream, *testSink) {
	r.t.Helper()
	stream, sink := r.stream(named(rds, name))
	second.serve(1).send(resp{typ: rds, res: clusters(name)})
	sink.untilNames(r.t, rds, name)
	return stream, sink
}

// A key of which an origin has nothing to say does not keep others from returning,
// and returns itself as soon as it is spoken of; nor is an origin that is silent
// of a key one that failed.
func TestP56_SilenceKeepsNobodyFromReturning(t *testing.T) {
	for _, away := range []bool{true, false} {
		t.Run(fmt.Sprint(away), func(t *testing.T) {
			r, first, second := queue(t, Options{})
			at := r.client.sites[0]
			at.tries.silence = 20 * time.Millisecond
			turn, err := at.tries.enter(t.Context()) // until all are there
			if err != nil {
				t.Fatal(err)
			}
			silent := maxTries
			var sinks []*testSink
			for i := range silent {
				_, sink := r.keyed(second, fmt.Sprint("silent", i))
				sinks = append(sinks, sink)
				r.until("its place in the queue", func() bool {
					at.tries.mu.Lock()
					defer at.tries.mu.Unlock()
					return len(at.tries.waiting) == i+1
				})
			}
			_, sink := r.keyed(second, "a")
			if !away {
				at.answered()
				at.unserved()
			}
			turn.leave()
			var tries []*fakeStream
			var spoken *fakeStream
			for range silent + 1 { // which come in any order
				if s := first.next(); strings.Contains(s.request(), "silent") {
					tries = append(tries, s)
				} else {
					spoken = s
				}
			}
			spoken.send(resp{typ: rds, res: []res{{name: "a", version: "A"}}})
			sink.from(t, rds, first.address)
			for _, s := range tries {
				if s.Context().Err() != nil {
					t.Error("a stream that waits for an answer was ended")
				}
				var all []res // nobody knows whose it is
				for i := range silent {
					all = append(all, res{name: fmt.Sprint("silent", i), version: "A"})
				}
				s.send(resp{typ: rds, res: all})
			}
			for _, sink := range sinks {
				sink.from(t, rds, first.address)
			}
		})
	}
}

// Who wants nothing any more when its turn comes takes it from nobody.
func TestP56_WhoWantsNothingTakesNoTurn(t *testing.T) {
	r, first, second := queue(t, Options{})
	q := r.client.sites[0].tries
	r.keyed(second, "k0")
	probe := first.serve(1) // has the turn
	idle, sink := r.keyed(second, "k1")
	r.until("its place in the queue", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.waiting) == 1
	})
	idle.SetInterest(sink.want())
	_, sink = r.keyed(second, "k2")
	probe.done <- nil
	for sink.heldAs(rds, "k2").OriginVersion != "A" {
		first.serve(1).send(resp{typ: rds, res: []res{{name: "k0", version: "A"}, {name: "k2", version: "A"}}})
		r.until("an answer that was taken", func() bool { return len(first.streams) > 0 || sink.heldAs(rds, "k2").OriginVersion == "A" })
	}
}

// Nothing is wanted any more while it is tried out: that ends it, and is no
// failure.
func TestP56_TriesEndWithTheInterest(t *testing.T) {
	r, first, second := queue(t, Options{})
	stream, sink := r.keyed(second, "a")
	probe := first.serve(1)
	stream.SetInterest(sink.want())
	select {
	case <-probe.Context().Done():
	case <-time.After(patience):
		t.Fatal("the first origin is tried out though nothing is wanted")
	}
	stream.SetInterest(sink.want(named(rds, "b")))
	first.serve(1).send(resp{typ: rds, res: clusters("b")})
	sink.from(t, rds, first.address)
	if n := r.client.sites[0].status().Reconnects; n != 0 {
		t.Errorf("%d attempts failed", n)
	}
}

// An origin that answers and then fails at once is not returned to as fast as it
// can: the wait grows. One that lasts is forgiven.
func TestP56_FleetingReturnsBackOff(t *testing.T) {
	b := Backoff{Base: time.Second, Max: 30 * time.Second}
	s := (&Client{opts: Options{Backoff: b, Log: slog.Default()}}).NewStream("key", nil, newTestSink())
	at := new(site)
	within := func(least, most time.Duration) {
		t.Helper()
		for range 100 {
			if d := s.calm(at); d < least || d > most {
				t.Fatalf("waits for %v, want %v to %v", d, least, most)
			}
		}
	}
	s.left(at) // it was begun at, not returned to
	within(0, 0)
	for _, d := range []time.Duration{8, 16, 32, 64, 128, 256, 512, 600, 600} {
		s.returned = time.Now().Add(-lasting / 2)
		s.left(at)
		within(d*time.Second/2, d*time.Second)
	}
	s.left(at) // another served, and failed as well
	within(300*time.Second, 600*time.Second)
	s.returned = time.Now().Add(-2 * lasting)
	s.left(at)
	within(0, 0)
}

// And so it is with real ones: the second time it fails after it took over, it is
// left alone for a while.
func TestP56_AnOriginThatDiesAtOnce(t *testing.T) {
	const base = 50 * time.Millisecond
	first, second := startFake(t), startFake(t)
	r := startRelay(t, Options{Variant: xds.Delta, Backoff: Backoff{Base: base, Max: base}}, first.address, second.address)
	_, sink, b := r.failOver(first, second, named(rds, "a"))
	b.send(resp{typ: rds, res: []res{{name: "a", version: "B"}}})
	sink.from(t, rds, second.address)
	a := first.serve(1)
	a.send(resp{typ: rds, res: []res{{name: "a", version: "A"}}})
	sink.from(t, rds, first.address)
	a.done <- nil
	first.refuse(1)
	a = first.next()
	left := time.Now() // at the latest
	a.done <- nil
	b = second.serve(1)
	b.send(resp{typ: rds, res: []res{{name: "a", version: "B"}}})
	first.serve(1)
	if d := time.Since(left); d < 4*base {
		t.Errorf("it is tried out again after %v", d)
	}
}
