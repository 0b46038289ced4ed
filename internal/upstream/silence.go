package upstream

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"xdsrelay/internal/telemetry"
)

// A stream that is open and on which nothing has come for absent_after is
// silent. It ends nothing for clients (P53): a key may have nothing to
// be told. But it is counted and shown, since an origin that accepts streams and
// says nothing looks well from all other sides.
//
// An origin may hang, or be overloaded. While none of its streams has had a response, and this key
// had none from it since it serves, it is mute, and its silence says nothing of any name: nothing is taken for absent (P57),
// or a relay that has just started would take from clients what they have. And
// what there is of the last known good is served. What the origin is asked for goes by what is
// held, or it would never tell what of that is gone (P55): so the stream ends for it, and another is opened.

// errSilent ends a stream for what is known from elsewhere. It is no failure.
var errSilent = errors.New("origin says nothing, and there is a last known good")

// mute reports whether nothing has come on this stream, nor on those before it that its key had
// to its origin, nor on any other stream that is open to that.
func (l *line) mute() bool { return !l.known() && !l.at.speaks() }

// known: the origin has spoken for the key, and no other did since. It may have nothing to
// add; one that is turned to for another has everything to say (P55).
func (l *line) known() bool { return l.heard.Load() == l.at }

func (s *site) speaks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answering > 0
}

// early reports until when it is too early to take anything for absent, though a name's time is
// over: of a key that waits for its first response an origin that has just begun to speak
// may not have got to it. Zero: it is not.
func (s *site) early(absentAfter time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answering == 0 {
		return time.Time{}
	}
	return s.speaking.Add(absentAfter)
}

// quiet is what a line knows of a silence that lasts through several attempts.
type quiet struct {
	ends int       // attempts that ended for what is known from elsewhere
	last time.Time // when
}

// soon is how long after an attempt that so ended another one may: at first soon, for what
// clients ask for once they have what they asked for first; then ever longer, for an
// origin that is slow is to get to its answer.
func (q quiet) soon(absentAfter time.Duration) time.Duration {
	return absentAfter / 8 << min(max(q.ends-1, 0), 6)
}

// silence is after how long to ask whether to go on.
func (l *line) silence() time.Duration {
	every := l.client.opts.AbsentAfter
	if l.quiet.ends > 0 {
		return min(every, l.quiet.soon(every))
	}
	return every
}

// givenUp returns errSilent if the stream is to be ended, since the origin is mute; and
// when to ask again.
func (l *line) givenUp(ctx context.Context, now time.Time) (next time.Duration, err error) {
	every := l.client.opts.AbsentAfter
	if !l.serves() || !l.mute() {
		return every, nil
	}
	if l.quiet.ends > 0 {
		if wait := l.quiet.last.Add(l.quiet.soon(every)).Sub(now); wait > 0 {
			return wait, nil
		}
	}
	switch end, soon, err := l.sink.Silent(ctx); {
	case err != nil && ctx.Err() == nil:
		return 0, &sinkError{err}
	case err != nil:
		return every, nil
	case end:
		l.quiet.ends++
		l.quiet.last = now
		return 0, errSilent
	case soon:
		return every / 8, nil
	}
	return every, nil
}

// recall has what is known from elsewhere be taken over, and opens the next stream.
func (s *Stream) recall(ctx context.Context) error {
	l := s.serving
	l.at.metrics.Reconnect(telemetry.NoResponse)
	wait := upTo(reopenWithin)
	s.log.Log(ctx, slog.LevelDebug, "upstream stream ended", "origin", l.at.name, "reason", telemetry.NoResponse, "error", errSilent, "retry_in", wait)
	s.sink.Status(Status{Origin: l.at.name, Attempts: s.attempts})
	if err := s.sink.Recall(ctx); err != nil && ctx.Err() == nil {
		return &sinkError{err}
	}
	s.start(ctx, wait)
	return nil
}

// muted says that the attempt is open for so long, and had no response.
func (l *line) muted(now time.Time) {
	if !l.had && l.silent.IsZero() {
		l.quieten(now)
	}
}

// quieten counts and shows the attempt as silent.
func (l *line) quieten(now time.Time) {
	l.silent = now.Add(-l.client.opts.AbsentAfter)
	l.at.muted(l.silent)
	if l.serves() {
		l.sink.Status(Status{Connected: true, Origin: l.at.name, Attempts: l.failures, SilentSince: l.silent})
	}
}

// unmuted says that it is silent no more: it had a response, or had one before and the
// origin shows life again (spoke); or it is over.
func (l *line) unmuted(spoke bool) {
	if l.silent.IsZero() {
		return
	}
	l.silent = time.Time{}
	l.at.unmuted(spoke)
	if spoke && l.serves() {
		l.sink.Status(Status{Connected: true, Origin: l.at.name, Spoken: true})
	}
}

// muted counts a silent stream. The first of an outage is told.
func (s *site) muted(since time.Time) {
	s.metrics.Silent.Add(1)
	s.mu.Lock()
	s.silent++
	first := s.silentSince.IsZero()
	if first {
		s.silentSince = since
	}
	s.mu.Unlock()
	if first {
		s.log.Warn("origin is silent: it accepted a stream and says nothing on it", "for", time.Since(since).Round(time.Millisecond))
	}
}

// unmuted takes one back. The outage is over once none is left, and one that was silent
// was spoken on or the origin is heard of after that; streams that end and are silent
// again are the same outage.
func (s *site) unmuted(spoke bool) {
	s.metrics.Silent.Add(-1)
	s.mu.Lock()
	s.silent--
	s.spoke = s.spoke || spoke
	over := s.spoke
	s.mu.Unlock()
	if over {
		s.heard()
	}
}

// heard says that the origin shows life.
func (s *site) heard() {
	s.mu.Lock()
	since := s.silentSince
	over := s.silent == 0 && !since.IsZero()
	if over {
		s.silentSince, s.spoke = time.Time{}, false
	}
	s.mu.Unlock()
	if over {
		s.log.Info("origin is silent no more", "after", time.Since(since).Round(time.Millisecond))
	}
}
