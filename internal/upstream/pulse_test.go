package upstream

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xds"
)

// What came in time is an answer, though the relay is busy with what came before it.
func TestP57_AnAnswerThatWaitsIsNoSilence(t *testing.T) {
	long := make([]string, 400) // so that it comes in parts, as there is room
	for i := range long {
		long[i] = fmt.Sprint(i, strings.Repeat("x", 1000))
	}
	for _, more := range [][]string{nil, long} {
		bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
			f := n.origin("one")
			r := n.relay(v, "one")
			sink := newTestSink()
			sink.gate = make(chan struct{})
			r.run(sink, named(rds, "a"), named(eds, "b"))
			s := f.next()
			time.Sleep(14 * time.Second)
			s.send(resp{typ: rds, res: clusters("a")})
			r.wg.Go(func() { s.send(resp{typ: eds, res: clusters(append(more, "b")...)}) })
			time.Sleep(2 * time.Second)
			close(sink.gate)
			synctest.Wait()
			sink.mu.Lock()
			defer sink.mu.Unlock()
			for _, u := range sink.updates {
				if u.Guess {
					t.Errorf("taken for absent: %v %v", u.Type, u.Removed)
				}
			}
		})
	}
}

// Nor is it if the relay then opens the stream anew: the origin is asked once more, and has its
// time for it.
func TestP57_AnAnswerThatWasNotReadIsAskedForAnew(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		r := n.relay(v, "one")
		sink := newTestSink()
		sink.gate = make(chan struct{})
		stream := r.client.NewStream("key", nil, sink)
		stream.SetInterest(sink.want(named(rds, "a"), named(eds, "b"), named(cds, "c")))
		r.wg.Go(func() { _ = stream.Run(r.ctx) })
		s := f.next()
		time.Sleep(14 * time.Second)
		s.send(resp{typ: rds, res: clusters("a")})
		s.send(resp{typ: eds, res: clusters("b")})
		time.Sleep(2 * time.Second)
		stream.SetInterest(sink.want(named(rds, "a"), named(eds, "b"), all(cds)))
		s = f.opens()
		close(sink.gate)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for typ, name := range map[xds.TypeURL]string{rds: "a", eds: "b"} {
			if is := sink.is(typ, name); is != xds.Pending {
				t.Errorf("%s is %d", name, is)
			}
		}
		s.send(resp{typ: eds, res: clusters("b")})
		sink.untilNames(t, eds, "b")
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if is := sink.is(rds, "a"); is != xds.Absent {
			t.Errorf("a is %d", is)
		}
	})
}

// To one that takes its time all that it has done is lost with the stream: it has as long for
// it once more.
func TestP57_ASlowOriginIsAskedAnew(t *testing.T) {
	const slow = 14 * time.Second
	for at := time.Second; at < slow; at += time.Second {
		bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
			f := n.origin("one")
			stream, sink := n.relay(v, "one").stream(named(cds, "c"))
			f.next().send(resp{typ: cds, res: clusters("c")})
			sink.untilNames(t, cds, "c")
			time.Sleep(time.Minute)
			stream.SetInterest(sink.want(named(cds, "c"), named(rds, "a")))
			time.Sleep(at)
			stream.SetInterest(sink.want(all(cds), named(rds, "a")))
			f.opens()
			time.Sleep(slow)
			synctest.Wait()
			if is := sink.is(rds, "a"); is != xds.Pending {
				t.Errorf("opened anew after %v: it is %d", at, is)
			}
		})
	}
}

// busySink takes its time over each update of a type.
type busySink struct {
	*testSink
	of    xds.TypeURL
	takes time.Duration
}

func (s busySink) Update(ctx context.Context, u xds.Update) (bool, error) {
	if u.Type == s.of && !u.Guess {
		sleep(ctx, s.takes)
	}
	return s.testSink.Update(ctx, u)
}

