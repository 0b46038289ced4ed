package upstream

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/upstream/timing"
	"xdsrelay/internal/xds"
)

// Origin is one origin, with what all keys together know about it.
type Origin struct {
	OriginOptions // complete
	transport     transport
	metrics       *telemetry.Origin
	log           *slog.Logger
	probes        *timing.Probes

	streams  atomic.Int64 // open
	draining atomic.Bool  // a member that drains

	// opens paces the streams of keys of which something is held; nil: the origin is a directory.
	opens *rate.Limiter
	// tryEvery is the time between two keys that try an origin that does not respond.
	tryEvery time.Duration

	mu          sync.Mutex
	ready       bool          // the kept connection is ready
	readyAt     time.Time     // when it became so
	failures    uint64        // failed dials, and failed attempts while the origin was away
	counted     uint64        // failures when streams could be opened last
	nextTry     time.Time     // when the next key may try
	changed     chan struct{} // closed at each failure and when streams can be opened again
	responding  int           // attempts that had a response
	respondedAt time.Time     // when the last attempt with a response ended
	reachedAt   time.Time     // when reached was called last; zero: never
	away        bool          // it failed while no attempt had a response, and was not reached since
	awaySince   time.Time
	backAt      time.Time // when it came back last
	logged      error     // the reason for away that was logged last
	loggedAt    time.Time
	failedAt    time.Time // when the last attempt failed
	endsStreams bool      // a stream failed, and the origin was not reached since by another one
	reconnects  uint64
	lastErr     error
	lastErrAt   time.Time

	silent      int       // silent streams
	silentSince time.Time // when the first stream of this outage fell silent; zero: none is silent

	rejected rejections
	unasked  map[xds.TypeURL]struct{} // the types of which logUnasked wrote a line
}

func newOrigin(o OriginOptions, metrics *telemetry.Origin, log *slog.Logger) *Origin {
	return &Origin{
		OriginOptions: o, metrics: metrics, log: log, probes: timing.NewProbes(o.Member), changed: make(chan struct{}),
		rejected: make(rejections), unasked: make(map[xds.TypeURL]struct{}),
	}
}

// text returns the first text for an origin, and the second for a member.
func (o *OriginOptions) text(origin, member string) string {
	if o.Member {
		return member
	}
	return origin
}

// An origin is away once the relay cannot connect to it, or an attempt failed, while no other
// attempt has responses. It is back once an attempt has a response or is silent. A connection is
// enough, unless streams ended without a response. Both are logged once.

// reached records that the origin is there. responses is how many more attempts have a response.
func (s *Origin) reached(responses int) {
	s.mu.Lock()
	s.responding += responses
	s.reachedAt = time.Now()
	was, since := s.away, s.awaySince
	s.away, s.awaySince, s.endsStreams = false, time.Time{}, false
	s.counted = s.failures
	if was {
		s.backAt = s.reachedAt
	}
	s.broadcast()
	s.mu.Unlock()
	if was {
		s.metrics.Away.Add(-1)
		text := s.text("origin is back", "member is back")
		if responses == 0 && s.opens != nil {
			text += ": connected, no answer yet"
		}
		s.log.Info(text, "after", time.Since(since).Round(time.Millisecond))
	}
}

// connected records that the kept connection is ready, or that the directory is readable. An origin
// that then does not respond is not away: it becomes silent. An origin that ends each stream stays
// away, while attempts show that it still does.
func (s *Origin) connected() {
	s.mu.Lock()
	now := time.Now()
	if !s.ready {
		s.readyAt = now
	}
	s.ready, s.reachedAt = true, now
	failing := s.endsStreams && s.failedLately(now)
	s.broadcast() // also while it is away, one key each second tries it
	s.mu.Unlock()
	if !failing {
		s.reached(0)
	}
}

// disconnected records that the kept connection is not ready.
func (s *Origin) disconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = false
}

// responded records an attempt's first response. It ends the origin's silence, if no stream is
// silent. A silent stream that reopens and stays silent continues the same silence.
func (s *Origin) responded() {
	s.reached(1)
	s.mu.Lock()
	since := s.silentSince
	ends := s.silent == 0 && !since.IsZero()
	if ends {
		s.silentSince = time.Time{}
	}
	s.mu.Unlock()
	if ends {
		s.log.Info("origin answers again", "after", time.Since(since).Round(time.Millisecond))
	}
}

func (s *Origin) respondedEnded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.responding--
	s.respondedAt = time.Now()
}

// responds reports whether the origin responds to streams. Streams that ended just now count,
// because they are opened again within reopenWithin.
func (s *Origin) responds() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.responding > 0 || time.Since(s.respondedAt) < 2*reopenWithin
}

// logAwayEvery bounds how often another reason for an unreachable origin is logged.
const logAwayEvery = time.Minute

// unreachable records that no connection can be made, or that the directory cannot be read.
func (s *Origin) unreachable(err error) { s.ended(attemptEnd{}, err, time.Now()) }

