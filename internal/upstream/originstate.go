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
	responding int  // attempts that had a response
	away       bool // an attempt failed, and no attempt has had a response since
	awaySince  time.Time
	logged     error // the reason for away that was logged last
	loggedAt   time.Time
	failedAt   time.Time // when the last attempt failed
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
}

// An origin is away once an attempt failed while no other attempt has responses.
// That is logged once, and once more when the origin is back.

// responded records an attempt's first response.
func (s *originState) responded() {
	s.mu.Lock()
	s.responding++
	was, since := s.away, s.awaySince
	s.away, s.awaySince = false, time.Time{}
	s.mu.Unlock()
	s.checkSilenceOver()
	if was {
		s.metrics.Away.Add(-1)
		s.log.Info("origin is back", "after", time.Since(since).Round(time.Millisecond))
		s.probes.wake()
	}
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

// failed records an attempt that ended without a response.
func (s *originState) failed(err error) {
	now := time.Now()
	s.mu.Lock()
	was := s.away
	s.failedAt = now
	if !was && s.responding == 0 {
		s.away, s.awaySince = true, now
	}
	is := s.away
	another := is && (!was || err.Error() != s.logged.Error() && now.Sub(s.loggedAt) >= logAwayEvery)
	if another {
		s.logged, s.loggedAt = err, now
	}
	s.mu.Unlock()
	if is {
		s.probes.failed(now)
	}
	switch {
	case is && !was:
		s.metrics.Away.Add(1)
		s.log.Warn("origin is away", "error", err)
	case another:
		s.log.Warn("origin is still away, with another error", "error", err)
	}
}

// isAway reports whether an attempt failed and none has had a response since.
func (s *originState) isAway() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

// awayKnownFor is how long an origin counts as away after its last failed attempt. If no key uses
// the origin, the relay cannot see that it is back.
const awayKnownFor = time.Minute

// knownAway reports whether the origin is known to be away now.
func (c *Client) knownAway(s *originState, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away && now.Sub(s.failedAt) < max(awayKnownFor, 2*c.opts.Backoff.Max)
}

// becameSilent counts a silent stream, and logs the first.
func (s *originState) becameSilent(since time.Time) {
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
	n, faults := s.origin.connections(), s.origin.faults()
	s.mu.Lock()
	defer s.mu.Unlock()
	return OriginStatus{
		Name: s.name, Address: s.address, Away: s.away, AwaySince: s.awaySince,
		Streams: int(s.streams.Load()), Connections: n,
		Reconnects: s.reconnects, LastError: s.lastErr, LastErrorAt: s.lastErrAt,
		Silent: s.silent, SilentSince: s.silentSince, Faults: faults,
		Rejected: rejectedByType(s.rejected),
	}
}