// However long that takes, and though the origin is known to live.
func TestP57_AnAnswerThatWaitsForLong(t *testing.T) {
	for _, takes := range []time.Duration{8 * time.Second, 14 * time.Second, 20 * time.Second, 40 * time.Second} {
		bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
			f := n.origin("one")
			r := n.relay(v, "one")
			_, other := r.stream(all(cds))
			o := f.next()
			lives := func(seconds int) {
				for range seconds {
					o.send(resp{typ: cds, res: clusters("c")})
					time.Sleep(time.Second)
				}
			}
			lives(1)
			other.untilNames(t, cds, "c")
			sink := newTestSink()
			stream := r.client.NewStream("key", nil, busySink{sink, rds, takes})
			stream.SetInterest(sink.want(named(rds, "a"), named(eds, "b")))
			r.wg.Go(func() { _ = stream.Run(r.ctx) })
			s := f.next()
			lives(14)
			s.send(resp{typ: rds, res: clusters("a")})
			r.wg.Go(func() { s.send(resp{typ: eds, res: clusters(append(long()[:400], "b")...)}) }) // in parts, as there is room
			lives(50)
			synctest.Wait()
			sink.mu.Lock()
			defer sink.mu.Unlock()
			for _, u := range sink.updates {
				if u.Guess {
					t.Errorf("applied for %v: taken for absent: %v %v", takes, u.Type, u.Removed)
				}
			}
		})
	}
}

// Nor is it of an origin that was waited for, as it did not speak or hung, for longer than
// a name has.
func TestP57_AnAnswerThatWaitsOfAnOriginThatWasWaitedFor(t *testing.T) {
	for _, takes := range []time.Duration{14 * time.Second, 20 * time.Second, 40 * time.Second} {
		for _, spoke := range []bool{false, true} {
			bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
				f := n.origin("one")
				r := n.relay(v, "one")
				_, other := r.stream(all(cds))
				o := f.next()
				lives := func(seconds int) {
					for range seconds {
						o.send(resp{typ: cds, res: clusters("c")})
						time.Sleep(time.Second)
					}
				}
				if spoke {
					lives(1)
					other.untilNames(t, cds, "c")
				}
				f.health.Store(&fakeLife{hangs: true})
				sink := newTestSink()
				stream := r.client.NewStream("key", nil, busySink{sink, rds, takes})
				stream.SetInterest(sink.want(named(rds, "a"), named(eds, "b")))
				r.wg.Go(func() { _ = stream.Run(r.ctx) })
				s := f.next()
				time.Sleep(time.Minute)
				f.health.Store(nil)
				lives(1)
				s.send(resp{typ: rds, res: clusters("a")})
				r.wg.Go(func() { s.send(resp{typ: eds, res: clusters(append(long()[:400], "b")...)}) }) // in parts, as there is room
				lives(60)
				synctest.Wait()
				sink.mu.Lock()
				defer sink.mu.Unlock()
				for _, u := range sink.updates {
					if u.Guess {
						t.Errorf("it spoke: %v; applied for %v: taken for absent: %v %v", spoke, takes, u.Type, u.Removed)
					}
				}
			})
		}
	}
}

// But not for ever: of an origin that never stops speaking of other things a name is absent
// in twice the time.
func TestP57_AnOriginThatNeverStops(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		r := n.relay(v, "one")
		sink := newTestSink()
		stream := r.client.NewStream("key", nil, busySink{sink, rds, 100 * time.Millisecond})
		stream.SetInterest(sink.want(named(rds, "a", "never")))
		r.wg.Go(func() { _ = stream.Run(r.ctx) })
		s := f.next()
		for began := time.Now(); sink.is(rds, "never") == xds.Pending; {
			if time.Since(began) > 31*time.Second {
				t.Fatal("never absent")
			}
			s.send(resp{typ: rds, res: clusters("a")})
			time.Sleep(150 * time.Millisecond)
		}
	})
}

// A second stop takes nothing of the time that the first gave.
func TestP57_ALongStopAndAShortOne(t *testing.T) {
	p := pulse{most: 15 * time.Second}
	now := time.Now()
	p.last = now
	now = now.Add(20 * time.Second)
	until := p.beat(now)
	if want := now.Add(15 * time.Second); !until.Equal(want) {
		t.Errorf("listens after %v", until.Sub(now))
	}
	now = now.Add(2500 * time.Millisecond)
	if again := p.beat(now); !again.Equal(until) {
		t.Errorf("listens %v sooner", until.Sub(again))
	}
}
