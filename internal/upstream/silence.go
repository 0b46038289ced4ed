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
// says nothing looks well from all other sides. And it is opened anew if there is a last
// known good of what it asked for: what the origin is asked for goes by what is held,
// or it would never tell what of that is gone (P55).

// errSilent ends a stream for what is known from elsewhere. It is no failure.
var errSilent = errors.New("origin says nothing on the stream, and there is a last known good")

// givenUp returns errSilent if the stream is to be ended, since nothing has come on it.
func (l *line) givenUp(ctx context.Context) error {
	if l.had || !l.serves() {
		return nil
	}
	switch end, err := l.sink.Silent(ctx); {
	case err != nil && ctx.Err() == nil:
		return &sinkError{err}
	case end && err == nil:
		return errSilent
	}
	return nil
}

// recall has what is known from elsewhere be taken over, and opens the next stream.
func (s *Stream) recall(ctx context.Context) error {
	l := s.serving
	l.at.metrics.Reconnect(telemetry.NoResponse)
	s.log.Log(ctx, slog.LevelDebug, "upstream stream ended", "origin", l.at.name, "reason", telemetry.NoResponse, "error", errSilent)
	s.sink.Status(Status{Origin: l.at.name, Attempts: s.attempts})
	if err := s.sink.Recall(ctx); err != nil && ctx.Err() == nil {
		return &sinkError{err}
	}
	s.start(ctx, 0)
	return nil
}

// muted says that the attempt is open for so long, and had no response.
func (l *line) muted(now time.Time) {
	if l.had || !l.silent.IsZero() {
		return
	}
	l.silent = now.Add(-l.client.opts.AbsentAfter)
	l.at.muted(l.silent)
	if l.serves() {
		l.sink.Status(Status{Connected: true, Origin: l.at.name, Attempts: l.failures, SilentSince: l.silent})
	}
}

// unmuted says that it had one, or is over.
func (l *line) unmuted() {
	if l.silent.IsZero() {
		return
	}
	l.silent = time.Time{}
	l.at.unmuted(l.had)
	if l.had && l.serves() {
		l.sink.Status(Status{Connected: true, Origin: l.at.name})
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

// unmuted takes one back. The outage is over once a stream that was silent was
// spoken on, and none is left; streams that end and are silent again are the
// same outage.
func (s *site) unmuted(spoke bool) {
	s.metrics.Silent.Add(-1)
	s.mu.Lock()
	s.silent--
	s.spoke = s.spoke || spoke
	over := s.silent == 0 && s.spoke
	since := s.silentSince
	if over {
		s.silentSince, s.spoke = time.Time{}, false
	}
	s.mu.Unlock()
	if over {
		s.log.Info("origin is silent no more", "after", time.Since(since).Round(time.Millisecond))
	}
}
