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
type link struct {
	// Fixed once made.
	group  *Group
	stream Stream
	ctx    context.Context // of the stream; nil: it was never started
	cancel context.CancelFunc

	// Safe for concurrent use.
	status atomic.Pointer[upstream.Status]
	spoken atomic.Bool // a response has come on the stream that is open
	// openedAt is when the newest stream was opened. Each stream has its own pointer.
	openedAt atomic.Pointer[time.Time]

	// Owned by the group's goroutine.
	sent *xds.Interest    // to the stream
	seen *upstream.Status // the newest that was looked at
}

var _ upstream.Sink = (*link)(nil)

// newLink makes a link beside the first one, nil if it is the first; it starts nothing.
func newLink(g *Group, first *link) *link {
	l := &link{group: g, sent: new(xds.Interest)}
	l.status.Store(new(upstream.Status))
	l.openedAt.Store(new(time.Time))
	l.seen = l.status.Load()
	var beside Stream
	if first != nil {
		beside = first.stream
	}
	l.stream = g.opts.Open(g.key.String(), g.rep.Bytes(), l, beside)
	return l
}

// Held implements upstream.Sink.
func (l *link) Held(typ xds.TypeURL) *xds.Snapshot {
	v := find(*l.group.types.Load(), typ)
	if v == nil {
		return nil
	}
	if s := v.held.Load(); s != nil {
		return s
	}
	return v.stored.Load() // it is listed as if another origin had said it (P66)
}

// errOver ends a stream whose group has ended.
var errOver = errors.New("the key was dropped")

// Update implements upstream.Sink.
func (l *link) Update(ctx context.Context, u xds.Update) (changed bool, err error) {
	applied := make(chan bool, 1)
	select {
	case l.group.updates <- update{u, l, applied, tracing.From(ctx)}:
	case <-l.group.over:
		return false, errOver
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return <-applied, nil // the goroutine does nothing in between
}

// Status implements upstream.Sink.
func (l *link) Status(s upstream.Status) {
	if s.Connected && !s.Spoken && s.SilentSince.IsZero() { // a stream was opened
		now := time.Now()
		l.openedAt.Store(&now)
		l.spoken.Store(false)
	}
	l.spoken.Store(s.Connected && (s.Spoken || l.spoken.Load()))
	if s.Connected {
		l.group.reached.Store(true) // another status may come before the group looks
	}
	l.status.Store(&s)
	l.group.signal()
}

func (l *link) connected() bool { return l.status.Load().Connected }

// connected reports whether a stream is open. Safe for concurrent use.
func (g *Group) connected() bool { return slices.ContainsFunc(g.lines(), (*link).connected) }

// spoken reports whether a response has come on an open stream. Safe for concurrent use.
func (g *Group) spoken() bool {
	return slices.ContainsFunc(g.lines(), func(l *link) bool { return l.connected() && l.spoken.Load() })
}

// run runs the upstream stream. One that ends early leaves the group with what
// is held.
func (l *link) run(ctx context.Context) {
	err := l.stream.Run(ctx)
	if ctx.Err() != nil || errors.Is(err, errOver) {
		return
	}
	l.group.log.Error("upstream stream ended for good", "error", err)
	l.Status(upstream.Status{Failed: true, Err: err})
}

// start starts a link's stream, once the group itself runs.
func (g *Group) start(l *link) {
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

// lines are the group's links in the order in which they were opened. The slice is
// not to be changed.
func (g *Group) lines() []*link { return *g.links.Load() }

// home is the first link.
func (g *Group) home() *link { return g.lines()[0] }

// open opens another stream.
func (g *Group) open() *link {
	l := newLink(g, g.home())
	lines := append(slices.Clone(g.lines()), l)
	g.links.Store(&lines)
	g.start(l)
	g.log.Debug("second upstream stream opened: a type has wildcard and names")
	return l
}

// close ends a link's stream. The other link is the first one then.
func (g *Group) close(l *link) {
	left := slices.DeleteFunc(slices.Clone(g.lines()), func(o *link) bool { return o == l })
	g.links.Store(&left)
	if l.cancel != nil {
		l.cancel()
	}
	g.log.Debug("upstream stream closed: it carries nothing any more")
}

// place decides which link carries the wildcard and which the names of each type.
// A response does not tell which of the two it answers, so they are never on one
// stream: the part that came second goes on a second stream. A part stays where it
// is for as long as it is asked for. A stream that carries nothing closes (P50).
func (g *Group) place() {
	for _, v := range g.views {
		v.place(g)
	}
	for _, l := range slices.Backward(g.lines()) {
		if len(g.lines()) > 1 && !g.needs(l) {
			g.close(l)
		}
	}
}

// needs reports whether l carries anything.
func (g *Group) needs(l *link) bool {
	return slices.ContainsFunc(g.views, func(v *View) bool { return v.wildAt == l || v.namesAt == l })
}

// place says where the parts of the type are asked for.
func (v *View) place(g *Group) {
	if !v.wildcard {
		v.wildAt = nil
	}
	if v.names.Len() == 0 {
		v.namesAt = nil
	}
	if v.wildcard && v.wildAt == nil {
		v.wildAt = g.besides(v.namesAt)
	}
	if v.names.Len() > 0 && v.namesAt == nil {
		v.namesAt = g.besides(v.wildAt)
	}
}

// besides returns the link for a part of a type whose other part is on l, or
// nowhere if l is nil.
func (g *Group) besides(l *link) *link {
	for _, o := range g.lines() {
		if o != l {
			return o
		}
	}
	return g.open()
}

// asked is what is asked for on l. A type that nobody wants is not in it (P64).
func asked(views []*View, l *link) *xds.Interest {
	out := new(xds.Interest)
	for _, v := range views {
		switch l {
		case v.wildAt:
			out.Types = append(out.Types, xds.TypeInterest{Type: v.typ.URL, Wildcard: true})
		case v.namesAt:
			out.Types = append(out.Types, xds.TypeInterest{Type: v.typ.URL, Names: v.names, Again: v.again})
		}
	}
	return out
}
