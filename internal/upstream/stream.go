package upstream

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tracing"
	"xdsrelay/internal/upstream/adsclient"
	"xdsrelay/internal/upstream/filesource"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// transport is how an Origin is reached. Its constructors start nothing and check what can be
// checked without a network.
type transport interface {
	// Run runs as long as Client.Run. It watches files, or keeps a connection and closes idle
	// ones. It calls connected and unreachable of the Origin. It returns when all goroutines
	// that it started have ended, with nil if ctx ended it.
	Run(ctx context.Context) error
	// serve is one attempt. It serves the stream's interest until it cannot go on or ctx ends. It
	// returns why, never nil. When it returns, all goroutines that it started have ended. It
	//   - calls Opened once the origin is reached, and Responded at every response: both are for P54
	//     and the Status;
	//   - takes the interest at the start and after each receive from InterestChanged;
	//   - reads held resources through Newest and hands updates over through Apply, whose error it
	//     returns unchanged.
	// errReopen means: this is no failure, serve again at once.
	serve(ctx context.Context, stream *stream) error
	// WaitBeforeRetry waits before the next attempt: for d, for less if an attempt is likely to
	// succeed now, or until ctx ends.
	WaitBeforeRetry(ctx context.Context, d time.Duration)
	// Reload reads the origin's files again. It reports whether it could.
	Reload() (ok bool)
	// Faults describe invalid files, for admin.
	Faults() []filesource.Fault
}

// errReopen ends a stream that could go on but cannot carry the new interest.
var errReopen = errors.New("stream must be opened again for another interest")

// stream is a Source's stream at one origin. It goes on through several attempts: each
// opens a gRPC stream, or serves a directory. There are three kinds:
//   - the key's stream at the origin in use;
//   - a probe of a preferred origin, which becomes the key's stream (P56);
//   - a trial of what the origin in use may end the key's stream for (P68).
type stream struct {
	*Source
	at           *Origin
	interest     *interestCell
	lastVersions adsclient.LastVersions
	probing      atomic.Pointer[probe] // nil: it is no probe
	trial        *trial                // nil: it is no trial

	// seen is the number of the origin's failures that the key has counted; see Origin.enter.
	seen uint64

	// endedByOrigin: the origin ended the last stream by its own status.
	endedByOrigin atomic.Bool

	// The goroutines of the current attempt own these fields. Between attempts the goroutine that
	// starts them does.

	status  Status             // connected once the attempt reached the origin
	taken   *snapshot.Interest // the interest that the attempt took last
	addedAt time.Time          // when the attempt subscribed to something for the last time
	as      []byte             // the attempt's node; nil: the Source's

	// replaced is when an attempt last ended because of unanswered names (P64). It outlives attempts.
	replaced time.Time
}

// typePart is a part of a type (P50).
type typePart struct {
	typ   xds.TypeURL
	scope snapshot.Scope
}

// newStream makes a stream at an origin, with the state that earlier streams left.
func (s *Source) newStream(at *Origin, r adsclient.LastVersions) *stream {
	o := &stream{Source: s, at: at, lastVersions: r}
	o.interest = s.addInterestCell()
	return o
}

// close ends a stream that has no attempt.
func (s *stream) close() {
	s.forgetRejected(func(xds.TypeURL) bool { return true })
	s.removeInterestCell(s.interest)
}

// serves reports whether the key uses the stream, for more than a trial.
func (s *stream) serves() bool { return s.probing.Load() == nil && s.trial == nil }

// carried is what the stream carries of the key's interest.
func (s *stream) carried(i *snapshot.Interest) *snapshot.Interest {
	switch {
	case s.trial != nil:
		return s.trial.Carried(i)
	case s.probing.Load() != nil:
		return s.knownOnly(i)
	}
	return s.withoutSuspects(i)
}

func (s *stream) carriedNow() *snapshot.Interest { return s.carried(s.interestNow()) }

