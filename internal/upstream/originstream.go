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

// origin serves streams. Constructors of origins start nothing and check what can be checked
// without a network.
type origin interface {
	// upkeep runs as long as Client.Run. It watches files, or keeps a connection and closes idle
	// ones. It calls connected and unreachable of the originState. It returns when all goroutines
	// that it started have ended, with nil if ctx ended it.
	upkeep(ctx context.Context) error
	// serve is one attempt. It serves the stream's interest until it cannot go on or ctx ends. It
	// returns why, never nil. When it returns, all goroutines that it started have ended. It
	//   - calls Opened once the origin is reached, and Responded at every response: both are for P54
	//     and the Status;
	//   - takes the interest at the start and after each receive from InterestChanged;
	//   - reads held resources through Held and hands updates over through Apply, whose error it
	//     returns unchanged.
	// errReopen means: this is no failure, serve again at once.
	serve(ctx context.Context, stream *originStream) error
	// waitBeforeRetry waits before the next attempt: for d, for less if an attempt is likely to
	// succeed now, or until ctx ends.
	waitBeforeRetry(ctx context.Context, d time.Duration)
	// reload reads the origin's files again.
	reload()
	// faults describe invalid files, for admin.
	faults() []filesource.Fault
}

// errReopen ends a stream that could go on but cannot carry the new interest.
var errReopen = errors.New("stream must be opened again for another interest")

// originStream is a Subscriber's stream at one origin. It goes on through several attempts: each
// opens a gRPC stream, or serves a directory. There are three kinds:
//   - the key's stream at the origin in use;
//   - a probe of a preferred origin, which becomes the key's stream (P56);
//   - a trial of what the origin in use may end the key's stream for (P68).
type originStream struct {
	*Subscriber
	at         *originState
	interest   *adsclient.InterestCell
	resumption adsclient.Resumption
	probing    atomic.Pointer[probe] // nil: it is no probe
	trial      *trial                // nil: it is no trial

	// seen is the number of the origin's failures that the key has counted; see originState.enter.
	seen uint64

	// endedByOrigin: the origin ended the last stream by its own status.
	endedByOrigin atomic.Bool

	// The goroutines of the current attempt own these fields. Between attempts the goroutine that
	// starts them does.

	// uncacheable are the parts for which this attempt brought do_not_cache resources. Those are
	// dropped when the attempt ends (P63).
	uncacheable map[typePart]struct{}
	open        bool               // the attempt reached the origin
	openedAt    time.Time          // when the attempt reached the origin
	taken       *snapshot.Interest // the interest that the attempt took last
	addedAt     time.Time          // when the attempt subscribed to something for the last time
	responded   bool               // the attempt had a response
	silentSince time.Time          // zero: it is not silent
	arriving    bool               // the first response arrives

	// replaced is when an attempt last ended because of unanswered names (P64). It outlives attempts.
	replaced time.Time
}

// typePart is a part of a type (P50): the wildcard, or names.
type typePart struct {
	typ      xds.TypeURL
	wildcard bool
}

// newOriginStream makes a stream at an origin, with the state that earlier streams left.
func (s *Subscriber) newOriginStream(at *originState, r adsclient.Resumption) *originStream {
	o := &originStream{Subscriber: s, at: at, resumption: r}
	o.interest = s.addInterestCell()
	return o
}

// close ends a stream that has no attempt.
func (o *originStream) close() {
	o.forgetRejected(func(xds.TypeURL) bool { return true })
	o.removeInterestCell(o.interest)
}

// serves reports whether the key uses the stream, for more than a trial.
func (o *originStream) serves() bool { return o.probing.Load() == nil && o.trial == nil }

// carried is what the stream carries of the key's interest.
func (o *originStream) carried(i *snapshot.Interest) *snapshot.Interest {
	switch {
	case o.trial != nil:
		return o.trial.Carried(i)
	case o.probing.Load() != nil:
		return o.knownOnly(i)
	}
	return o.withoutSuspects(i)
}

// carriedNow is what the stream carries of the newest interest.
func (o *originStream) carriedNow() *snapshot.Interest { return o.carried(o.interest.Newest()) }

