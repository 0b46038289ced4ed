package upstream

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

var errTest = errors.New("for a test")

// failedAgo makes an origin away and sets its last failure to d ago. No attempt was made since.
func (r *relay) failedAgo(s *Origin, d time.Duration) {
	r.t.Helper()
	r.fail(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failedAt = s.failedAt.Add(-d)
}

// P53: an origin that failed long ago may be back. If no key tried it since, the relay does not
// close client streams because of it.
func TestP53_OriginThatFailedLongAgo(t *testing.T) {
	for _, c := range []struct {
		ago    time.Duration
		failed bool
	}{{0, true}, {time.Hour, false}} {
		first, second := startFake(t), startFake(t)
		r := startRelay(t, xds.Delta, Options{}, first.address, second.address)
		r.failedAgo(r.client.origins[1], c.ago)
		_, sink := r.stream(named(rds, "a"))
		first.serve(1).done <- nil
		sink.Until(t, "the failure", func() bool { return len(sink.failures()) > 0 })
		sink.Mu.Lock()
		for _, s := range sink.statuses {
			if s.Err != nil && s.Failed != c.failed {
				t.Errorf("%v after the second failed: %+v", c.ago, s)
			}
		}
		sink.Mu.Unlock()
	}
}

// The relay also does not prefer another origin to it, neither at the start nor at a switch.
func TestP56_OriginThatFailedLongAgo(t *testing.T) {
	first, second, third := startFake(t), startFake(t), startFake(t)
	r := startRelay(t, xds.Delta, Options{}, first.address, second.address, third.address)
	r.failedAgo(r.client.origins[1], time.Hour)
	_, sink := r.stream(named(rds, "a"))
	first.refuse(2)
	second.serve(1).send(resp{Type: rds, Resources: clusters("a")})
	sink.from(t, rds, second.address)
	if len(third.streams) > 0 {
		t.Error("the third origin was tried")
	}

	first, second = startFake(t), startFake(t)
	r = startRelay(t, xds.Delta, Options{}, first.address, second.address)
	r.failedAgo(r.client.origins[0], time.Hour)
	_, sink = r.stream(named(rds, "a"))
	first.serve(1).send(resp{Type: rds, Resources: clusters("a")})
	sink.from(t, rds, first.address)
	if len(second.streams) > 0 {
		t.Error("the second origin was tried")
	}
}

// testOrigin makes an origin without a transport.
func testOrigin(t *testing.T, log *slog.Logger) *Origin {
	t.Helper()
	m, err := telemetry.New(telemetry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return newOrigin(OriginOptions{Name: "o"}, m.Origin("o"), log)
}

// failedOrigin makes an origin that was connected a second ago, and then ended a stream.
func failedOrigin(t *testing.T) *Origin {
	s := testOrigin(t, slog.New(slog.DiscardHandler))
	s.opens, s.tryEvery = rate.NewLimiter(opensPerSecond, 1), dialEvery
	s.connected()
	time.Sleep(time.Second)
	s.ended(attemptEnd{opened: true}, errTest, time.Now())
	return s
}

// An origin that ended streams, and then the connection, is tried each second once the connection is
// back.
func TestP54_FailingOriginIsTriedOnTheNextConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := failedOrigin(t)
		s.disconnected()
		began := time.Now()
		entered := make(chan error)
		go func() { entered <- s.enter(t.Context(), nil, false) }()
		synctest.Wait()
		s.connected()
		if err := <-entered; err != nil || time.Since(began) > 2*dialEvery {
			t.Errorf("entered after %v: %v", time.Since(began), err)
		}
	})
}

// A key that comes to an origin which failed does not wait for an attempt. If that was long ago, and no
// key has tried it since, the key itself does.
func TestP54_OldFailureDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := failedOrigin(t)
		for _, c := range []struct {
			later time.Duration
			want  error
		}{{0, errTest}, {9 * dialEvery, errTest}, {2 * dialEvery, nil}} {
			time.Sleep(c.later)
			if err := s.enter(t.Context(), new(uint64), false); !errors.Is(err, c.want) {
				t.Errorf("%v later: %v", c.later, err)
			}
		}
		s.disconnected()
		if err := s.enter(t.Context(), new(uint64), false); !errors.Is(err, errTest) {
			t.Errorf("not connected: %v", err)
		}
	})
}

// If an unreachable origin fails for a new reason, the relay logs that reason too. It limits how
// often, because reasons may alternate.
func TestAwayForAnotherReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log xdstest.Log
		s := testOrigin(t, log.Logger())
		says := func(away, another int) {
			t.Helper()
			if a, b := log.Count(`"origin is away"`), log.Count(`"origin is still away, with another error"`); a != away || b != another {
				t.Errorf("logged %d and %d times, want %d and %d:\n%s", a, b, away, another, &log)
			}
		}
		fails := func(why string) { s.ended(attemptEnd{opened: true}, errors.New(why), time.Now()) }
		fails("refused")
		fails("no such host")
		says(1, 0)
		time.Sleep(logAwayEvery)
		fails("refused")
		says(1, 0)
		fails("no such host")
		fails("certificate")
		says(1, 1)
		time.Sleep(logAwayEvery)
		fails("no such host")
		says(1, 1)
		s.responded()
		s.respondedEnded()
		fails("no such host")
		says(2, 1)
	})
}
