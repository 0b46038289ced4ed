package upstream

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// line is a Stream's conversation with one origin: the one that serves, or one
// that is tried out beside it (P56). It stays with its origin through several
// attempts.
type line struct {
	*Stream
	at       *site
	session  session
	interest cell // of what the Stream's interest is

	// stage takes what the origin says while it is tried out; nil: it serves from
	// the start.
	stage *stage

	// Owned by the goroutine of an attempt while there is one, else by whoever has
	// the line.
	memory memory
	// uncacheable are the parts of which this attempt brought something that is
	// not to be cached, and is yet to be let go of (P63).
	uncacheable map[partOf]struct{}
	open        bool      // the attempt reached the origin
	openedAt    time.Time // when it did
	had         bool      // it brought a response
	silent      time.Time // since when it says nothing; zero: it spoke, or is not open for long
	failures    int       // attempts that failed, since the last response

	cancel context.CancelCauseFunc // of the attempt
	done   chan error              // why it ended; room for one
}

// line makes a line to an origin; stage is nil if it is to serve.
func (s *Stream) line(at *site, m memory, st *stage) *line {
	l := &line{Stream: s, at: at, interest: newCell(), memory: m, stage: st, done: make(chan error, 1)}
	l.session = at.origin.attach(l)
	s.join(&l.interest)
	return l
}

// close ends a line that has no attempt.
func (l *line) close() {
	l.remember()
	l.leave(&l.interest)
	l.session.close()
}

// remember has memory know what the stage has found out.
func (l *line) remember() {
	if l.stage != nil {
		l.stage.remember(l.memory)
	}
}

// start begins an attempt, after a wait: it serves the interest once there is
// any. Its end is told by done.
func (l *line) start(ctx context.Context, wait time.Duration) {
	l.wg.Go(l.begin(ctx, wait))
}

// begin is start for who makes the attempt himself, by what it returns.
func (l *line) begin(ctx context.Context, wait time.Duration) (attempt func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	l.cancel = cancel
	l.remember()
	return func() {
		err := l.attempt(ctx, wait)
		cancel(nil)
		l.done <- err
	}
}

// stop ends the attempt, and returns why it would have ended by itself, if it did
// at the same time.
func (l *line) stop(why error) error {
	l.cancel(why)
	return <-l.done
}

// errReturn ends what serves, since an origin that is preferred takes over.
var errReturn = errors.New("a preferred origin serves")

func (l *line) attempt(ctx context.Context, wait time.Duration) error {
	l.open, l.had, l.uncacheable = false, false, nil
	if wait > 0 {
		l.session.rest(ctx, wait)
	}
	if !l.interest.await(ctx) {
		return context.Cause(ctx)
	}
	err := l.session.serve(ctx)
	l.interest.rest()
	l.unmuted(false)
	if l.open {
		l.at.streams.Add(-1)
		l.client.opts.Metrics.UpstreamStreams.Add(-1)
	}
	if l.had {
		l.at.unserved()
	}
	if ctx.Err() == nil { // else it is for whoever ended it
		if over := l.uncache(ctx, nil); over != nil {
			err = over
		}
	}
	if over := (*sinkError)(nil); ctx.Err() != nil && !errors.As(err, &over) {
		return context.Cause(ctx) // whatever the transport made of that
	}
	return err
}

// ended tells of the end of a stream or attempt, and returns why it has to be
// opened again. A stream that ended before any response, even with OK, failed
// (P54).
func (l *line) ended(err error) telemetry.Reconnect {
	if l.had {
		l.at.ended(err, telemetry.Ended)
		return telemetry.Ended
	}
	reason := telemetry.Unreachable
	if l.open {
		reason = telemetry.NoResponse
	}
	l.failures++
	l.at.ended(err, reason)
	l.at.failed(err)
	return reason
}

// What follows is for sessions.

// changed receives when there is a newer interest than take returned.
func (l *line) changed() <-chan struct{} { return l.interest.signal }

// take returns the newest interest, never to be changed, and what lapsed since
// the last take of this attempt.
func (l *line) take() (*xds.Interest, lapses) {
	i, lapsed := l.interest.take()
	if l.stage != nil {
		l.stage.follow(i, lapsed)
	}
	return i, lapsed
}

// held is the newest snapshot of typ, nil if none; of an origin that is tried out
// it is what it has said, on top of what was held before.
func (l *line) held(typ xds.TypeURL) *xds.Snapshot {
	snap := l.sink.Held(typ)
	if l.stage != nil {
		return l.stage.held(typ, snap)
	}
	return snap
}

// opened says that the origin was reached. Once an attempt.
func (l *line) opened() {
	l.open, l.openedAt = true, time.Now()
	l.at.streams.Add(1)
	l.client.opts.Metrics.UpstreamStreams.Add(1)
	l.log.Debug("upstream stream open", "origin", l.at.name)
	if l.stage != nil {
		l.stage.tell()
	}
	if l.serves() {
		l.sink.Status(Status{Connected: true, Origin: l.at.name, Attempts: l.failures})
	}
}

// answered says that the origin gave a response, by which the attempt is no
// failure (P54).
func (l *line) answered() {
	if l.had {
		return
	}
	l.had, l.failures = true, 0
	l.at.answered()
	l.unmuted(true)
}

// serves: what the origin says goes to the group.
func (l *line) serves() bool { return l.stage == nil || l.stage.over() }

// apply hands an update of this origin over and waits until it is applied. It
// reports whether the snapshot is another one since. Calls never overlap.
func (l *line) apply(ctx context.Context, u xds.Update) (changed bool, err error) {
	return l.hand(ctx, u, answer{})
}

// hand is apply for what is more than a number of names.
func (l *line) hand(ctx context.Context, u xds.Update, a answer) (changed bool, err error) {
	u.Origin = l.at.name
	l.noteUncacheable(&u)
	if l.stage != nil {
		if staged, err := l.stage.put(ctx, &u, a); staged || err != nil {
			return false, err
		}
	}
	return l.update(ctx, u)
}

// update hands an update to the group.
func (s *Stream) update(ctx context.Context, u xds.Update) (changed bool, err error) {
	was := s.sink.Held(u.Type)
	changed, err = s.sink.Update(ctx, u)
	switch {
	case err == nil:
		if changed {
			s.logVersion(&u, was)
		}
		return changed, nil
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	}
	return false, &sinkError{err}
}

// sinkError is an error of the sink: the group is over, and so is Run.
type sinkError struct{ err error }

func (e *sinkError) Error() string { return e.err.Error() }

// told is at which level the end of a stream is told: that origins end streams
// is nothing special, and one that is away is told of once, and not by each key.
func (l *line) told() slog.Level {
	if l.had || l.failures > 1 || l.at.isAway() {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
