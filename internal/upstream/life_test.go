package upstream

import (
	"context"
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
				stream, sink := r.stream(named(rds, "a", "never"))
				s := f.next()
				s.send(resp{typ: rds, res: clusters("a")})
				time.Sleep(16 * time.Second)
				synctest.Wait()
				if is := sink.is(rds, "never"); is != xds.Absent {
					t.Errorf("it is %d though the origin lives", is)
				}
				f.health.Store(&hang)
				f.checks.Store(0)
				time.Sleep(time.Hour)
				stream.SetInterest(sink.want(named(rds, "a", "never", "new")))
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
// that nobody may ask. So is, until one was the origin's own, what a proxy may say in its
// place: of one that has no path for it nobody would ever hear anything else.
func TestP57_AnyAnswerIsASignOfLife(t *testing.T) {
	for _, code := range []codes.Code{codes.OK, codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated, codes.NotFound, codes.Unknown, codes.Unavailable, codes.Internal, codes.DeadlineExceeded, codes.Canceled} {
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

// Where every name is answered nobody is asked, however long nothing comes.
func TestP57_NobodyIsAskedInVain(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		_, sink := n.relay(v, "one").stream(named(rds, "a"), all(cds))
		s := f.next()
		s.request()
		s.request()
		s.send(resp{typ: rds, res: clusters("a")})
		s.send(resp{typ: cds, res: clusters("c")})
		sink.untilNames(t, cds, "c")
		time.Sleep(time.Hour)
		synctest.Wait()
		if c := f.checks.Load(); c != 0 {
			t.Errorf("asked %d times", c)
		}
	})
}

// What came a moment ago on any stream of the connection is a sign as well: nothing is asked then.
func TestP57_AResponseIsASignOfLife(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		r := n.relay(v, "one")
		_, sink := r.stream(named(rds, "a", "never"))
		f.next().send(resp{typ: rds, res: clusters("a")})
		_, other := r.stream(all(cds))
		s := f.next()
		f.health.Store(&fakeLife{hangs: true})
		time.Sleep(10*time.Second + 500*time.Millisecond)
		s.send(resp{typ: cds, res: clusters("c")})
		other.untilNames(t, cds, "c")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if is := sink.is(rds, "never"); is != xds.Absent || f.checks.Load() != 0 {
			t.Errorf("it is %d, asked %d times", is, f.checks.Load())
		}
	})
}

// A sign that is old by the time that counts costs none: another is asked for ahead.
func TestP57_ASignThatWillBeOldIsAskedForAnew(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		r := n.relay(v, "one")
		_, sink := r.stream(named(rds, "a", "never"))
		f.next().send(resp{typ: rds, res: clusters("a")})
		_, other := r.stream(all(cds))
		s := f.next()
		time.Sleep(9 * time.Second)
		s.send(resp{typ: cds, res: clusters("c")})
		other.untilNames(t, cds, "c")
		time.Sleep(6*time.Second + 500*time.Millisecond)
		synctest.Wait()
		if is := sink.is(rds, "never"); is != xds.Absent || f.checks.Load() != 1 {
			t.Errorf("it is %d, asked %d times", is, f.checks.Load())
		}
	})
}

// A sign of life is none any more once it was asked for another in vain, if it was asked.
func TestP57_WhoIsAskedInVainLivesNoMore(t *testing.T) {
	now := time.Now()
	for why, want := range map[error]bool{errInPlace: false, errUnasked: true, errBeside: true} {
		l := newLife()
		l.show(now, time.Minute)
		l.lose(now.Add(5*time.Second), now.Add(10*time.Second), why)
		if until, _ := l.lively(time.Minute); until.Equal(now.Add(20*time.Second)) != want {
			t.Errorf("%v: until %v", why, until.Sub(now))
		}
		l.lose(now.Add(10*time.Second), now.Add(10*time.Second), errUnasked)
		l.show(now.Add(4*time.Second), time.Minute) // it waited to be read
		if until, _ := l.lively(time.Minute); until.IsZero() == want {
			t.Errorf("%v, and it could not be asked since: until %v", why, until.Sub(now))
		}
		l.show(now.Add(11*time.Second), time.Minute)
		if until, _ := l.lively(time.Minute); !until.Equal(now.Add(31 * time.Second)) {
			t.Errorf("%v: it has shown life since", why)
		}
	}
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

// It has absent_after to answer everybody, not only who has asked for its health in vain.
func TestP57_AnOriginThatLivesAgainHasItsTimeForAll(t *testing.T) {
	for what, word := range map[string]bool{"it answers a check": false, "it answers another stream": true} {
		t.Run(what, func(t *testing.T) {
			bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
				f := n.origin("one")
				r := n.relay(v, "one")
				first, one := r.stream(named(rds, "a"))
				s := f.next()
				s.send(resp{typ: rds, res: clusters("a")})
				one.untilNames(t, rds, "a")
				second, two := r.stream(named(rds, "b"))
				s = f.next()
				s.send(resp{typ: rds, res: clusters("b")})
				two.untilNames(t, rds, "b")
				time.Sleep(time.Minute)
				f.health.Store(&fakeLife{hangs: true})
				first.SetInterest(one.want(named(rds, "a", "new")))
				time.Sleep(10 * time.Second)
				second.SetInterest(two.want(named(rds, "b", "later")))
				time.Sleep(13 * time.Second) // the first has asked whether it lives: it does not
				f.health.Store(nil)
				back := time.Now()
				if word {
					_, three := r.stream(all(cds))
					f.next().send(resp{typ: cds, res: clusters("c")})
					three.untilNames(t, cds, "c")
				}
				for one.is(rds, "new") == xds.Pending || two.is(rds, "later") == xds.Pending {
					for _, sink := range []*testSink{one, two} {
						if d := time.Since(back); d < 15*time.Second && (sink.is(rds, "new") == xds.Absent || sink.is(rds, "later") == xds.Absent) {
							t.Fatalf("absent %v after it lived again", d)
						}
					}
					if time.Since(back) > time.Minute {
						t.Fatal("never absent")
					}
					time.Sleep(time.Second)
				}
			})
		})
	}
}

