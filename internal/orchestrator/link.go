package orchestrator

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"xdsrelay/internal/telemetry/tracing"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// link is one of a group's upstream streams, of which there are one or two, and
// for a while three (P50). It is that stream's Sink, so that the group knows which of the two
// speaks.
type link struct {
	// Fixed once made.
	group  *Group
	stream Stream
	ctx    context.Context // of the stream; nil: it was never started
	cancel context.CancelFunc

	// Safe for concurrent use.
	status atomic.Pointer[upstream.Status]
	spoken atomic.Bool // a response has come on the stream that is open

	// Owned by the group's goroutine.
	sent *xds.Interest    // to the stream
	seen *upstream.Status // the newest that was looked at
}

var _ upstream.Sink = (*link)(nil)

// newLink makes a link; it starts nothing.
func newLink(g *Group) *link {
	l := &link{group: g, sent: new(xds.Interest)}
	l.status.Store(new(upstream.Status))
	l.seen = l.status.Load()
	l.stream = g.opts.Open(g.key.String(), g.rep.Bytes(), l)
	return l
}

// Held implements upstream.Sink.
func (l *link) Held(typ xds.TypeURL) *xds.Snapshot {
	v := find(*l.group.types.Load(), typ)
	if v == nil {
		return nil
	}
	if m := v.move.Load(); m != nil && m.to == l {
		return m.held.Load()
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

// lines are the group's links, in the order in which they were opened: home, the
// second while there is one, and a third while what is on the second moves home
// and has to be apart again. The slice is not to be changed.
func (g *Group) lines() []*link { return *g.links.Load() }

// home is where everything is asked for, but for what has to be apart from it.
func (g *Group) home() *link { return g.lines()[0] }

// open opens another stream.
func (g *Group) open() *link {
	l := newLink(g)
	lines := append(slices.Clone(g.lines()), l)
	g.links.Store(&lines)
	g.start(l)
	g.log.Debug("another upstream stream: wildcard and names of one type", "streams", len(lines))
	return l
}

// close ends a link's stream; the first that is left is home from then on. What is
// still on its way from it is nobody's, and what was on its way to it stays where
// it is.
func (g *Group) close(l *link) {
	for _, v := range g.views {
		if m := v.move.Load(); m != nil && m.to == l {
			v.move.Store(nil)
		}
	}
	left := slices.DeleteFunc(slices.Clone(g.lines()), func(o *link) bool { return o == l })
	g.links.Store(&left)
	if l.cancel != nil {
		l.cancel()
	}
	g.log.Debug("an upstream stream is not needed any more", "streams", len(left))
}
