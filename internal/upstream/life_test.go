package upstream

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/xds"
)

// An origin that hangs after it spoke takes nothing away: what is asked for meanwhile is
// absent only once it lives again, has had its time, and still says nothing. Meanwhile the
// stream is shown as silent.
func TestP57_AnOriginThatHangsAfterItSpokeIsNoWitness(t *testing.T) {
	for what, hang := range map[string]fakeLife{
		"nothing is answered":      {hangs: true},
		"a proxy answers for it":   {code: codes.Unavailable},
		"a deadline of its own":    {code: codes.DeadlineExceeded},
		"its transport has broken": {code: codes.Internal},
	} {
		t.Run(what, func(t *testing.T) {
			bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
				f := n.origin("one")
				r := n.relay(v, "one")
				stream, sink := r.stream(named(rds, "a"))
				s := f.next()
				s.send(resp{typ: rds, res: clusters("a")})
				sink.untilNames(t, rds, "a")
				f.health.Store(&hang)
				time.Sleep(time.Hour)
				stream.SetInterest(sink.want(named(rds, "a", "new")))
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				at := r.client.Origins()[0]
				sink.mu.Lock()
				if is := sink.presence(rds, "new"); is != xds.Pending {
					t.Errorf("it is %d though the origin hangs", is)
				}
				if st := sink.lastStatus(); !st.Connected || st.SilentSince.IsZero() || at.Silent != 1 || at.Away {
					t.Errorf("status %+v of %+v", st, at)
				}
				sink.mu.Unlock()
				if c := f.checks.Load(); c < 10*60/20-1 || c > 10*60/15+1 {
					t.Errorf("asked %d times in ten minutes", c)
				}

				f.health.Store(nil)
				back := time.Now()
				for sink.is(rds, "new") == xds.Pending && time.Since(back) < time.Minute {
					time.Sleep(time.Second)
				}
				if d := time.Since(back); d < 15*time.Second || d > 36*time.Second {
					t.Errorf("absent after %v", d)
				}
				synctest.Wait()
				if at := r.client.Origins()[0]; at.Silent != 0 || !at.SilentSince.IsZero() {
					t.Errorf("lives, and is silent: %+v", at)
				}
			})
		})
	}
}

// An answer is one, whatever it says: that it knows of no health, that it does not serve,
// that nobody may ask.
func TestP57_AnyAnswerIsASignOfLife(t *testing.T) {
	for _, code := range []codes.Code{codes.OK, codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated, codes.NotFound, codes.Unknown} {
		t.Run(code.String(), func(t *testing.T) {
			bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
				f := n.origin("one")
				_, sink := n.relay(v, "one").stream(named(rds, "a", "never"))
				f.health.Store(&fakeLife{code: code})
				f.next().send(resp{typ: rds, res: clusters("a")})
				time.Sleep(16 * time.Second)
				synctest.Wait()
				if is := sink.is(rds, "never"); is != xds.Absent {
					t.Errorf("it is %d", is)
				}
				if c := f.checks.Load(); c != 1 {
					t.Errorf("asked %d times", c)
				}
			})
		})
	}
}

// What came a moment ago on any stream is a sign as well: nothing is asked then.
func TestP57_AResponseIsASignOfLife(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		r := n.relay(v, "one")
		_, sink := r.stream(named(rds, "a", "never"))
		f.next().send(resp{typ: rds, res: clusters("a")})
		_, other := r.stream(all(cds))
		s := f.next()
		f.health.Store(&fakeLife{hangs: true})
		time.Sleep(12 * time.Second)
		s.send(resp{typ: cds, res: clusters("c")})
		other.untilNames(t, cds, "c")
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if is := sink.is(rds, "never"); is != xds.Absent || f.checks.Load() != 0 {
			t.Errorf("it is %d, asked %d times", is, f.checks.Load())
		}
	})
}

// A stream that ends while its origin shows no life has not been spoken on, and is no
// end of the outage.
func TestAStreamEndsWhileItsOriginHangs(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		log := new(logged)
		r := startRelay(t, Options{Variant: v, Dialer: n.dial, Backoff: steep, Keepalive: Keepalive{Time: 1000 * time.Hour}, Log: slog.New(slog.NewTextHandler(log, nil))}, addressOf("one"))
		_, sink := r.stream(named(rds, "a", "b"))
		s := f.next()
		s.send(resp{typ: rds, res: clusters("a")})
		f.health.Store(&fakeLife{hangs: true})
		time.Sleep(time.Minute)
		s.done <- nil
		s = f.opens()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if log.count("origin is silent: ") != 1 || log.count("silent no more") != 0 || r.client.Origins()[0].SilentSince.IsZero() {
			t.Errorf("%+v\n%s", r.client.Origins()[0], log)
		}
		s.send(resp{typ: rds, res: clusters("a", "b")})
		sink.untilNames(t, rds, "a", "b")
		synctest.Wait()
		if log.count("silent no more") != 1 {
			t.Error(log)
		}
	})
}

// is presence, for who holds no lock.
func (s *testSink) is(typ xds.TypeURL, name string) xds.Presence {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.presence(typ, name)
}
