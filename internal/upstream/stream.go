package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// Stream is one key's conversation with the origins, for as long as the key
// lives.
type Stream struct {
	client *Client
	id     string
	node   []byte
	sink   Sink
	log    *slog.Logger

	// interest is shared with whoever sets it.
	interest cell

	// metrics of the key; fixed once Run runs.
	metrics *telemetry.Key

	// Owned by Run's goroutine and the session that it is in.
	at     *site // where the session is
	memory memory
	// uncacheable are the parts of which this attempt brought something that is
	// not to be cached (P63).
	uncacheable map[partOf]struct{}
	carried     []batch // clocks from a stream ended by the relay itself to the next (P57)
	open        bool    // the attempt reached the origin
	had         bool    // it brought a response
	failures    int     // attempts that failed, since the last response
}

// NewStream makes the stream of a key; id is the key as people read it, node
// the representative's bytes, with the relay's client features already in it
// (P58). It starts nothing.
func (c *Client) NewStream(id string, node []byte, sink Sink) *Stream {
	return &Stream{
		client:   c,
		id:       id,
		node:     node,
		sink:     sink,
		log:      c.opts.Log.With("key", id),
		interest: newCell(),
		memory:   make(memory),
	}
}

// CountIn makes the stream count in the metrics of its key, instead of those
// of no key. To be called before Run; k is not released before Run returned.
func (s *Stream) CountIn(k *telemetry.Key) { s.metrics = k }

// SetInterest says what is wanted from now on. The newest value counts; it
// never blocks. Any goroutine.
func (s *Stream) SetInterest(i *xds.Interest) { s.interest.set(i) }

// Run serves the interest until ctx ends, and then returns nil: it connects,
// asks, reads and connects again (P54). It returns an error only if the sink
// did. While nothing is wanted no stream is opened.
func (s *Stream) Run(ctx context.Context) error {
	sites := s.client.sites
	i, inARow := 0, 0 // the site, and its failures in a row
	s.at = sites[i]
	ses := s.at.origin.attach(s)
	defer func() { ses.close() }()
	for s.awaitInterest(ctx) {
		err := s.attempt(ctx, ses)
		var over *sinkError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &over):
			return fmt.Errorf("upstream stream of key %s: %w", s.id, over.err)
		case errors.Is(err, errReopen):
			if !s.interest.wanted() {
				s.sink.Status(Status{Origin: s.at.name})
			}
			continue
		}
		wait := s.ended(err)
		if inARow++; s.had {
			inARow = 0
		}
		if inARow >= failuresToSwitch && len(sites) > 1 { // P56
			ses.close()
			i, inARow = (i+1)%len(sites), 0
			s.at.metrics.Reconnect(telemetry.Switched)
			s.at = sites[i]
			ses = s.at.origin.attach(s)
		}
		ses.rest(ctx, wait)
	}
	return nil
}

// failuresToSwitch in a row make the next origin be tried (P56).
const failuresToSwitch = 2

// awaitInterest returns once something is wanted, false if ctx ended first.
func (s *Stream) awaitInterest(ctx context.Context) bool {
	for !s.interest.wanted() {
		select {
		case <-s.interest.signal:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// attempt is one attempt at serving, with the accounts around it.
func (s *Stream) attempt(ctx context.Context, ses session) error {
	s.open, s.had = false, false
	err := ses.serve(ctx)
	s.interest.rest()
	if over := s.uncache(ctx); over != nil {
		err = over
	}
	if s.open {
		s.at.streams.Add(-1)
		s.client.opts.Metrics.UpstreamStreams.Add(-1)
	}
	return err
}

// ended tells of the end of a stream or attempt, and returns how long to wait
// before the next (P54): a stream that ended before any response, even with OK,
// failed.
func (s *Stream) ended(err error) time.Duration {
	s.carried = nil // the clocks stop with the stream
	reason, wait := telemetry.Ended, upTo(reopenWithin)
	if s.had {
		s.failures = 0
	} else {
		s.failures++
		wait = s.client.opts.Backoff.delay(s.failures, upTo)
		reason = telemetry.Unreachable
		if s.open {
			reason = telemetry.NoResponse
		}
	}
	s.at.ended(err, reason)
	level := slog.LevelInfo
	if s.failures > 1 { // said already
		level = slog.LevelDebug
	}
	s.log.Log(context.Background(), level, "upstream stream ended", "origin", s.at.name, "reason", reason, "error", err, "failures", s.failures, "retry_in", wait)
	s.sink.Status(Status{Origin: s.at.name, Err: err, Failed: !s.had, Attempts: s.failures})
	return wait
}

// What follows is for sessions.

// changed receives when there is a newer interest than take returned.
func (s *Stream) changed() <-chan struct{} { return s.interest.signal }

// take returns the newest interest, never to be changed, and what lapsed since
// the last take of this attempt.
func (s *Stream) take() (*xds.Interest, lapses) { return s.interest.take() }

// held is the newest snapshot of typ; nil if none.
func (s *Stream) held(typ xds.TypeURL) *xds.Snapshot { return s.sink.Held(typ) }

// opened says that the origin was reached. Once an attempt.
func (s *Stream) opened() {
	s.open = true
	s.at.streams.Add(1)
	s.client.opts.Metrics.UpstreamStreams.Add(1)
	s.log.Debug("upstream stream open", "origin", s.at.name)
	s.sink.Status(Status{Connected: true, Origin: s.at.name, Attempts: s.failures})
}

// answered says that the origin gave a response, by which the attempt is no
// failure (P54).
func (s *Stream) answered() {
	s.had = true
	s.failures = 0
}

// apply hands an update of this origin over and waits until it is applied. It
// reports whether the snapshot is another one since. Calls never overlap.
func (s *Stream) apply(ctx context.Context, u xds.Update) (changed bool, err error) {
	u.Origin = s.at.name
	s.noteUncacheable(&u)
	changed, err = s.sink.Update(ctx, u)
	switch {
	case err == nil:
		return changed, nil
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	}
	return false, &sinkError{err}
}

// counters of a type under this stream's key.
func (s *Stream) counters(typ xds.TypeURL) *telemetry.Type {
	if s.metrics != nil {
		return s.metrics.Type(typ)
	}
	return s.client.opts.Metrics.Type(typ)
}

// sinkError is an error of the sink: the group is over, and so is Run.
type sinkError struct{ err error }

func (e *sinkError) Error() string { return e.err.Error() }
