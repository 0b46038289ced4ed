package upstream

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// originState is one origin, with what all keys together know about it.
type originState struct {
	name, address string
	origin        origin
	metrics       *telemetry.Origin
	log           *slog.Logger
	probes        probeLimiter

	streams atomic.Int64 // open

	// opens paces the streams of keys of which something is held. turn admits one key to an origin
	// that is away although it accepts connections. Both are nil for a directory.
	opens *rate.Limiter
	turn  chan struct{}

	mu         sync.Mutex
	ready      bool          // the kept connection is ready
	failures   uint64        // failed dials, and failed attempts while the origin was away
	counted    uint64        // failures when streams could be opened last
	changed    chan struct{} // closed at each failure and when streams can be opened again
	responding int           // attempts that had a response
	answeredAt time.Time     // when the last attempt with a response ended
	reachedAt  time.Time     // when reached was called last; zero: never
	away       bool          // it failed while no attempt had a response, and was not reached since
	awaySince  time.Time
	backAt     time.Time // when it came back last
	logged     error     // the reason for away that was logged last
	loggedAt   time.Time
	failedAt   time.Time // when the last attempt failed
	unanswered bool      // a stream ended without a response, and none had a response or was silent since
	reconnects uint64
	lastErr    error
	lastErrAt  time.Time

	silent      int       // silent streams
	silentSince time.Time // when the first stream of this outage fell silent; zero: none is silent

	rejected map[rejectedOf]rejection // the types whose newest response was rejected

	unasked map[xds.TypeURL]struct{} // the types of which logUnasked wrote a line
}

// ended counts the end of a stream, or a failed dial.
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
	s.counted = s.failures
	if was {
		s.backAt = s.reachedAt
	}
	s.broadcast()
	s.mu.Unlock()
	if was {
		s.metrics.Away.Add(-1)
		s.log.Info("origin is back", "after", time.Since(since).Round(time.Millisecond))
	}
}

// connected records that the kept connection is ready, or that the directory is readable. An origin
// that then answers nothing is not away: it becomes silent. An origin that ends each stream stays
// away, while attempts show that it still does.
func (s *originState) connected() {
	s.mu.Lock()
	now := time.Now()
	s.ready, s.reachedAt = true, now
	failing := s.unanswered && s.failedLately(now)
	s.mu.Unlock()
	if !failing {
		s.reached(0)
	}
}

// disconnected records that the kept connection is not ready.
func (s *originState) disconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = false
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
	s.answeredAt = time.Now()
}

// answers reports whether the origin answers streams now. Streams that ended just now count, because
// they are opened again within reopenWithin.
func (s *originState) answers() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.responding > 0 || time.Since(s.answeredAt) < 2*reopenWithin
}

// logAwayEvery bounds how often another reason for an unreachable origin is logged. Often there are
// several: the next one shows once the first is repaired.
const logAwayEvery = time.Minute

// unreachable records that no connection can be made, or that the directory cannot be read.
func (s *originState) unreachable(err error) {
	s.ended(err, telemetry.Unreachable)
	s.failed(err, time.Now())
}

// failed records a failed dial, or an attempt that ended without a response. since is when it began,
// or when its stream was opened. If the origin was reached after that, the failure says nothing about
// it. It logs the failure if the origin was not away before or is away for another reason. It returns
// the number of failures for enter.
func (s *originState) failed(err error, since time.Time) (failures uint64) {
	now := time.Now()
	s.mu.Lock()
	if since.Before(s.reachedAt) {
		defer s.mu.Unlock()
		return s.failures
	}
	was, never := s.away, s.reachedAt.IsZero()
	s.failedAt = now
	if !was && s.responding == 0 {
		s.away, s.awaySince = true, now
	}
	away := s.away
	if away || !s.ready {
		s.failures++
		s.broadcast()
	}
	another := away && (!was || err.Error() != s.logged.Error() && now.Sub(s.loggedAt) >= logAwayEvery)
	if another {
		s.logged, s.loggedAt = err, now
	}
	failures = s.failures
	s.mu.Unlock()
	switch {
	case away && !was:
		s.metrics.Away.Add(1)
		s.log.Warn("origin is away", "error", err, "never_reached", never)
	case another:
		s.log.Warn("origin is still away, with another error", "error", err)
	}
	return failures
}

// broadcast wakes all that wait in enter. The caller holds the lock.
func (s *originState) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Bounds on opening streams at an origin (P54).
const (
	dialEvery      = time.Second // while it is away: dials, and streams if it accepts connections
	opensPerSecond = 200         // of keys of which something is held
)

// enter waits until a key may open a stream at the origin (P54). It returns an error if the origin is
// away and failed again since the number of failures in seen, which it updates. That counts as a
// failed attempt of the key. paced: something of the key is held, so it can wait for its turn among
// other keys.
//
// Keys do not dial. They wait until the kept connection is ready. If the origin is away although the
// connection is ready, one key at a time is admitted each second; see offerTurns.
func (s *originState) enter(ctx context.Context, seen *uint64, paced bool) error {
	if s.turn == nil {
		return nil
	}
	for {
		s.mu.Lock()
		blocked := s.away || !s.ready
		failed := blocked && s.failures > max(*seen, s.counted)
		n, why, changed := s.failures, s.lastErr, s.changed
		var turn chan struct{}
		if s.ready {
			turn = s.turn
		}
		s.mu.Unlock()
		switch {
		case failed:
			*seen = n
			return why
		case !blocked && paced:
			return s.opens.Wait(ctx)
		case !blocked:
			return ctx.Err()
		}
		select {
		case <-changed:
		case <-turn:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// offerTurns admits one of the keys that wait in enter each second, until ctx ends.
func (s *originState) offerTurns(ctx context.Context, each time.Duration) {
	tick := time.NewTicker(each)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		select {
		case s.turn <- struct{}{}:
		default: // no key waits
		}
	}
}

// whenChanged returns a channel that is closed when the origin fails or comes back.
func (s *originState) whenChanged() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// backSince returns when the origin came back last; zero: it was never away.
func (s *originState) backSince() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backAt
}

// isBlocked reports whether keys wait in enter.
func (s *originState) isBlocked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn != nil && (s.away || !s.ready)
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
	return now.Sub(s.failedAt) < awayKnownFor
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

// maxUnasked bounds the types of which logUnasked writes a line.
const maxUnasked = 64

// logUnasked logs that the relay dropped something that it does not request (P65), once for each
// type. The type may be requested, but not the name.
func (s *originState) logUnasked(key string, typ xds.TypeURL, name string) {
	s.mu.Lock()
	_, logged := s.unasked[typ]
	if logged = logged || len(s.unasked) >= maxUnasked; !logged {
		if s.unasked == nil {
			s.unasked = make(map[xds.TypeURL]struct{})
		}
		s.unasked[typ] = struct{}{}
	}
	s.mu.Unlock()
	if !logged {
		s.log.Info("relay dropped a resource that it does not request; further ones of this type are not logged", "key", key, "type", typ, "name", name)
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
