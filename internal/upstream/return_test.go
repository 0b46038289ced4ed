package upstream

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xds"
)

// from waits until a type's word is that of an origin.
func (s *testSink) from(t *testing.T, typ xds.TypeURL, f string) {
	t.Helper()
	s.until(t, "the word of "+f, func() bool { return s.held[typ] != nil && s.held[typ].Origin == f })
}

// P55: what an origin gave while it was tried out is remembered as its own, and
// what it has not given is not.
func TestP55_VersionsOfAnOriginThatWasTriedOut(t *testing.T) {
	first, second := startFake(t), startFake(t)
	r := startRelay(t, Options{Variant: xds.Delta}, first.address, second.address)
	_, sink, b := r.failOver(first, second, named(rds, "a", "b", "c", "d"), named(eds, "e"))
	b.send(resp{typ: rds, res: []res{{name: "a", version: "B"}, {name: "b", version: "B"}, {name: "c", version: "B"}, {name: "d", version: "B"}}})
	b.send(resp{typ: eds, res: clusters("e")})
	sink.untilNames(t, eds, "e")
	a := first.serve(2)
	a.send(resp{typ: rds, res: []res{{name: "a", version: "A"}}})
	a.request()
	a.send(resp{typ: rds, res: []res{{name: "b", version: "A"}}})
	a.request()
	a.send(resp{typ: eds, res: clusters("e")})
	sink.from(t, rds, first.address)
	a.request()
	a.send(resp{typ: rds, res: []res{{name: "c", version: "A"}}})
	a.request()
	a.done <- nil
	a = first.next()
	a.got("RDS +[a b c d] a=A b=A c=A d=")
}

// A type of which the preferred origin says nothing keeps the other serving, if
// anything is held of it; a type of which nothing is held is not waited for.
func TestP56_WhatIsNotAnsweredIsWaitedFor(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		first, second := startFake(t), startFake(t)
		r := startRelay(t, Options{Variant: v}, first.address, second.address)
		stream, sink, b := r.failOver(first, second, all(cds), all(lds), named(eds, "never"))
		b.send(resp{typ: cds, res: clusters("a")})
		b.send(resp{typ: lds, res: clusters("l")})
		sink.untilNames(t, lds, "l")
		a := first.serve(3)
		a.send(resp{typ: cds, res: clusters("a")})
		// It is silent about listeners, of which one is held.
		select {
		case <-time.After(300 * time.Millisecond):
		case <-b.Context().Done():
			t.Error("the other does not serve any more")
		}
		// Nobody wants them any more: then nothing is at stake.
		stream.SetInterest(sink.want(all(cds), named(eds, "never")))
		sink.from(t, cds, first.address)
	})
}

// An origin that accepts streams and answers nothing, or with nothing that can be
// taken, is not returned to, however long it does so.
func TestP56_SilenceAndGarbageAreNoAnswers(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		first, second := startFake(t), startFake(t)
		r := startRelay(t, Options{Variant: v, FirstAnswerTimeout: 20 * time.Millisecond}, first.address, second.address)
		_, sink, _ := r.failOver(first, second, named(rds, "a")) // and the second is silent, too
		a := first.serve(1)
		sink.muted(t)
		a.send(resp{typ: rds, res: clusters("a", "a")})
		if got := a.request(); !strings.Contains(got, "NACK") {
			t.Errorf("request %s", got)
		}
		sink.mu.Lock()
		if s := sink.lastStatus(); s.Origin != second.address {
			t.Errorf("status %+v", s)
		}
		sink.mu.Unlock()
		a.send(resp{typ: rds, res: clusters("a")})
		sink.untilNames(t, rds, "a")
	})
}

// Nor where it has said something else, so that the time of one that nobody has does run
// out: what the other gave of the type is at stake.
func TestP56_SilenceOfANameIsNoAnswer(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		first, second := n.origin("one"), n.origin("two")
		_, sink, b := n.relay(v, "one", "two").failOver(first, second, all(cds), named(rds, "a", "b"))
		b.send(resp{typ: cds, res: clusters("c")})
		b.send(resp{typ: rds, res: clusters("a")})
		sink.untilNames(t, rds, "a")
		a := first.serve(2)
		a.send(resp{typ: cds, res: clusters("c")})
		time.Sleep(time.Minute)
		sink.mu.Lock()
		defer sink.mu.Unlock()
		if s := sink.lastStatus(); s.Origin != addressOf("two") || sink.presence(rds, "a") != xds.Present {
			t.Errorf("status %+v, a is %d", s, sink.presence(rds, "a"))
		}
	})
}

// While nothing is wanted no origin is tried out; and what is tried out follows
// the interest.
func TestP56_TriesFollowTheInterest(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		first, second := startFake(t), startFake(t)
		r := startRelay(t, Options{Variant: v}, first.address, second.address)
		stream, sink, b := r.failOver(first, second, all(cds))
		b.send(resp{typ: cds, res: clusters("a")})
		sink.untilNames(t, cds, "a")
		a := first.serve(1)
		stream.SetInterest(sink.want())
		for _, s := range []*fakeStream{a, b} {
			select {
			case <-s.Context().Done():
			case <-time.After(patience):
				t.Fatal("a stream stays though nothing is wanted")
			}
		}
		select {
		case <-first.streams:
			t.Error("the first origin is tried out though nothing is wanted")
		case <-time.After(100 * time.Millisecond):
		}
		stream.SetInterest(sink.want(named(cds, "b")))
		second.serve(1).send(resp{typ: cds, res: clusters("b")})
		sink.untilNames(t, cds, "b")
		a = first.next()
		if got := a.request(); !strings.HasPrefix(got, ask(v, "CDS", "b")) {
			t.Errorf("request %s", got)
		}
		a.send(resp{typ: cds, res: clusters("b")})
		sink.from(t, cds, first.address)
	})
}