// A stream on which nothing came is silent though its origin lives: that is told once, and
// nothing is said to have come on it.
func TestASignOfLifeIsNoWordOnAStream(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		log := new(logged)
		r := startRelay(t, Options{Variant: v, Dialer: n.dial, Backoff: steep, Keepalive: Keepalive{Time: 1000 * time.Hour}, Log: slog.New(slog.NewTextHandler(log, nil))}, addressOf("one"))
		_, other := r.stream(named(rds, "a"))
		f.next().send(resp{typ: rds, res: clusters("a")})
		other.untilNames(t, rds, "a")
		time.Sleep(time.Hour)
		stream, sink := r.stream(named(rds, "never"))
		f.next()
		time.Sleep(16 * time.Second)
		stream.SetInterest(sink.want(named(rds, "never", "neither")))
		time.Sleep(time.Minute)
		synctest.Wait()
		if is := sink.is(rds, "neither"); is != xds.Absent || f.checks.Load() == 0 {
			t.Errorf("it is %d, asked %d times", is, f.checks.Load())
		}
		sink.mu.Lock()
		defer sink.mu.Unlock()
		for _, st := range sink.statuses {
			if st.Spoken {
				t.Errorf("spoken: %+v", st)
			}
		}
		if log.count("origin is silent: ") != 1 || log.count("silent no more") != 0 || r.client.Origins()[0].Silent != 1 {
			t.Errorf("%+v\n%s", r.client.Origins()[0], log)
		}
	})
}

// A stream that is shown as silent is so no longer than its origin shows no life, also if
// nobody asks for anything on it any more.
func TestAStreamIsNotSilentForEver(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		r := n.relay(v, "one")
		stream, sink := r.stream(named(rds, "a"))
		f.next().send(resp{typ: rds, res: clusters("a")})
		sink.untilNames(t, rds, "a")
		f.health.Store(&fakeLife{hangs: true})
		time.Sleep(time.Hour)
		stream.SetInterest(sink.want(named(rds, "a", "new")))
		time.Sleep(time.Minute)
		stream.SetInterest(sink.want(named(rds, "a")))
		time.Sleep(time.Minute)
		f.health.Store(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		at := r.client.Origins()[0]
		sink.mu.Lock()
		defer sink.mu.Unlock()
		if st := sink.lastStatus(); !st.SilentSince.IsZero() || at.Silent != 0 || !at.SilentSince.IsZero() {
			t.Errorf("status %+v of %+v", st, at)
		}
		was := f.checks.Load()
		time.Sleep(time.Hour)
		if c := f.checks.Load() - was; c > 0 {
			t.Errorf("asked %d times for nothing", c)
		}
	})
}

// The last silent stream of an outage ends, and the origin lives on others: the outage is over.
func TestAnOutageIsOverThoughItsStreamEnded(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		r := n.relay(v, "one")
		ctx, end := context.WithCancel(t.Context())
		sink := newTestSink()
		stream := r.client.NewStream("ends", nil, sink)
		stream.SetInterest(sink.want(named(rds, "a")))
		r.wg.Go(func() { _ = stream.Run(ctx) })
		f.next().send(resp{typ: rds, res: clusters("a")})
		sink.untilNames(t, rds, "a")
		_, other := r.stream(named(rds, "b"))
		s := f.next()
		s.send(resp{typ: rds, res: clusters("b")})
		other.untilNames(t, rds, "b")
		f.health.Store(&fakeLife{hangs: true})
		time.Sleep(time.Hour)
		stream.SetInterest(sink.want(named(rds, "a", "new")))
		time.Sleep(time.Minute)
		if at := r.client.Origins()[0]; at.Silent != 1 {
			t.Errorf("%+v", at)
		}
		end()
		time.Sleep(time.Minute)
		f.health.Store(nil)
		s.send(resp{typ: rds, res: clusters("b")})
		time.Sleep(time.Minute)
		synctest.Wait()
		if at := r.client.Origins()[0]; at.Silent != 0 || !at.SilentSince.IsZero() {
			t.Errorf("%+v", at)
		}
	})
}

