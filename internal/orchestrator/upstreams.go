package orchestrator

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"xdsrelay/internal/orchestrator/content"
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
	source Source
	cancel context.CancelFunc // nil: the stream is not started

	// Safe for concurrent use.
	status atomic.Pointer[upstream.Status]

	// The group's goroutine owns the fields below.
	sent *snapshot.Interest // the interest that the stream has
	seen *upstream.Status   // the newest status as of the last step
}

var _ upstream.Sink = (*upstreamHandle)(nil)

// newUpstreamHandle makes the handle of a stream; it starts nothing. first is the group's other
// stream, nil if there is none.
func newUpstreamHandle(g *Group, first *upstreamHandle) *upstreamHandle {
	h := &upstreamHandle{group: g, sent: new(snapshot.Interest)}
	h.status.Store(new(upstream.Status))
	h.seen = h.status.Load()
	var origin *upstream.CurrentOrigin
	if first != nil {
		origin = first.source.Current()
	}
	h.source = g.opts.NewSource(g.key, g.node.Bytes(), h, origin)
	return h
}

// Newest implements upstream.Sink.
func (h *upstreamHandle) Newest(typ xds.TypeURL) *snapshot.Snapshot {
	t := h.group.find(typ)
	if t == nil {
		return nil
	}
	if s := t.content.Newest(); s != nil {
		return s
	}
	return t.content.Stored() // the first request lists it, as if another origin had sent it (P66)
}

// errDropped ends a stream whose group has ended.
var errDropped = errors.New("key dropped")

// Update implements upstream.Sink.
func (h *upstreamHandle) Update(ctx context.Context, u snapshot.Update) (changed bool, err error) {
	applied := make(chan bool, 1)
	select {
	case h.group.updates <- update{u, h, applied, tracing.From(ctx)}:
	case <-h.group.done:
		return false, errDropped
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return <-applied, nil // the group answers at once
}

// Status implements upstream.Sink.
func (h *upstreamHandle) Status(s upstream.Status) {
	if repeats(&s, h.status.Load()) {
		return
	}
	if s.Responded {
		h.group.everAnswered.Store(true)
	}
	if s.Connected {
		h.group.wasEverOpen.Store(true) // the next status may come before the next step
	}
	h.status.Store(&s)
	h.group.signal()
}

// repeats reports whether a status is the same failure as the one before.
func repeats(s, was *upstream.Status) bool {
	return s.Err != nil && was.Err != nil && s.Err.Error() == was.Err.Error() &&
		s.Failed == was.Failed && s.Origin == was.Origin && s.Carried == nil && was.Carried == nil
}

// connected reports whether the stream is open. Any goroutine may call it.
func (h *upstreamHandle) connected() bool { return h.status.Load().Connected }

// stream returns the newest stream.
func (h *upstreamHandle) stream() content.Stream {
	s := h.status.Load()
	return content.Stream{Number: s.Stream, OpenedAt: s.OpenedAt, Open: s.Connected}
}

// run runs the upstream stream. If the stream fails for good, the group keeps what it holds.
func (h *upstreamHandle) run(ctx context.Context) {
	err := h.source.Run(ctx)
	if ctx.Err() != nil || errors.Is(err, errDropped) {
		return
	}
	h.group.log.Error("upstream stream failed and is not opened again", "error", err)
	h.Status(upstream.Status{Failed: true, Err: err})
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
	return slices.ContainsFunc(g.upstreams(), func(h *upstreamHandle) bool { return h.status.Load().Responded })
}

// reachStatus returns the status that decides whether the origin is reachable. That is the status
// of an open stream, else of a stream whose last attempt failed, else of the first stream.
func (g *Group) reachStatus() *upstream.Status {
	all := g.upstreams()
	i := slices.IndexFunc(all, func(h *upstreamHandle) bool { return h.seen.Connected })
	if i < 0 {
		i = slices.IndexFunc(all, func(h *upstreamHandle) bool { return h.seen.Failed })
	}
	return all[max(i, 0)].seen
}

// startUpstreams starts the streams that are not started. While the store is being read, they wait,
// but not longer than until openBy.
func (g *Group) startUpstreams(now time.Time) {
	if g.ctx == nil || now.Before(g.openBy()) {
		return
	}
	for _, h := range g.upstreams() {
		if h.cancel != nil {
			continue
		}
		ctx, cancel := context.WithCancel(g.ctx)
		h.cancel = cancel
		h.source.SetMetrics(g.metrics)
		g.wg.Go(func() {
			defer cancel()
			h.run(ctx)
		})
	}
}

// openSecond makes a second stream. The step starts it.
func (g *Group) openSecond() *upstreamHandle {
	h := newUpstreamHandle(g, g.firstUpstream())
	handles := append(slices.Clone(g.upstreams()), h)
	g.handles.Store(&handles)
	g.log.Debug("second upstream stream opened: a type has wildcard and names")
	return h
}

// closeUpstream ends a stream. The other one is then the first.
func (g *Group) closeUpstream(h *upstreamHandle) {
	left := slices.DeleteFunc(slices.Clone(g.upstreams()), func(o *upstreamHandle) bool { return o == h })
	g.handles.Store(&left)
	if h.cancel != nil {
		h.cancel()
	}
	g.log.Debug("upstream stream closed: no type needs it")
}
