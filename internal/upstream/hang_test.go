package upstream

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"xdsrelay/internal/xds"
)

// One that hangs for a moment, and goes on just when the time of a name is over, has not left
// it unanswered: what answers for its health may be before what answers on the stream.
func TestP57_AnOriginThatHangsForAMoment(t *testing.T) {
	for until := time.Second; until < 40*time.Second; until += 500 * time.Millisecond {
		bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
			f := n.origin("one")
			stream, sink := n.relay(v, "one").stream(named(rds, "a"))
			s := f.next()
			s.send(resp{typ: rds, res: clusters("a")})
			sink.untilNames(t, rds, "a")
			time.Sleep(time.Minute)
			goesOn := make(chan struct{})
			f.health.Store(&fakeLife{until: goesOn})
			stream.SetInterest(sink.want(named(rds, "a", "new")))
			time.Sleep(until)
			close(goesOn)
			time.Sleep(time.Second)
			synctest.Wait()
			if is := sink.is(rds, "new"); is != xds.Pending && until < 15*time.Second-time.Second || is == xds.Absent && until > 12*time.Second {
				t.Errorf("went on after %v: a second later it is %d", until, is)
			}
			s.send(resp{typ: rds, res: clusters("a", "new")})
			sink.untilNames(t, rds, "a", "new")
		})
	}
}

// One that took its time for a sign of life hung until then, and has all its time from there on.
func TestP57_AnOriginThatHungUntilItAnswered(t *testing.T) {
	for until := 12500 * time.Millisecond; until < 20*time.Second; until += 500 * time.Millisecond {
		bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
			f := n.origin("one")
			stream, sink := n.relay(v, "one").stream(named(rds, "a"))
			f.next().send(resp{typ: rds, res: clusters("a")})
			sink.untilNames(t, rds, "a")
			time.Sleep(time.Minute)
			goesOn := make(chan struct{})
			f.health.Store(&fakeLife{until: goesOn})
			stream.SetInterest(sink.want(named(rds, "a", "new")))
			time.Sleep(until)
			close(goesOn)
			time.Sleep(14500 * time.Millisecond)
			synctest.Wait()
			if is := sink.is(rds, "new"); is != xds.Pending {
				t.Errorf("went on after %v: it is %d", until, is)
			}
			time.Sleep(22 * time.Second)
			synctest.Wait()
			if is := sink.is(rds, "new"); is != xds.Absent {
				t.Errorf("went on after %v: in the end it is %d", until, is)
			}
		})
	}
}

// So has one that takes no other stream on the same connection, and is asked on another.
func TestP57_AnOriginThatHungThoughItsConnectionIsFull(t *testing.T) {
	for until := 15 * time.Second; until < 45*time.Second; until += 500 * time.Millisecond {
		bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
			goesOn := make(chan struct{})
			_, sink, _, _ := full(t, v, n, 15*time.Second, &fakeLife{until: goesOn})
			time.Sleep(until)
			close(goesOn)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if is := sink.is(rds, "never"); is != xds.Pending {
				t.Errorf("went on after %v: it is %d", until, is)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if is := sink.is(rds, "never"); is != xds.Absent {
				t.Errorf("went on after %v: in the end it is %d", until, is)
			}
		})
	}
}

// Also if its connection was heard of just before.
func TestP57_AnOriginThatHungThoughItsFullConnectionWasHeardOf(t *testing.T) {
	for until := 15500 * time.Millisecond; until < 19*time.Second; until += 500 * time.Millisecond {
		bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
			f := n.origin("one", grpc.MaxConcurrentStreams(2))
			r := n.relay(v, "one")
			_, other := r.stream(all(cds))
			s := f.next()
			_, sink := r.stream(named(rds, "a", "never"))
			f.next().send(resp{typ: rds, res: clusters("a")})
			time.Sleep(9 * time.Second)
			s.send(resp{typ: cds, res: clusters("c")})
			other.untilNames(t, cds, "c")
			goesOn := make(chan struct{})
			f.health.Store(&fakeLife{until: goesOn})
			time.Sleep(until - 9*time.Second)
			close(goesOn)
			time.Sleep(14 * time.Second)
			synctest.Wait()
			if is := sink.is(rds, "never"); is != xds.Pending {
				t.Errorf("went on after %v: it is %d", until, is)
			}
		})
	}
}