// ended records how an attempt or a dial ended. since is when it began, or when its stream was
// opened. If the origin was reached after that, the failure does not make it away. ended logs the
// failure if the origin was not away before, or is away for another reason. It returns the number
// of failures for enter.
func (s *Origin) ended(e attemptEnd, err error, since time.Time) (failures uint64) {
	s.metrics.Reconnect(e.reason())
	now := time.Now()
	s.mu.Lock()
	s.reconnects++
	s.lastErr, s.lastErrAt = err, now
	if e.failed() {
		s.failedAt, s.endsStreams = now, s.endsStreams || e.opened
	}
	if !e.failed() || since.Before(s.reachedAt) || s.Member && e.opened { // it refuses one key
		defer s.mu.Unlock()
		return s.failures
	}
	was, never := s.away, s.reachedAt.IsZero()
	if !was && s.responding == 0 {
		s.away, s.awaySince, s.nextTry = true, now, now.Add(s.tryEvery)
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
		s.log.Warn(s.text("origin is away", "member is away"), "error", err, "never_reached", never)
	case another:
		s.log.Warn(s.text("origin is still away, with another error", "member is still away, with another error"), "error", err)
	}
	return failures
}

// broadcast wakes all that wait in enter. The caller holds the lock.
func (s *Origin) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// backSince returns when the origin came back last, zero if it was never away. changed is closed
// when it comes back, and at each failure.
func (s *Origin) backSince() (at time.Time, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backAt, s.changed
}

// isBlocked reports whether keys wait in enter.
func (s *Origin) isBlocked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opens != nil && (s.away || !s.ready)
}

func (s *Origin) isAway() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

// awayKnownFor is how long an origin counts as away after its last failure. It may accept
// connections and end every stream. If no key uses it, the relay cannot see that it is back.
const awayKnownFor = time.Minute

func (s *Origin) knownAway(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away && s.failedLately(now)
}

// failedLately reports whether the last failure is recent. The caller holds the lock.
func (s *Origin) failedLately(now time.Time) bool {
	return now.Sub(s.failedAt) < awayKnownFor
}

// becameSilent counts the silent stream of a key, and logs the first. The origin accepted the stream, so it is
// not away.
func (s *Origin) becameSilent(key string, since time.Time) {
	s.metrics.Silent.Add(1)
	s.mu.Lock()
	s.silent++
	first := s.silentSince.IsZero()
	if first {
		s.silentSince = since
	}
	s.mu.Unlock()
	s.reached(0)
	if first {
		s.log.Warn(s.text("origin is silent: it accepted a stream and has not answered the first requests", "member is silent: it accepted a stream and has not answered the first requests"), "key", key, "for", time.Since(since).Round(time.Millisecond))
	}
}

func (s *Origin) endSilence() {
	s.metrics.Silent.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent--
}

// maxUnasked bounds the types of which logUnasked writes a line.
const maxUnasked = 64

// logUnasked logs that the relay dropped something that it does not request (P65), once for each
// type. The type may be requested, but not the name.
func (s *Origin) logUnasked(key string, typ xds.TypeURL, name string) {
	s.mu.Lock()
	_, logged := s.unasked[typ]
	if logged = logged || len(s.unasked) >= maxUnasked; !logged {
		s.unasked[typ] = struct{}{}
	}
	s.mu.Unlock()
	if !logged {
		s.log.Info("relay dropped a resource that it does not request; logged once for each type", "key", key, "type", typ, "name", name)
	}
}

func (s *Origin) status() OriginStatus {
	faults := s.transport.Faults()
	s.mu.Lock()
	lastErr := s.lastErr
	out := OriginStatus{
		Name: s.Name, Address: s.Address, Away: s.away, AwaySince: s.awaySince,
		Reached: s.reachedAt, Streams: int(s.streams.Load()), Connections: s.metrics.Connected.Value(),
		Reconnects: s.reconnects, LastErrorAt: s.lastErrAt,
		Silent: s.silent, SilentSince: s.silentSince, Rejected: s.rejected.byType(),
	}
	s.mu.Unlock()
	if lastErr != nil {
		out.LastError = redact.Text(lastErr.Error())
	}
	for _, f := range faults {
		out.Faults = append(out.Faults, redact.Text(fmt.Sprintf("%s: %v", f.File, f.Err)))
	}
	return out
}

// attemptEnd is what the relay knows about an attempt at an origin that ended. The zero value is a
// failed dial.
type attemptEnd struct {
	opened    bool // the origin accepted a stream
	responded bool // the stream had a response
	suspected bool // the origin may have ended the stream because of a suspect (P68)
	held      bool // the relay holds something of what the stream carried
	others    bool // the origin responds to other streams
}

// reason is why the stream has to be opened again.
func (e attemptEnd) reason() telemetry.Reconnect {
	switch {
	case !e.opened:
		return telemetry.Unreachable
	case e.responded:
		return telemetry.Ended
	}
	return telemetry.NoResponse
}

// failed reports whether the attempt is a failure, of the key and of the origin (P53, P54, P56). A
// stream that ended before any response failed, even with status OK. There are two exceptions while
// the origin responds to other streams: a suspect may be the cause, or the origin had nothing to
// send.
func (e attemptEnd) failed() bool {
	excused := e.opened && e.others && (e.suspected || !e.held)
	return !e.responded && !excused
}