// attempt waits and then serves the interest, once it is not empty, until the stream or ctx ends.
// It returns why.
func (s *stream) attempt(ctx context.Context, wait time.Duration) error {
	s.status, s.taken = Status{Origin: s.at.Name, Relayed: s.at.Member}, nil
	s.endedByOrigin.Store(false)
	if wait > 0 {
		s.at.transport.WaitBeforeRetry(ctx, wait)
	}
	for s.trial == nil && s.carriedNow().Empty() {
		s.report() // the failure before is over
		select {
		case <-s.interest.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	seen := &s.seen
	if s.probing.Load() != nil {
		seen = nil // it waits while the origin is away
	}
	err := s.at.enter(ctx, seen, s.trial != nil || s.holdsAny())
	if err == nil {
		err = s.at.transport.serve(ctx, s)
	}
	s.reset(s.interest)
	s.endSilence()
	if s.status.Connected {
		s.at.streams.Add(-1)
		s.client.opts.Metrics.UpstreamStreams.Add(-1)
	}
	if s.status.Responded {
		s.at.respondedEnded()
	}
	if ctx.Err() != nil && !isSinkError(err) {
		return context.Cause(ctx) // whatever error the transport returned
	}
	return err
}

// holdsAny reports whether anything of what the stream carries is held.
func (s *stream) holdsAny() bool {
	return slices.ContainsFunc(s.carriedNow().Types, func(t snapshot.TypeInterest) bool {
		return holds(s.sink.Newest(t.Type).Part(t.Scope()))
	})
}

// holds reports whether a part was answered or has a resource.
func holds(p snapshot.Part) bool {
	for range p.Resources {
		return true
	}
	return p.Answered()
}

// ended counts the end of an attempt, for the origin and for all keys that wait for it. The end of
// an attempt that did not reach the origin is counted already: see Origin.unreachable.
func (s *stream) ended(err error, suspected bool) attemptEnd {
	e := attemptEnd{opened: s.status.Connected, responded: s.status.Responded, suspected: suspected, held: s.holdsAny()}
	e.others = !s.at.Member && s.at.responds() // a member always says why it ends a stream
	if e.opened {
		if failures := s.at.ended(e, err, s.status.OpenedAt); e.failed() {
			s.seen = failures
		}
	}
	return e
}

// report passes the connection's status to the sink. Probes and trials report none.
func (s *stream) report() {
	if s.serves() {
		s.sink.Status(s.status)
	}
}

// checkSilence counts and shows the attempt as silent, unless it had a response or bytes of one
// arrive. A stream is silent once it has been open for first_answer_timeout without any response.
// Silence changes nothing for clients (P57). It is shown because such an origin looks healthy
// otherwise. A stream on which nothing is requested is not silent.
func (s *stream) checkSilence(arriving int64) {
	switch s.status.Arriving = arriving; {
	case arriving > 0:
		s.endSilence()
		s.status.Arriving = arriving
	case !s.status.SilentSince.IsZero() || s.taken.Empty():
		return
	default:
		s.status.SilentSince = s.status.OpenedAt
		s.at.becameSilent(s.id, s.status.SilentSince)
	}
	s.report()
}

// endSilence ends the attempt's silence, because it had a response, bytes of one arrive, nothing is
// requested, or the attempt is over.
func (s *stream) endSilence() {
	if !s.status.SilentSince.IsZero() {
		s.at.endSilence()
	}
	s.status.SilentSince, s.status.Arriving = time.Time{}, 0
}

// The methods below are for origins.

// Trace begins the trace of a response that was read at this time. It is nil for the many responses
// that are not traced.
func (s *stream) Trace(received time.Time) *tracing.Update {
	t := s.client.opts.Tracer
	if s.probing.Load() != nil || !t.Sampled() {
		return nil
	}
	about := tracing.About{Key: s.id, Node: xds.NodeIDOf(s.node), Origin: s.at.Name, Variant: s.at.Variant.String()}
	return t.Begin(received, about)
}

// InterestChanged receives when the interest is newer than the one taken last.
func (s *stream) InterestChanged() <-chan struct{} { return s.interest.changed }

// takeInterest returns what the stream carries of the newest interest. It must not be changed. It
// also returns what was unsubscribed since the last call in this attempt.
func (s *stream) takeInterest() (*snapshot.Interest, adsclient.Resubscriptions) {
	i, again := s.take(s.interest)
	i = s.carried(i)
	if adds(s.taken, i) {
		s.addedAt = time.Now()
	}
	if s.taken = i; i.Empty() {
		s.endSilence()
		s.report()
	}
	if p := s.probing.Load(); p != nil {
		p.check(i) // the types that it waits for may no longer be wanted
	}
	s.forgetRejected(func(typ xds.TypeURL) bool { return i.Of(typ).Empty() })
	return i, again
}

// adds reports whether an interest has anything that the one before did not have.
func adds(before, after *snapshot.Interest) bool {
	return slices.ContainsFunc(after.Types, func(t snapshot.TypeInterest) bool {
		had := before.Of(t.Type)
		for _, added := range had.Names.Diff(t.Names) {
			if added {
				return true
			}
		}
		return t.Wildcard && !had.Wildcard
	})
}

// Interest returns the newest interest, and a function for the names of a type that were unsubscribed
// since the last call.
func (s *stream) Interest() (*snapshot.Interest, func(xds.TypeURL) map[string]struct{}) {
	i, again := s.takeInterest()
	return i, again.Unsubscribed
}

// Newest is the newest snapshot of typ, nil if none.
func (s *stream) Newest(typ xds.TypeURL) *snapshot.Snapshot { return s.sink.Newest(typ) }

// Counters are the metrics of a type under the stream's key.
func (s *stream) Counters(typ xds.TypeURL) *telemetry.TypeMetrics {
	if s.metrics != nil {
		return s.metrics.Type(typ)
	}
	return s.client.opts.Metrics.Type(typ)
}

// Opened records that the origin was reached. It is called once per attempt.
func (s *stream) Opened() {
	s.status.Connected, s.status.Stream, s.status.OpenedAt = true, s.client.opened.Add(1), time.Now()
	s.at.streams.Add(1)
	s.client.opts.Metrics.UpstreamStreams.Add(1)
	s.log.Debug("upstream stream opened", "origin", s.at.Name, "stream", s.status.Stream, "probe", s.probing.Load() != nil, "trial", s.trial != nil)
	if s.trial != nil {
		s.trial.opened()
	}
	s.report()
}

// Responded records a response of the origin. The attempt is then no failure (P54).
func (s *stream) Responded() {
	if s.status.Responded {
		return
	}
	s.status.Responded = true
	if s.serves() {
		s.succeeded()
	}
	s.endSilence()
	s.at.responded()
	s.report()
}

// Apply hands an update of this origin over and waits until it is applied. It reports whether that
// made another snapshot. Calls never overlap.
func (s *stream) Apply(ctx context.Context, u snapshot.Update) (changed bool, err error) {
	if p := s.probing.Load(); p != nil { // a directory, which is read again once the key uses it
		p.cover(typePart{u.Type, u.Scope()}, s.carriedNow())
		return false, nil
	}
	u.Origin, u.Domain, u.Relayed = s.at.Name, s.at.Domain, s.at.Member
	was := s.sink.Newest(u.Type)
	changed, err = s.sink.Update(ctx, u)
	switch {
	case err == nil:
		if changed {
			s.logVersion(&u, was)
		}
		if s.trial != nil {
			if s.trial.Responded(&u) {
				s.trial.end(errPassed)
			}
		}
		return changed, nil
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	}
	return false, &sinkError{err}
}

// sinkError is an error of the sink: the group has ended, so Run ends too.
type sinkError struct{ err error }

func (e *sinkError) Error() string { return e.err.Error() }
func (e *sinkError) Unwrap() error { return e.err }

func isSinkError(err error) bool {
	e := (*sinkError)(nil)
	return errors.As(err, &e)
}

// logVersion logs a new version of a type once the group holds it. A version that arrives in
// several responses is logged once. Stored content that the origin confirms is not a new version.
func (s *stream) logVersion(u *snapshot.Update, was *snapshot.Snapshot) {
	snap := s.sink.Newest(u.Type)
	if snap == nil || !u.Versioned() {
		return // the update is not a response of the origin
	}
	if was != nil {
		same := was.Version == snap.Version && was.OriginVersion() == snap.OriginVersion()
		if was.Stale {
			same = was.SameResources(snap)
		}
		if same {
			return
		}
	}
	args := []any{"origin", u.Origin, "type", u.Type, "version", snap.Version}
	if u.Version != "" {
		args = append(args, "origin_version", u.Version)
	}
	s.log.Info("new version from the origin", args...)
}

// dropUncacheable makes the group drop do_not_cache resources once the stream that brought them has
// ended (P63). The next stream then requests them as resources that are not held.
func (s *stream) dropUncacheable(ctx context.Context) error {
	i := s.interestNow()
	if i == nil {
		return nil
	}
	for _, t := range i.Types {
		n := s.Newest(t.Type).Part(t.Scope()).Uncacheable()
		if n == 0 {
			continue
		}
		changed, err := s.Apply(ctx, snapshot.Update{Type: t.Type, Wildcard: t.Wildcard, Ended: true})
		if err != nil {
			return err
		}
		if changed { // otherwise the group did not hold them any more
			s.Counters(t.Type).Dropped[telemetry.StreamEnded].Add(n)
		}
	}
	return nil
}

// directory makes a filesource.Directory an origin.
type directory struct{ *filesource.Directory }

func (d directory) serve(ctx context.Context, stream *stream) error {
	err := d.Serve(ctx, stream)
	if errors.Is(err, filesource.ErrNothingWanted) {
		return errReopen
	}
	return err
}
