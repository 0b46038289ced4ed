package upstream

import (
	"context"
	"errors"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tracing"
	"xdsrelay/internal/xds"
)

// line is a Stream's conversation with one origin, which the key uses or probes.
// It goes on through several attempts.
type line struct {
	*Stream
	at       *site
	session  session
	interest cell // receives the Stream's interest
	memory   memory
	probing  *probe // nil: the key uses the origin

	// Owned by the goroutines of an attempt while there is one, else by the one that
	// begins attempts.
	// uncacheable are the parts of which this attempt brought something that is
	// not to be cached, and is yet to be let go of (P63).
	uncacheable map[partOf]struct{}
	open        bool      // the attempt reached the origin
	openedAt    time.Time // when it did
	had         bool      // it brought a response
	silent      time.Time // since when it says nothing; zero: it spoke, or is not open for long
}

// line makes a line to an origin; p is nil if the key uses it.
func (s *Stream) line(at *site, m memory, p *probe) *line {
	l := &line{Stream: s, at: at, interest: newCell(), memory: m, probing: p}
	l.session = at.origin.attach(l)
	s.join(&l.interest)
	return l
}

// close ends a line that has no attempt.
func (l *line) close() {
	l.leave(&l.interest)
	l.session.close()
}

// attempt waits and then serves the interest, once there is any, until the stream
// or ctx ends. It returns why.
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
	if over := (*sinkError)(nil); ctx.Err() != nil && !errors.As(err, &over) {
		return context.Cause(ctx) // whatever the transport made of that
	}
	return err
}

// ended counts the end of a stream or attempt, and returns why it has to be
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
	l.at.ended(err, reason)
	l.at.failed(err)
	return reason
}

// report tells the sink of the connection, unless it is a probe's.
func (l *line) report(st Status) {
	if l.probing == nil {
		st.Origin, st.Attempts = l.at.name, l.attempts
		l.sink.Status(st)
	}
}

// The methods below are for sessions.

// trace begins the trace of a response that was read at this time. It is nil, as
// for most responses, if this one is not traced.
func (l *line) trace(received time.Time) *tracing.Update {
	t := l.client.opts.Tracer
	if l.probing != nil || !t.Sampled() {
		return nil
	}
	about := tracing.About{Key: l.id, Node: xds.NodeIDOf(l.node), Origin: l.at.name, Variant: l.client.opts.Variant.String()}
	return t.Begin(received, about)
}

// changed receives when there is a newer interest than take returned.
func (l *line) changed() <-chan struct{} { return l.interest.signal }

// take returns the newest interest, never to be changed, and what lapsed since
// the last take of this attempt.
func (l *line) take() (*xds.Interest, lapses) {
	if l.probing != nil {
		l.probing.check() // nobody may want what it waits for any more
	}
	return l.interest.take()
}

// held is the newest snapshot of typ, nil if none.
func (l *line) held(typ xds.TypeURL) *xds.Snapshot { return l.sink.Held(typ) }

// opened says that the origin was reached. Once an attempt.
func (l *line) opened() {
	l.open, l.openedAt = true, time.Now()
	l.at.streams.Add(1)
	l.client.opts.Metrics.UpstreamStreams.Add(1)
	l.log.Debug("upstream stream open", "origin", l.at.name, "probe", l.probing != nil)
	l.report(Status{Connected: true})
}

// answered says that the origin gave a response, by which the attempt is no
// failure (P54).
func (l *line) answered() {
	if l.had {
		return
	}
	l.had = true
	if l.probing == nil {
		l.succeeded()
	}
	l.unmuted(true)
	l.at.answered()
}

// discards reports whether a response to this part of a type goes no further
// because it answers a probe.
func (l *line) discards(typ xds.TypeURL, wildcard bool) bool {
	if l.probing == nil {
		return false
	}
	l.probing.answer(partOf{typ, wildcard})
	return true
}

// apply hands an update of this origin over and waits until it is applied. It
// reports whether the snapshot is another one since. Calls never overlap.
func (l *line) apply(ctx context.Context, u xds.Update) (changed bool, err error) {
	if l.discards(u.Type, u.Wildcard) {
		return false, nil
	}
	u.Origin = l.at.name
	l.noteUncacheable(&u)
	was := l.sink.Held(u.Type)
	changed, err = l.sink.Update(ctx, u)
	switch {
	case err == nil:
		if changed {
			l.logVersion(&u, was)
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