// What comes while its health is asked for is a sign of life, though that is not answered.
func TestP57_AResponseDuringACheckIsASignOfLife(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		log := new(logged)
		r := startRelay(t, Options{Variant: v, Dialer: n.dial, Backoff: steep, Keepalive: Keepalive{Time: 1000 * time.Hour}, Log: slog.New(slog.NewTextHandler(log, nil))}, addressOf("one"))
		_, sink := r.stream(named(rds, "a", "b", "never"))
		s := f.next()
		s.send(resp{typ: rds, res: clusters("a")})
		f.health.Store(&fakeLife{hangs: true})
		time.Sleep(13 * time.Second)
		s.send(resp{typ: rds, res: clusters("a", "b")})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if is := sink.is(rds, "never"); is != xds.Absent || f.checks.Load() != 1 || log.count("silent") != 0 {
			t.Errorf("it is %d, asked %d times\n%s", is, f.checks.Load(), log)
		}
	})
}

// One whose health nobody learns, and that speaks every so often, lives, whenever that is.
func TestP57_AnOriginThatSpeaksNowAndThenLives(t *testing.T) {
	for _, every := range []time.Duration{15 * time.Second, 20 * time.Second, 40 * time.Second} {
		for _, phase := range []time.Duration{time.Second, 7 * time.Second, 11 * time.Second} {
			bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
				f := n.origin("one")
				r := n.relay(v, "one")
				_, other := r.stream(named(rds, "a"))
				s := f.next()
				s.send(resp{typ: rds, res: clusters("a")})
				other.untilNames(t, rds, "a")
				f.health.Store(&fakeLife{hangs: true})
				time.Sleep(time.Hour)
				began := time.Now()
				_, sink := r.stream(named(rds, "b", "never"))
				f.next().send(resp{typ: rds, res: clusters("b")})
				time.Sleep(phase)
				for sink.is(rds, "never") == xds.Pending {
					if time.Since(began) > 6*time.Minute {
						t.Fatalf("every %v, from %v on: never absent", every, phase)
					}
					s.send(resp{typ: rds, res: clusters("a")})
					time.Sleep(every)
					synctest.Wait()
				}
			})
		}
	}
}

// What was waited for is let go, of an origin that shows no life, and something else waits: it
// has its time, and nothing is done before that is over.
func TestP57_AnotherNameWaitsForAnOriginThatHangs(t *testing.T) {
	bubbles(t, func(t *testing.T, v xds.Variant, n *inMemory) {
		f := n.origin("one")
		r := n.relay(v, "one")
		stream, sink := r.stream(named(rds, "a"))
		s := f.next()
		s.send(resp{typ: rds, res: clusters("a")})
		sink.untilNames(t, rds, "a")
		f.reopens(s)
		f.health.Store(&fakeLife{hangs: true})
		time.Sleep(time.Minute)
		stream.SetInterest(sink.want(named(rds, "a", "new")))
		time.Sleep(21 * time.Second)
		stream.SetInterest(sink.want(named(rds, "a")))
		time.Sleep(12 * time.Second)
		stream.SetInterest(sink.want(named(rds, "a", "newer")))
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if is := sink.is(rds, "newer"); is != xds.Pending {
			t.Errorf("it is %d", is)
		}
		f.health.Store(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if is := sink.is(rds, "newer"); is != xds.Absent {
			t.Errorf("it is %d", is)
		}
	})
}

// is presence, for who holds no lock.
func (s *testSink) is(typ xds.TypeURL, name string) xds.Presence {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.presence(typ, name)
}

// Who lives again, having been asked in vain, has its time; who could not be asked was not dead.
func TestWhoLivesAgainHasItsTime(t *testing.T) {
	const after = 15 * time.Second
	now := time.Now()
	for _, c := range []struct {
		why  error
		want time.Time
	}{{nil, time.Time{}}, {errInPlace, now.Add(after)}, {errBeside, time.Time{}}, {errUnasked, time.Time{}}, {errNobody, now.Add(after)}} {
		l := newLife()
		if c.why != nil {
			l.lose(now.Add(-2*time.Second), now.Add(-time.Second), c.why)
		}
		l.show(now, after)
		if got := l.grace(after); !got.Equal(c.want) {
			t.Errorf("%v: until %v", c.why, got)
		}
	}
}

// It lives since it first showed it, again and again; what was before, it may have hung.
func TestP57_SinceWhenItLives(t *testing.T) {
	now := time.Now()
	l := newLife()
	for _, c := range []struct{ at, from time.Duration }{{0, 0}, {19 * time.Second, 0}, {38 * time.Second, 0}, {59 * time.Second, 59 * time.Second}, {50 * time.Second, 59 * time.Second}} {
		l.show(now.Add(c.at), time.Minute)
		if _, from := l.lively(time.Minute); !from.Equal(now.Add(c.from)) {
			t.Errorf("shown after %v: since %v", c.at, from.Sub(now))
		}
	}
}
