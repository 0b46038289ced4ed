package orchestrator

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"xdsrelay/internal/telemetry/tracing"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// upstreamHandle is one of a group's upstream streams. There are one or two (P50: a response does
// not say whether it answers the wildcard or names, so a type with both needs two). It is the Sink
// of that stream, so the group knows which stream brought an Update.
type upstreamHandle struct {
	// Constant.
	group  *Group
	stream Stream
	ctx    context.Context // the stream's; nil: it is not started
	cancel context.CancelFunc

	// Safe for concurrent use.
	status    atomic.Pointer[upstream.Status]
	responded atomic.Bool // the open stream has brought a response
	// openedAt is when the newest stream was opened. Each stream has its own pointer.
	openedAt atomic.Pointer[time.Time]

	// The group's goroutine owns the fields below.
	sent *snapshot.Interest // the interest that the stream has
	seen *upstream.Status   // the newest status as of the last step
}

var _ upstream.Sink = (*upstreamHandle)(nil)

// newUpstreamHandle makes the handle of a stream; it starts nothing. first is the group's
// other stream, nil if there is none.
func newUpstreamHandle(g *Group, first *upstreamHandle) *upstreamHandle {
	l := &upstreamHandle{group: g, sent: new(snapshot.Interest)}
	l.status.Store(new(upstream.Status))
	l.openedAt.Store(new(time.Time))
	l.seen = l.status.Load()
	var beside Stream
	if first != nil {
		beside = first.stream
	}
	l.stream = g.opts.Open(g.key.String(), g.representative.Bytes(), l, beside)
	return l
}

// Held implements upstream.Sink.
func (l *upstreamHandle) Held(typ xds.TypeURL) *snapshot.Snapshot {
	v := find(*l.group.types.Load(), typ)
	if v == nil {
		return nil
	}
	if s := v.held.Load(); s != nil {
		return s
	}
	return v.stored.Load() // the first request lists it, as if another origin had sent it (P66)
}

// errDropped ends a stream whose group has ended.
var errDropped = errors.New("the key was dropped")

// Update implements upstream.Sink.
func (l *upstreamHandle) Update(ctx context.Context, u snapshot.Update) (changed bool, err error) {
	applied := make(chan bool, 1)
	select {
	case l.group.updates <- update{u, l, applied, tracing.From(ctx)}:
	case <-l.group.done:
		return false, errDropped
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return <-applied, nil // the group answers at once
}

// Status implements upstream.Sink.
func (l *upstreamHandle) Status(s upstream.Status) {
	if s.Connected && !s.Spoken && s.SilentSince.IsZero() { // a stream was opened
		now := time.Now()
		l.openedAt.Store(&now)
		l.responded.Store(false)
	}
	l.responded.Store(s.Connected && (s.Spoken || l.responded.Load()))
	if s.Connected {
		l.group.reached.Store(true) // the next status may come before the next step
	}
	l.status.Store(&s)
	l.group.signal()
}

// connected reports whether the stream is open. Any goroutine may call it.
func (l *upstreamHandle) connected() bool { return l.status.Load().Connected }

// run runs the upstream stream. If the stream fails for good, the group keeps what it holds.
func (l *upstreamHandle) run(ctx context.Context) {
	err := l.stream.Run(ctx)
	if ctx.Err() != nil || errors.Is(err, errDropped) {
		return
	}
	l.group.log.Error("upstream stream ended for good", "error", err)
	l.Status(upstream.Status{Failed: true, Err: err})
}

// upstreams returns the streams in the order in which they were opened. The caller must not
// change the slice.
func (g *Group) upstreams() []*upstreamHandle { return *g.handles.Load() }

// firstUpstream returns the stream that was opened first.
func (g *Group) firstUpstream() *upstreamHandle { return g.upstreams()[0] }

// connected reports whether any stream is open. Any goroutine may call it.
func (g *Group) connected() bool {
	return slices.ContainsFunc(g.upstreams(), (*upstreamHandle).connected)
}

// responded reports whether an open stream has brought a response. Any goroutine may call it.
func (g *Group) responded() bool {
	return slices.ContainsFunc(g.upstreams(), func(l *upstreamHandle) bool { return l.connected() && l.responded.Load() })
}

// reach returns the status that decides whether the origin is reachable. That is the status of an
// open stream, else of a stream whose last attempt failed, else of the first stream.
func (g *Group) reach() *upstream.Status {
	for _, is := range []func(*upstream.Status) bool{
		func(s *upstream.Status) bool { return s.Connected },
		func(s *upstream.Status) bool { return s.Failed },
	} {
		for _, l := range g.upstreams() {
			if is(l.seen) {
				return l.seen
			}
		}
	}
	return g.firstUpstream().seen
}

// startUpstream starts a stream, if the group runs already.
func (g *Group) startUpstream(l *upstreamHandle) {
	if g.ctx == nil {
		return
	}
	ctx, cancel := context.WithCancel(g.ctx)
	l.ctx, l.cancel = ctx, cancel
	l.stream.CountIn(g.meters)
	g.wg.Go(func() {
		defer cancel()
		l.run(ctx)
	})
}

// openSecond opens a second stream.
func (g *Group) openSecond() *upstreamHandle {
	l := newUpstreamHandle(g, g.firstUpstream())
	handles := append(slices.Clone(g.upstreams()), l)
	g.handles.Store(&handles)
	g.startUpstream(l)
	g.log.Debug("second upstream stream opened: a type has wildcard and names")
	return l
}

// closeUpstream ends a stream. The other one is then the first.
func (g *Group) closeUpstream(l *upstreamHandle) {
	left := slices.DeleteFunc(slices.Clone(g.upstreams()), func(o *upstreamHandle) bool { return o == l })
	g.handles.Store(&left)
	if l.cancel != nil {
		l.cancel()
	}
	g.log.Debug("upstream stream closed: it carries nothing any more")
}