// Directories and servers take each other's place.
func TestP56_ADirectoryAmongTheOrigins(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		dir := filepath.Join(t.TempDir(), "there-later")
		server := startFake(t)
		r := startRelay(t, Options{Variant: v}, "file:"+dir, server.address)
		_, sink := r.stream(all(cds))
		s := server.serve(1)
		s.send(resp{typ: cds, res: clusters("a", "b")})
		sink.untilNames(t, cds, "a", "b")
		made := filepath.Join(filepath.Dir(dir), "made")
		if err := os.Mkdir(made, 0o700); err != nil {
			t.Fatal(err)
		}
		text := `{"version_info": "7", "resources": [{"@type": "` + string(cds) + `", "name": "b", "alt_stat_name": "file"}, {"@type": "` + string(cds) + `", "name": "c"}]}`
		if err := os.WriteFile(filepath.Join(made, "clusters.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(made, dir); err != nil {
			t.Fatal(err)
		}
		sink.from(t, cds, "file:"+dir)
		sink.untilNames(t, cds, "b", "c")
		<-s.Context().Done()
		if err := os.WriteFile(filepath.Join(dir, "clusters.json"), []byte(strings.Replace(text, `"c"`, `"d"`, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		sink.untilNames(t, cds, "b", "d")
	})
}

// P63: what is not to be cached goes with the stream that brought it, unless the
// origin that takes over has brought it, too.
func TestP63_WhatIsNotToBeCachedAndTheReturn(t *testing.T) {
	first, second := startFake(t), startFake(t)
	r := startRelay(t, Options{Variant: xds.Delta}, first.address, second.address)
	_, sink, b := r.failOver(first, second, named(rds, "a"), named(eds, "e"))
	b.send(resp{typ: rds, res: []res{{name: "a", version: "B", uncached: true}}})
	b.send(resp{typ: eds, res: []res{{name: "e", version: "B", uncached: true}}})
	sink.untilNames(t, eds, "e")
	a := first.serve(2)
	a.send(resp{typ: rds, res: []res{{name: "a", version: "A", uncached: true}}})
	a.send(resp{typ: eds, removed: []string{"other"}})
	sink.from(t, rds, first.address)
	sink.untilNames(t, rds, "a")
	sink.mu.Lock()
	n := len(sink.updates)
	sink.mu.Unlock()
	if n == 0 {
		t.Fatal("no update")
	}
	a.done <- nil
	sink.until(t, "the stream's end", func() bool { return len(sink.names(rds)) == 0 })
}

func TestP56_TriesAreLetInInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := true
		q := newTries(Backoff{Base: time.Second, Max: 8 * time.Second}, func() bool { return away })
		q.random = func(d time.Duration) time.Duration { return d }
		ctx := t.Context()
		go q.run(ctx)
		in := make(chan int, 100)
		turns := make(chan *turn, 100)
		for i := range 40 {
			go func() {
				if n, err := q.enter(ctx); err == nil {
					in <- i
					turns <- n
				}
			}()
			synctest.Wait() // in their order
		}
		leave := func() {
			n := <-turns
			n.leave()
			n.leave() // once is enough
		}
		next := 0
		entered := func(n int) {
			t.Helper()
			synctest.Wait()
			var got []int
			for len(in) > 0 {
				got = append(got, <-in)
			}
			slices.Sort(got)
			for i, who := range got {
				if who != next+i {
					t.Fatalf("%v were let in, and it was the turn of %d", got, next)
				}
			}
			if next += n; len(got) != n {
				t.Fatalf("%v were let in, want %d", got, n)
			}
		}
		entered(1)
		for _, wait := range []time.Duration{1, 2, 4, 8, 8} {
			q.failed(time.Now())
			q.failed(time.Now()) // of another: the same outage
			leave()
			time.Sleep(wait*time.Second - 1)
			entered(0)
			time.Sleep(time.Nanosecond)
			entered(1)
		}
		away = false
		q.wake()
		entered(maxTries - 1)
		leave()
		leave()
		entered(2)
		away = true // those that are in stay
		for range maxTries - 1 {
			leave()
		}
		entered(0)
		leave()
		entered(1)
	})
}

// Who does not want to wait any more takes nobody's turn.
func TestP56_WhoLeavesTheQueue(t *testing.T) {
	q := newTries(Backoff{}, func() bool { return true })
	ctx := t.Context()
	if q.admit(true, time.Now()); q.busy != 0 {
		t.Fatal("nobody was let in")
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	for range 3 {
		if _, err := q.enter(gone); err == nil {
			t.Fatal("let in without run")
		}
	}
	if len(q.waiting) != 0 || q.busy != 0 {
		t.Errorf("%d wait, %d are busy", len(q.waiting), q.busy)
	}
}

// Where there is another origin to turn to, one that swallows connections keeps
// nobody waiting for as long as it may where it is the only one (P53).
func TestP56_ConnectingTakesLessWhereThereIsAnother(t *testing.T) {
	timeout := func(addresses ...string) time.Duration {
		return startRelay(t, Options{}, addresses...).client.sites[0].origin.(*grpcOrigin).connectTimeout
	}
	if one, two := timeout("127.0.0.1:1"), timeout("127.0.0.1:1", "127.0.0.1:2"); two >= one || 2*two >= 15*time.Second {
		t.Errorf("%v with one origin, %v with two", one, two)
	}
}