// attempt waits and then serves the interest, once it is not empty, until the stream or ctx ends.
// It returns why.
func (o *originStream) attempt(ctx context.Context, wait time.Duration) error {
	o.open, o.responded, o.uncacheable, o.taken = false, false, nil, nil
	o.endedByOrigin.Store(false)
	if wait > 0 {
		o.at.origin.waitBeforeRetry(ctx, wait)
	}
	for o.trial == nil && o.carriedNow().Empty() {
		select {
		case <-o.interest.Changed():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	seen := &o.seen
	if o.probing.Load() != nil {
		seen = nil // it waits while the origin is away
	}
	err := o.at.enter(ctx, seen, o.trial != nil || o.holdsAny())
	if err == nil {
		err = o.at.origin.serve(ctx, o)
	}
	o.interest.Reset()
	o.endSilence(false)
	if o.open {
		o.at.streams.Add(-1)
		o.client.opts.Metrics.UpstreamStreams.Add(-1)
	}
	if o.responded {
		o.at.respondedEnded()
	}
	if ctx.Err() != nil && !isSinkError(err) {
		return context.Cause(ctx) // whatever error the transport returned
	}
	return err
}

// holdsAny reports whether anything of what the stream carries is held.
func (o *originStream) holdsAny() bool {
	return slices.ContainsFunc(o.carriedNow().Types, func(t snapshot.TypeInterest) bool {
		return holds(o.sink.Held(t.Type).Part(t.Wildcard))
	})
}

// holds reports whether a part was answered or has a resource.
func holds(p snapshot.Part) bool {
	for range p.Resources {
		return true
	}
	return p.Answered()
}

// ended counts the end of an attempt, for the origin and for all keys that wait for it. The end of an
// attempt that did not reach the origin is counted already: see originState.unreachable.
func (o *originStream) ended(err error, suspected bool) attemptEnd {
	e := attemptEnd{opened: o.open, responded: o.responded, suspected: suspected, held: o.holdsAny(), others: o.at.responds()}
	if o.open {
		if failures := o.at.ended(e, err, o.openedAt); e.failed() {
			o.seen = failures
		}
	}
	return e
}

// report passes the connection's status to the sink, if it is another one. Probes and trials report
// none.
func (o *originStream) report(st Status) {
	if !o.serves() {
		return
	}
	st.Origin = o.at.name
	o.Subscriber.report(st)
}

// checkSilence counts and shows the attempt as silent, unless it had a response or bytes of one
// arrive. A stream is silent once it has been open for first_answer_timeout without any response.
// Silence changes nothing for clients (P57). It is shown because such an origin looks healthy
// otherwise.
func (o *originStream) checkSilence(arriving int64) {
	if arriving > 0 {
		o.endSilence(false)
		o.arriving = true
		o.report(Status{Connected: true, Arriving: arriving})
		return
	}
	o.arriving = false
	if !o.silentSince.IsZero() {
		return
	}
	o.silentSince = o.openedAt
	o.at.becameSilent(o.silentSince)
	o.report(Status{Connected: true, SilentSince: o.silentSince})
}

// endSilence ends the attempt's silence, because it had a response, bytes of one arrive, or the
// attempt is over.
func (o *originStream) endSilence(responded bool) {
	shown := o.arriving
	o.arriving = false
	if !o.silentSince.IsZero() {
		o.silentSince, shown = time.Time{}, true
		o.at.endSilence()
	}
	if shown && responded {
		o.report(Status{Connected: true, Responded: true})
	}
}

// The methods below are for origins.

// Trace begins the trace of a response that was read at this time. It is nil for the many responses
// that are not traced.
func (o *originStream) Trace(received time.Time) *tracing.Update {
	t := o.client.opts.Tracer
	if o.probing.Load() != nil || !t.Sampled() {
		return nil
	}
	about := tracing.About{Key: o.id, Node: xds.NodeIDOf(o.node), Origin: o.at.name, Variant: o.client.opts.Variant.String()}
	return t.Begin(received, about)
}

// InterestChanged receives when the interest is newer than the one taken last.
func (o *originStream) InterestChanged() <-chan struct{} { return o.interest.Changed() }

// takeInterest returns what the stream carries of the newest interest. It must not be changed. It
// also returns what was unsubscribed since the last call in this attempt.
func (o *originStream) takeInterest() (*snapshot.Interest, adsclient.Resubscriptions) {
	i, again := o.interest.Take()
	i = o.carried(i)
	if adds(o.taken, i) {
		o.addedAt = time.Now()
	}
	o.taken = i
	if p := o.probing.Load(); p != nil {
		p.check(i) // the types that it waits for may no longer be wanted
	}
	o.forgetRejected(func(typ xds.TypeURL) bool { return i.Of(typ).Empty() })
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

// Interest returns the newest interest, and a function for what was unsubscribed of a type since
// the last call.
func (o *originStream) Interest() (*snapshot.Interest, func(xds.TypeURL) (wildcard bool, names map[string]struct{})) {
	i, again := o.takeInterest()
	return i, again.Of
}

// Held is the newest snapshot of typ, nil if none.
func (o *originStream) Held(typ xds.TypeURL) *snapshot.Snapshot { return o.sink.Held(typ) }

// Counters are the metrics of a type under the stream's key.
func (o *originStream) Counters(typ xds.TypeURL) *telemetry.Type {
	if o.metrics != nil {
		return o.metrics.Type(typ)
	}
	return o.client.opts.Metrics.Type(typ)
}

// Opened records that the origin was reached. It is called once per attempt.
func (o *originStream) Opened() {
	o.open, o.openedAt = true, time.Now()
	o.at.streams.Add(1)
	o.client.opts.Metrics.UpstreamStreams.Add(1)
	o.log.Debug("upstream stream opened", "origin", o.at.name, "probe", o.probing.Load() != nil, "trial", o.trial != nil)
	if o.trial != nil {
		o.trial.opened()
	}
	o.report(Status{Connected: true})
}

// Responded records a response of the origin. The attempt is then no failure (P54).
func (o *originStream) Responded() {
	if o.responded {
		return
	}
	o.responded = true
	if o.serves() {
		o.succeeded()
	}
	o.endSilence(true)
	o.at.responded()
}

// Apply hands an update of this origin over and waits until it is applied. It reports whether that
// made another snapshot. Calls never overlap.
func (o *originStream) Apply(ctx context.Context, u snapshot.Update) (changed bool, err error) {
	if p := o.probing.Load(); p != nil { // a directory, which is read again once the key uses it
		p.cover(typePart{u.Type, u.Wildcard}, o.carriedNow())
		return false, nil
	}
	u.Origin = o.at.name
	o.noteUncacheable(&u)
	was := o.sink.Held(u.Type)
	changed, err = o.sink.Update(ctx, u)
	switch {
	case err == nil:
		if changed {
			o.logVersion(&u, was)
		}
		if o.trial != nil {
			if o.trial.Responded(&u) {
				o.trial.end(errPassed)
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
func (o *originStream) logVersion(u *snapshot.Update, was *snapshot.Snapshot) {
	snap := o.sink.Held(u.Type)
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
	o.log.Info("new version from the origin", args...)
}

// noteUncacheable remembers that this attempt brought do_not_cache resources.
func (o *originStream) noteUncacheable(u *snapshot.Update) {
	if !slices.ContainsFunc(u.Changed, func(r *xds.Resource) bool { return r.Uncacheable }) {
		return
	}
	if o.uncacheable == nil {
		o.uncacheable = make(map[typePart]struct{})
	}
	o.uncacheable[typePart{u.Type, u.Wildcard}] = struct{}{}
}

// dropUncacheable makes the group drop do_not_cache resources once the stream that brought them has
// ended (P63). The next stream then requests them as resources that are not held.
func (o *originStream) dropUncacheable(ctx context.Context) error {
	for p := range o.uncacheable {
		n := o.Held(p.typ).Part(p.wildcard).Uncacheable()
		changed, err := o.Apply(ctx, snapshot.Update{Type: p.typ, Wildcard: p.wildcard, Ended: true})
		if err != nil {
			return err
		}
		delete(o.uncacheable, p)
		if changed { // otherwise the group did not hold them
			o.Counters(p.typ).Dropped[telemetry.StreamEnded].Add(n)
		}
	}
	return nil
}

// directory makes a filesource.Directory an origin.
type directory struct{ *filesource.Directory }

func (d directory) upkeep(ctx context.Context) error { return d.Run(ctx) }
func (d directory) faults() []filesource.Fault       { return d.Faults() }
func (d directory) reload()                          { d.Reload() }

func (d directory) serve(ctx context.Context, stream *originStream) error {
	err := d.Serve(ctx, stream)
	if errors.Is(err, filesource.ErrNothingWanted) {
		return errReopen
	}
	return err
}

func (d directory) waitBeforeRetry(ctx context.Context, wait time.Duration) {
	d.WaitBeforeRetry(ctx, wait)
}
