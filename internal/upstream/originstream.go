package upstream

import (
	"context"
	"errors"
	"slices"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tracing"
	"xdsrelay/internal/upstream/adsclient"
	"xdsrelay/internal/upstream/filesource"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// origin is where streams are served from. Constructors of origins start
// nothing and check what can be checked without a network.
type origin interface {
	// upkeep runs as long as Client.Run: watching files, closing idle
	// connections. It returns when all that it started has ended; nil if ctx
	// ended it.
	upkeep(ctx context.Context) error
	// attach makes the session of a key with this origin. It starts nothing, does
	// no I/O and cannot fail; upkeep may not run yet.
	attach(*originStream) session
	// connections is how many there are, for admin.
	connections() int
	// faults are what is wrong with what it serves, for admin.
	faults() []filesource.Fault
}

// session is what an originStream is served by, through several attempts. Its
// methods are called one after the other.
type session interface {
	// serve is one attempt. It serves the interest until it cannot go on or ctx
	// ends, and returns why; never nil. When it returns, all goroutines that it
	// started have ended. It
	//   - calls Opened once the origin is reached, and Answered at every response:
	//     both for P54 and the Status;
	//   - takes the interest at the start and after each receive from
	//     InterestChanged;
	//   - reads what is held by Held, and hands updates over by Apply, whose error
	//     it returns as it is.
	// Returning errReopen means: no failure, serve again at once.
	serve(ctx context.Context) error
	// rest waits before the next attempt: for d, or less if there is reason to
	// believe that it would succeed now, or until ctx ends.
	rest(ctx context.Context, d time.Duration)
	// close gives back what the session holds, between attempts.
	close()
}

// errReopen ends a stream that could go on but cannot carry the new interest.
var errReopen = errors.New("stream to be opened anew for another interest")

// originStream is a Stream at one origin, which the key uses or probes. It goes on
// through several attempts.
type originStream struct {
	*Stream
	at         *originState
	session    session
	interest   *adsclient.InterestCell
	resumption adsclient.Resumption
	probing    *probe // nil: the key uses the origin

	// Owned by the goroutines of an attempt while there is one, else by the one that
	// begins attempts.

	// uncacheable are the parts of which this attempt brought do_not_cache resources,
	// which are to be dropped when it ends (P63).
	uncacheable map[typePart]struct{}
	open        bool      // the attempt reached the origin
	openedAt    time.Time // when it did
	responded   bool      // it brought a response
	silentSince time.Time // zero: it is not silent
}

// typePart is a part of a type (P50): the wildcard, or names.
type typePart struct {
	typ      xds.TypeURL
	wildcard bool
}

// newOriginStream makes a stream at an origin; p is nil if the key uses it.
func (s *Stream) newOriginStream(at *originState, r adsclient.Resumption, p *probe) *originStream {
	l := &originStream{Stream: s, at: at, resumption: r, probing: p}
	l.session = at.origin.attach(l)
	l.interest = s.join()
	return l
}

// close ends a stream that has no attempt.
func (l *originStream) close() {
	l.leave(l.interest)
	l.session.close()
}

// attempt waits and then serves the interest, once there is any, until the stream
// or ctx ends. It returns why.
func (l *originStream) attempt(ctx context.Context, wait time.Duration) error {
	l.open, l.responded, l.uncacheable = false, false, nil
	if wait > 0 {
		l.session.rest(ctx, wait)
	}
	if !l.interest.Await(ctx) {
		return context.Cause(ctx)
	}
	err := l.session.serve(ctx)
	l.interest.Reset()
	l.endSilence(false)
	if l.open {
		l.at.streams.Add(-1)
		l.client.opts.Metrics.UpstreamStreams.Add(-1)
	}
	if l.responded {
		l.at.respondedEnded()
	}
	if over := (*sinkError)(nil); ctx.Err() != nil && !errors.As(err, &over) {
		return context.Cause(ctx) // whatever the transport made of that
	}
	return err
}

// ended counts the end of a stream or attempt, and returns why it has to be
// opened again. A stream that ended before any response, even with OK, failed
// (P54).
func (l *originStream) ended(err error) telemetry.Reconnect {
	if l.responded {
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
func (l *originStream) report(st Status) {
	if l.probing == nil {
		st.Origin, st.Attempts = l.at.name, l.attempts
		l.sink.Status(st)
	}
}

// becameSilent counts and shows the attempt as silent, unless it had a response.
// A stream is silent once it has been open for first_answer_timeout without any
// response. Silence changes nothing for clients (P57). It is shown because such an
// origin looks healthy otherwise.
func (l *originStream) becameSilent() {
	if l.responded || !l.silentSince.IsZero() {
		return
	}
	l.silentSince = l.openedAt
	l.at.becameSilent(l.silentSince)
	l.report(Status{Connected: true, SilentSince: l.silentSince})
}

// endSilence ends the attempt's silence: it had a response, or it is over.
func (l *originStream) endSilence(responded bool) {
	if l.silentSince.IsZero() {
		return
	}
	l.silentSince = time.Time{}
	l.at.endSilence()
	if responded {
		l.report(Status{Connected: true, Spoken: true})
	}
}

// The methods below are for sessions.

// Trace begins the trace of a response that was read at this time. It is nil if the
// response is not traced, as most are not.
func (l *originStream) Trace(received time.Time) *tracing.Update {
	t := l.client.opts.Tracer
	if l.probing != nil || !t.Sampled() {
		return nil
	}
	about := tracing.About{Key: l.id, Node: xds.NodeIDOf(l.node), Origin: l.at.name, Variant: l.client.opts.Variant.String()}
	return t.Begin(received, about)
}

// InterestChanged receives when there is a newer interest than the last one taken.
func (l *originStream) InterestChanged() <-chan struct{} { return l.interest.Changed() }

// takeInterest returns the newest interest, never to be changed, and what was
// unsubscribed since the last call in this attempt.
func (l *originStream) takeInterest() (*snapshot.Interest, adsclient.Resubscriptions) {
	if l.probing != nil {
		l.probing.check() // what it waits for may no longer be wanted
	}
	return l.interest.Take()
}

// Interest takes the newest interest, and what was unsubscribed of a type since.
func (l *originStream) Interest() (*snapshot.Interest, func(xds.TypeURL) (wildcard bool, names map[string]struct{})) {
	i, again := l.takeInterest()
	return i, again.Of
}

// Held is the newest snapshot of typ, nil if none.
func (l *originStream) Held(typ xds.TypeURL) *snapshot.Snapshot { return l.sink.Held(typ) }

// Counters are the metrics of a type under the stream's key.
func (l *originStream) Counters(typ xds.TypeURL) *telemetry.Type {
	if l.metrics != nil {
		return l.metrics.Type(typ)
	}
	return l.client.opts.Metrics.Type(typ)
}

// Opened says that the origin was reached. It is called once an attempt.
func (l *originStream) Opened() {
	l.open, l.openedAt = true, time.Now()
	l.at.streams.Add(1)
	l.client.opts.Metrics.UpstreamStreams.Add(1)
	l.log.Debug("upstream stream open", "origin", l.at.name, "probe", l.probing != nil)
	l.report(Status{Connected: true})
}

// Answered says that the origin gave a response, so that the attempt is no failure
// (P54).
func (l *originStream) Answered() {
	if l.responded {
		return
	}
	l.responded = true
	if l.probing == nil {
		l.succeeded()
	}
	l.endSilence(true)
	l.at.responded()
}

// discards reports whether a response to this part of a type goes no further
// because it answers a probe.
func (l *originStream) discards(typ xds.TypeURL, wildcard bool) bool {
	if l.probing == nil {
		return false
	}
	l.probing.answer(typePart{typ, wildcard})
	return true
}

// Apply hands an update of this origin over and waits until it is applied. It
// reports whether the snapshot is another one since. Calls never overlap.
func (l *originStream) Apply(ctx context.Context, u snapshot.Update) (changed bool, err error) {
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

// logVersion logs a version of a type that the group holds now, so that the log shows when it
// came. A version that arrives in several responses is logged once. Stored content that the origin
// confirms is no new version.
func (l *originStream) logVersion(u *snapshot.Update, was *snapshot.Snapshot) {
	snap := l.sink.Held(u.Type)
	if snap == nil || !u.Versioned() {
		return // the update is no response of the origin
	}
	if was != nil {
		same := was.Version == snap.Version && was.Given() == snap.Given()
		if was.Stale {
			same = was.Alike(snap)
		}
		if same {
			return
		}
	}
	args := []any{"origin", u.Origin, "type", u.Type, "version", snap.Version}
	if u.Version != "" {
		args = append(args, "origin_version", u.Version)
	}
	l.log.Info("new version from the origin", args...)
}

// noteUncacheable remembers that this attempt brought do_not_cache resources.
func (l *originStream) noteUncacheable(u *snapshot.Update) {
	if !slices.ContainsFunc(u.Changed, func(r *xds.Resource) bool { return r.Uncacheable }) {
		return
	}
	if l.uncacheable == nil {
		l.uncacheable = make(map[typePart]struct{})
	}
	l.uncacheable[typePart{u.Type, u.Wildcard}] = struct{}{}
}

// dropUncacheable makes the group drop do_not_cache resources, once the stream that
// brought them has ended (P63). The next stream then asks for them as for what is
// not held.
func (l *originStream) dropUncacheable(ctx context.Context) error {
	for p := range l.uncacheable {
		n := l.Held(p.typ).Part(p.wildcard).Uncacheable()
		changed, err := l.Apply(ctx, snapshot.Update{Type: p.typ, Wildcard: p.wildcard, Ended: true})
		if err != nil {
			return err
		}
		delete(l.uncacheable, p)
		if changed { // else the group did not hold them
			l.Counters(p.typ).Dropped[telemetry.StreamEnded].Add(n)
		}
	}
	return nil
}

// directory is an origin that is a directory.
type directory struct{ *filesource.Directory }

func (d directory) upkeep(ctx context.Context) error { return d.Run(ctx) }
func (d directory) attach(s *originStream) session   { return directorySession{d.Session(s)} }
func (d directory) connections() int                 { return d.Connections() }
func (d directory) faults() []filesource.Fault       { return d.Faults() }

type directorySession struct{ *filesource.Session }

func (s directorySession) serve(ctx context.Context) error {
	err := s.Serve(ctx)
	if errors.Is(err, filesource.ErrNothingWanted) {
		return errReopen
	}
	return err
}

func (s directorySession) rest(ctx context.Context, d time.Duration) { s.Rest(ctx, d) }
func (s directorySession) close()                                    {}