// Also where a second is all the time that names have.
func TestP57_AnOriginThatHangsIsSeenInASecond(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		_, sink := startRelay(t, Options{Variant: v, AbsentAfter: time.Second, Dialer: n.dial}, addressOf("one")).stream(named(rds, "a", "new"))
		s := f.next()
		time.Sleep(500 * time.Millisecond)
		s.send(resp{typ: rds, res: clusters("a")})
		f.health.Store(&fakeLife{hangs: true})
		time.Sleep(time.Minute)
		synctest.Wait()
		if is := sink.is(rds, "new"); is != xds.Pending {
			t.Errorf("it is %d", is)
		}
	})
}

// There a way to the origin of a fifth of that is no hang.
func TestP57_ASlowWayIsNoHangInASecond(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		f.health.Store(&fakeLife{takes: 200 * time.Millisecond})
		_, sink := startRelay(t, Options{Variant: v, AbsentAfter: time.Second, Dialer: n.dial}, addressOf("one")).stream(named(rds, "a", "never"))
		f.next().send(resp{typ: rds, res: clusters("a")})
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if is := sink.is(rds, "never"); is != xds.Absent {
			t.Errorf("it is %d", is)
		}
	})
}

// What waited to be read, as the relay was busy, is a sign of when it came: the origin may hang since.
func TestP57_WhatWaitedIsNoSignOfLife(t *testing.T) {
	for takes := time.Second; takes <= 30*time.Second; takes += time.Second {
		for _, waits := range []int{1, 2, 5} {
			bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
				f := n.origin("one")
				r := n.relay(v, "one")
				busy := newTestSink()
				other := r.client.NewStream("busy", nil, busySink{busy, rds, takes})
				other.SetInterest(busy.want(named(rds, "a")))
				r.wg.Go(func() { _ = other.Run(r.ctx) })
				s := f.next()
				stream, sink := r.stream(named(rds, "b"))
				f.next().send(resp{typ: rds, res: clusters("b")})
				sink.untilNames(t, rds, "b")
				time.Sleep(time.Minute)
				for range 1 + waits {
					s.send(resp{typ: rds, res: clusters("a")})
				}
				time.Sleep(100 * time.Millisecond)
				f.health.Store(&fakeLife{hangs: true})
				stream.SetInterest(sink.want(named(rds, "b", "new")))
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				if is := sink.is(rds, "new"); is != xds.Pending {
					t.Errorf("%d waited, each for %v: it is %d", waits, takes, is)
				}
			})
		}
	}
}

// One that ends the streams of others again and again soon after its answer begins to speak each time:
// who waits for its first word does not wait for ever.
func TestP57_AnOriginThatBeginsToSpeakAgainAndAgain(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		r := n.relay(v, "one")
		_, sink := r.stream(named(rds, "never"))
		f.next()
		_, other := r.stream(named(rds, "a"))
		for began := time.Now(); sink.is(rds, "never") == xds.Pending; {
			if time.Since(began) > 2*time.Minute {
				t.Fatal("never absent")
			}
			s := f.next()
			s.send(resp{typ: rds, res: clusters("a")})
			other.untilNames(t, rds, "a")
			time.Sleep(8 * time.Second)
			s.done <- nil
		}
	})
}

// What was waited for and let go is none of the times that it may be.
func TestP57_AnOriginThatHangsNowAndThen(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		stream, sink := n.relay(v, "one").stream(named(rds, "a"))
		f.next().send(resp{typ: rds, res: clusters("a")})
		sink.untilNames(t, rds, "a")
		for i := range maxGraces + 1 {
			time.Sleep(time.Hour)
			f.health.Store(&fakeLife{hangs: true})
			stream.SetInterest(sink.want(named(rds, "a", "new")))
			time.Sleep(25 * time.Second)
			f.health.Store(nil)
			time.Sleep(14 * time.Second)
			synctest.Wait()
			if is := sink.is(rds, "new"); is != xds.Pending {
				t.Errorf("%d hangs: it is %d", i+1, is)
			}
			time.Sleep(5 * time.Second)
			stream.SetInterest(sink.want(named(rds, "a")))
		}
	})
}

// One of which some servers hang, and others answer, keeps nobody waiting for ever.
func TestP57_AnOriginThatLivesByHalves(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		_, sink := n.relay(v, "one").stream(named(rds, "a", "never"))
		f.next().send(resp{typ: rds, res: clusters("a")})
		f.health.Store(&fakeLife{hangs: true, half: true})
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if is := sink.is(rds, "never"); is != xds.Absent {
			t.Errorf("it is %d, asked %d times", is, f.checks.Load())
		}
	})
}
