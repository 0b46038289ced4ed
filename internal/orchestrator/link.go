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
)

// link is one of a group's upstream streams, of which there are one or two (P50).
// It is that stream's Sink, so the group knows which of the two speaks.
type upstreamHandle struct {
	// Fixed once made.
	group  *Group
	stream Stream
	ctx    context.Context // of the stream; nil: it was never started
	cancel context.CancelFunc

	// Safe for concurrent use.
	status    atomic.Pointer[upstream.Status]
	responded atomic.Bool // a response has come on the stream that is open
	// openedAt is when the newest stream was opened. Each stream has its own pointer.
	openedAt atomic.Pointer[time.Time]

	// Owned by the group's goroutine.
	sent *xds.Interest    // to the stream
	seen *upstream.Status // the newest that was looked at
}

var _ upstream.Sink = (*upstreamHandle)(nil)

// newUpstreamHandle makes a link beside the first one, nil if it is the first; it starts nothing.
func newUpstreamHandle(g *Group, first *upstreamHandle) *upstreamHandle {
	l := &upstreamHandle{group: g, sent: new(xds.Interest)}
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
func (l *upstreamHandle) Held(typ xds.TypeURL) *xds.Snapshot {
	v := find(*l.group.types.Load(), typ)
	if v == nil {
		return nil
	}
	if s := v.held.Load(); s != nil {
		return s
	}
	return v.stored.Load() // it is listed as if another origin had said it (P66)
}

// errDropped ends a stream whose group has ended.
var errDropped = errors.New("the key was dropped")

// Update implements upstream.Sink.
func (l *upstreamHandle) Update(ctx context.Context, u xds.Update) (changed bool, err error) {
	applied := make(chan bool, 1)
	select {
	case l.group.updates <- update{u, l, applied, tracing.From(ctx)}:
	case <-l.group.done:
		return false, errDropped
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return <-applied, nil // the goroutine does nothing in between
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
		l.group.reached.Store(true) // another status may come before the group looks
	}
	l.status.Store(&s)
	l.group.signal()
}

func (l *upstreamHandle) connected() bool { return l.status.Load().Connected }

// connected reports whether a stream is open. Safe for concurrent use.
func (g *Group) connected() bool {
	return slices.ContainsFunc(g.upstreams(), (*upstreamHandle).connected)
}

// spoken reports whether a response has come on an open stream. Safe for concurrent use.
func (g *Group) responded() bool {
	return slices.ContainsFunc(g.upstreams(), func(l *upstreamHandle) bool { return l.connected() && l.responded.Load() })
}

// run runs the upstream stream. One that ends early leaves the group with what
// is held.
func (l *upstreamHandle) run(ctx context.Context) {
	err := l.stream.Run(ctx)
	if ctx.Err() != nil || errors.Is(err, errDropped) {
		return
	}
	l.group.log.Error("upstream stream ended for good", "error", err)
	l.Status(upstream.Status{Failed: true, Err: err})
}

// start starts a link's stream, once the group itself runs.
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

// handles are the group's links in the order in which they were opened. The slice is
// not to be changed.
func (g *Group) upstreams() []*upstreamHandle { return *g.handles.Load() }

// home is the first link.
func (g *Group) firstUpstream() *upstreamHandle { return g.upstreams()[0] }

// open opens another stream.
func (g *Group) openSecond() *upstreamHandle {
	l := newUpstreamHandle(g, g.firstUpstream())
	handles := append(slices.Clone(g.upstreams()), l)
	g.handles.Store(&handles)
	g.startUpstream(l)
	g.log.Debug("second upstream stream opened: a type has wildcard and names")
	return l
}

// close ends a link's stream. The other link is the first one then.
func (g *Group) closeUpstream(l *upstreamHandle) {
	left := slices.DeleteFunc(slices.Clone(g.upstreams()), func(o *upstreamHandle) bool { return o == l })
	g.handles.Store(&left)
	if l.cancel != nil {
		l.cancel()
	}
	g.log.Debug("upstream stream closed: it carries nothing any more")
}

// place decides which link carries the wildcard and which the names of each type.
// A response does not tell which of the two it answers, so they are never on one
// stream: the part that came second goes on a second stream. A part stays where it
// is for as long as it is asked for. A stream that carries nothing closes (P50).
func (g *Group) assign() {
	for _, v := range g.views {
		v.assign(g)
	}
	for _, l := range slices.Backward(g.upstreams()) {
		if len(g.upstreams()) > 1 && !g.carries(l) {
			g.closeUpstream(l)
		}
	}
}

// needs reports whether l carries anything.
func (g *Group) carries(l *upstreamHandle) bool {
	return slices.ContainsFunc(g.views, func(v *View) bool { return v.wildcardOn == l || v.namesOn == l })
}

// place says where the parts of the type are asked for.
func (v *View) assign(g *Group) {
	if !v.wildcard {
		v.wildcardOn = nil
	}
	if v.names.Len() == 0 {
		v.namesOn = nil
	}
	if v.wildcard && v.wildcardOn == nil {
		v.wildcardOn = g.otherThan(v.namesOn)
	}
	if v.names.Len() > 0 && v.namesOn == nil {
		v.namesOn = g.otherThan(v.wildcardOn)
	}
}

// besides returns the link for a part of a type whose other part is on l, or
// nowhere if l is nil.
func (g *Group) otherThan(l *upstreamHandle) *upstreamHandle {
	for _, o := range g.upstreams() {
		if o != l {
			return o
		}
	}
	return g.openSecond()
}

// asked is what is asked for on l. A type that nobody wants is not in it (P64).
func interestOn(views []*View, l *upstreamHandle) *xds.Interest {
	out := new(xds.Interest)
	for _, v := range views {
		switch l {
		case v.wildcardOn:
			out.Types = append(out.Types, xds.TypeInterest{Type: v.typ.URL, Wildcard: true})
		case v.namesOn:
			out.Types = append(out.Types, xds.TypeInterest{Type: v.typ.URL, Names: v.names, Again: v.again})
		}
	}
	return out
}
