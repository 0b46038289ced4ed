package upstream

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"xdsrelay/internal/telemetry"
)

// originState is one origin, with what all keys together know about it.
type originState struct {
	name, address string
	origin        origin
	metrics       *telemetry.Origin
	log           *slog.Logger
	probes        *probeLimiter

	streams atomic.Int64 // open

	mu         sync.Mutex
	responding int       // attempts that had a response
	reachedAt  time.Time // when reached was called last; zero: never
	away       bool      // it failed while no attempt had a response, and was not reached since
	awaySince  time.Time
	logged     error // the reason for away that was logged last
	loggedAt   time.Time
	failedAt   time.Time // when the last attempt failed
	unanswered bool      // a stream ended without a response, and none had a response or was silent since
	reconnects uint64
	lastErr    error
	lastErrAt  time.Time

	silent      int       // silent streams
	silentSince time.Time // when the first stream of this outage fell silent; zero: none is silent

	rejected map[rejectedOf]rejection // the types whose newest response was rejected
}

// ended counts the end of a stream or attempt.
func (s *originState) ended(err error, reason telemetry.Reconnect) {
	s.metrics.Reconnect(reason)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reconnects++
	s.lastErr, s.lastErrAt = err, time.Now()
	if reason == telemetry.NoResponse {
		s.unanswered, s.failedAt = true, s.lastErrAt
	}
}

// An origin is away once the relay cannot connect to it, or an attempt failed, while no other
// attempt has responses. It is back once an attempt has a response or is silent. A connection is
// enough, unless streams ended without a response. Both are logged once.

// reached records that the origin is there. responses is how many more attempts have a response.
func (s *originState) reached(responses int) {
	s.mu.Lock()
	s.responding += responses
	s.reachedAt = time.Now()
	was, since := s.away, s.awaySince
	s.away, s.awaySince, s.unanswered = false, time.Time{}, false
	s.mu.Unlock()
	if was {
		s.metrics.Away.Add(-1)
		s.log.Info("origin is back", "after", time.Since(since).Round(time.Millisecond))
		s.probes.wake()
	}
}

// connected records that the kept connection is ready, or that the directory is readable. An origin
// that then answers nothing is not away: it becomes silent. An origin that ends each stream stays
// away, while attempts show that it still does.
func (s *originState) connected() {
	s.mu.Lock()
	now := time.Now()
	s.reachedAt = now
	failing := s.unanswered && s.failedLately(now)
	s.mu.Unlock()
	if !failing {
		s.reached(0)
	}
}

// responded records an attempt's first response.
func (s *originState) responded() {
	s.reached(1)
	s.checkSilenceOver()
}

// respondedEnded records the end of an attempt that had a response.
func (s *originState) respondedEnded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.responding--
}

// logAwayEvery bounds how often another reason for an unreachable origin is logged. Often there are
// several: the next one shows once the first is repaired.
const logAwayEvery = time.Minute

// failed records an attempt that ended without a response. since is when it began, or when its
// stream was opened. If the origin was reached after that, the attempt says nothing about it.
func (s *originState) failed(err error, since time.Time) {
	if s.fail(err, since) {
		s.probes.failed(time.Now())
	}
}

// unreachable records that no connection can be made, or that the directory cannot be read.
func (s *originState) unreachable(err error) {
	now := time.Now()
	s.mu.Lock()
	s.lastErr, s.lastErrAt = err, now
	s.mu.Unlock()
	s.fail(err, now)
}

// fail records a failure, and logs it if the origin was not away before or is away for another
// reason. It reports whether the origin is away.
func (s *originState) fail(err error, since time.Time) (away bool) {
	now := time.Now()
	s.mu.Lock()
	if since.Before(s.reachedAt) {
		away = s.away
		s.mu.Unlock()
		return away
	}
	was, never := s.away, s.reachedAt.IsZero()
	s.failedAt = now
	if !was && s.responding == 0 {
		s.away, s.awaySince = true, now
	}
	away = s.away
	another := away && (!was || err.Error() != s.logged.Error() && now.Sub(s.loggedAt) >= logAwayEvery)
	if another {
		s.logged, s.loggedAt = err, now
	}
	s.mu.Unlock()
	switch {
	case away && !was:
		s.metrics.Away.Add(1)
		s.log.Warn("origin is away", "error", err, "never_reached", never)
	case another:
		s.log.Warn("origin is still away, with another error", "error", err)
	}
	return away
}

// isAway reports whether the origin is away.
func (s *originState) isAway() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

// awayKnownFor is how long an origin counts as away after its last failure. It may accept
// connections and end every stream. If no key uses it, the relay cannot see that it is back.
const awayKnownFor = time.Minute

// knownAway reports whether the origin is known to be away now.
func (s *originState) knownAway(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away && s.failedLately(now)
}

// failedLately reports whether the last failure is recent. The caller holds the lock.
func (s *originState) failedLately(now time.Time) bool {
	return now.Sub(s.failedAt) < max(awayKnownFor, 2*s.probes.backoff.Max)
}

// becameSilent counts a silent stream, and logs the first. The origin accepted the stream, so it is
// not away.
func (s *originState) becameSilent(since time.Time) {
	s.reached(0)
	s.metrics.Silent.Add(1)
	s.mu.Lock()
	s.silent++
	first := s.silentSince.IsZero()
	if first {
		s.silentSince = since
	}
	s.mu.Unlock()
	if first {
		s.log.Warn("origin is silent: it accepted a stream and has not answered the first requests", "for", time.Since(since).Round(time.Millisecond))
	}
}

// endSilence records that a stream is no longer silent.
func (s *originState) endSilence() {
	s.metrics.Silent.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent--
}

// checkSilenceOver ends the origin's silence after a response, if no stream is silent. A silent
// stream that reopens and stays silent continues the same silence.
func (s *originState) checkSilenceOver() {
	s.mu.Lock()
	since := s.silentSince
	over := s.silent == 0 && !since.IsZero()
	if over {
		s.silentSince = time.Time{}
	}
	s.mu.Unlock()
	if over {
		s.log.Info("origin answers again", "after", time.Since(since).Round(time.Millisecond))
	}
}

func (s *originState) status() OriginStatus {
	faults := s.origin.faults()
	s.mu.Lock()
	defer s.mu.Unlock()
	return OriginStatus{
		Name: s.name, Address: s.address, Away: s.away, AwaySince: s.awaySince,
		Reached: s.reachedAt, Streams: int(s.streams.Load()), Connections: s.metrics.Connected.Value(),
		Reconnects: s.reconnects, LastError: s.lastErr, LastErrorAt: s.lastErrAt,
		Silent: s.silent, SilentSince: s.silentSince, Faults: faults,
		Rejected: rejectedByType(s.rejected),
	}
}
