package upstream

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tracing"
	"xdsrelay/internal/xds"
)

// mergeFor is how long changes of the interest are gathered before they are
// asked for (P52 allows 20 ms).
const mergeFor = 5 * time.Millisecond

// exchange runs one gRPC stream. The loop owns the talker. A sender writes one
// request and ends, so that an idle stream has no sender. There is one sender at
// a time: what changes while it waits for the transport is merged. The receiver
// reads and cuts each response and hands it to the loop, which decides what to
// do with it. The receiver then makes the update and waits until it is applied,
// so that a large update delays only the next response.
type exchange struct {
	stream  *line
	cs      grpc.ClientStream
	variant xds.Variant
	talk    talker

	wg      sync.WaitGroup // of senders and the receiver
	written chan struct{}  // sender to loop; room for one
	inbox   chan incoming  // receiver to loop
	orders  chan verdict   // loop to receiver; room for the one it waits for

	oversized map[xds.TypeURL]bool // types whose last request was; the loop's
}

// incoming is what the receiver has to tell: a response with its fault; an
// update that was applied; or the end.
type incoming struct {
	response *xds.Response
	fault    error
	applied  bool
	err      error
}

func newExchange(s *line, cs grpc.ClientStream) *exchange {
	o := talkOptions{
		origin:     s.at.name,
		node:       s.node,
		held:       s.held,
		memory:     s.memory,
		maxRequest: s.client.opts.MaxRequestBytes,
		damping:    s.client.opts.Backoff,
		random:     upTo,
	}
	e := &exchange{
		stream: s, cs: cs, variant: s.client.opts.Variant,
		written: make(chan struct{}, 1), inbox: make(chan incoming), orders: make(chan verdict, 1),
		oversized: make(map[xds.TypeURL]bool),
	}
	if e.variant == xds.Delta {
		e.talk = newDelta(o)
	} else {
		e.talk = newSotW(o)
	}
	return e
}

// run returns why the stream ended, once all of them have.
func (e *exchange) run(ctx context.Context, cancel context.CancelCauseFunc) error {
	e.wg.Go(func() { e.receive(ctx) })
	err := e.loop(ctx, cancel)
	cancel(err)
	e.wg.Wait()
	return err
}

func (e *exchange) loop(ctx context.Context, cancel context.CancelCauseFunc) error {
	e.talk.want(e.stream.take())
	var merge <-chan time.Time
	var held clock
	defer held.stop()
	silent := time.NewTimer(e.stream.client.opts.FirstAnswerTimeout)
	defer silent.Stop()
	for writing := false; ; {
		var resume <-chan time.Time
		if !writing {
			if r := e.talk.next(time.Now()); r != nil {
				e.note(r)
				writing = true
				e.wg.Go(func() { e.send(r, cancel) })
			} else if at := e.talk.heldUntil(); !at.IsZero() {
				resume = held.at(at)
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.stream.changed():
			if merge == nil {
				merge = time.After(mergeFor)
			}
		case <-merge:
			merge = nil
			if !e.talk.want(e.stream.take()) {
				return errReopen
			}
		case <-e.written:
			writing = false
		case <-resume:
		case <-silent.C:
			e.stream.muted()
		case in := <-e.inbox:
			switch {
			case in.err != nil:
				return in.err
			case in.applied:
				e.talk.taken(in.response)
			default:
				v, err := e.judge(in)
				if err != nil {
					return err
				}
				e.orders <- v
			}
		}
	}
}

// send writes a request. The receiver learns why the transport ended.
func (e *exchange) send(r *request, cancel context.CancelCauseFunc) {
	switch err := e.cs.SendMsg(r); {
	case err == nil:
		e.written <- struct{}{}
	case !errors.Is(err, io.EOF):
		cancel(ended(err))
	}
}

// buffers are the request's parts, for gRPC.
func (r *request) buffers() mem.BufferSlice {
	out := mem.BufferSlice{mem.SliceBuffer(r.head)}
	if len(r.tail) > 0 {
		out = append(out, mem.SliceBuffer(r.tail))
	}
	return out
}

// judge has the talker judge a response, and counts.
func (e *exchange) judge(in incoming) (verdict, error) {
	s, r := e.stream, in.response
	v, err := e.talk.received(r, in.fault, time.Now())
	if err != nil {
		s.client.opts.Metrics.Reject(telemetry.Unreadable)
		return v, err
	}
	first := !s.had
	s.answered()
	if first && (!v.take || v.asked.empty()) {
		s.report(Status{Connected: true, Spoken: true})
	}
	c := s.counters(r.TypeURL)
	switch {
	case v.unrequested:
		c.Updates[telemetry.Unchanged].Inc()
		c.Unasked.Add(len(r.Resources) + len(r.Removed))
		s.log.Debug("response for a type that was not requested", "origin", s.at.name, "type", r.TypeURL, "nonce", r.Nonce)
	case !v.take:
		c.Updates[telemetry.Rejected].Inc()
		s.client.opts.Metrics.Reject(faultOf(in.fault))
		level := slog.LevelDebug
		if v.news {
			level = slog.LevelWarn
		}
		s.log.Log(context.Background(), level, "response refused", "origin", s.at.name, "type", r.TypeURL, "version", r.Version, "nonce", r.Nonce, "in_a_row", v.refusals, "error", in.fault)
	}
	return v, nil
}

// note reports a request that could not be made as it should (P59). Every
// request of a SotW type repeats its list: of one too long the first is told.
func (e *exchange) note(r *request) {
	m, bytes := e.stream.client.opts.Metrics, len(r.head)+len(r.tail)
	if r.leftOut > 0 {
		m.VersionsLeftOut.Add(r.leftOut)
		e.stream.log.Warn("versions left out of a request, which would be over upstream.max_request_bytes: removals meanwhile go unnoticed",
			"type", r.typ, "left_out", r.leftOut)
	}
	if !r.oversized {
		delete(e.oversized, r.typ)
		return
	}
	m.OversizedRequests.Inc()
	if !e.oversized[r.typ] {
		e.oversized[r.typ] = true
		e.stream.log.Warn("request over upstream.max_request_bytes is sent all the same", "type", r.typ, "bytes", bytes)
	}
}

// clock is a timer that is made when it is first needed, which for most streams
// is never.
type clock struct{ timer *time.Timer }

// at returns what receives at this time, and not for the one said before.
func (c *clock) at(t time.Time) <-chan time.Time {
	if c.timer == nil {
		c.timer = time.NewTimer(time.Until(t))
	} else {
		c.timer.Reset(time.Until(t))
	}
	return c.timer.C
}

func (c *clock) stop() {
	if c.timer != nil {
		c.timer.Stop()
	}
}

// receive reads responses until the stream ends.
func (e *exchange) receive(ctx context.Context) {
	for {
		var msg mem.Buffer
		err := e.cs.RecvMsg(&msg)
		if err != nil {
			if tooLarge(err) {
				e.stream.client.opts.Metrics.Reject(telemetry.TooLarge)
			}
			e.tell(ctx, incoming{err: ended(err)})
			return
		}
		now := time.Now()
		trace := e.stream.trace(now)
		r, fault := xds.ParseResponse(e.variant, msg.ReadOnlyData())
		if !e.tell(ctx, incoming{response: r, fault: fault}) {
			trace.Fail("over", fault)
			return
		}
		select {
		case v := <-e.orders:
			trace.Read(tracing.Response{
				Type: r.TypeURL, Version: r.Version, Nonce: r.Nonce, Resources: len(r.Resources), Removed: len(r.Removed),
			}, fault)
			switch {
			case v.unrequested:
				trace.End("unasked")
			case !v.take:
				trace.Fail("rejected", fault)
			}
			if !v.take {
				break
			}
			done := e.take(ctx, r, v, now, trace)
			// What was taken is copied.
			for i := range r.Resources {
				r.Resources[i].Sever()
			}
			msg.Free()
			if !e.tell(ctx, done) {
				return
			}
		case <-ctx.Done():
			trace.Fail("over", fault)
			return
		}
	}
}

// tell hands the loop something; false if it is over.
func (e *exchange) tell(ctx context.Context, in incoming) bool {
	select {
	case e.inbox <- in:
		return true
	case <-ctx.Done():
		return false
	}
}

// take makes an update of a response and has it applied.
func (e *exchange) take(ctx context.Context, r *xds.Response, v verdict, now time.Time, trace *tracing.Update) incoming {
	s := e.stream
	if s.discards(r.TypeURL, v.asked.wildcard) {
		return incoming{response: r, applied: true}
	}
	u, n := judge(e.variant, v, r, s.held(r.TypeURL), now)
	trace.Handed(len(u.Changed), len(u.Removed))
	changed := false
	if !v.asked.empty() { // nobody wants the type any more
		var err error
		if changed, err = s.apply(tracing.With(ctx, trace), u); err != nil {
			trace.Fail("over", err)
			return incoming{err: err}
		}
	}
	if !changed { // else the group ends it
		trace.End("unchanged")
	}
	c := s.counters(r.TypeURL)
	c.Unasked.Add(n.unasked)
	c.Beats[telemetry.Renewed].Add(n.renewed)
	c.Beats[telemetry.StaleBeat].Add(n.stale)
	if changed {
		c.Updates[telemetry.Applied].Inc()
	} else {
		c.Updates[telemetry.Unchanged].Inc()
	}
	s.client.opts.Metrics.ConfigReceived(now)
	if s.log.Enabled(ctx, slog.LevelDebug) {
		s.log.Debug("response taken", "origin", s.at.name, "type", r.TypeURL, "version", r.Version, "nonce", r.Nonce,
			"resources", len(r.Resources), "removed", len(r.Removed), "another_snapshot", changed)
	}
	return incoming{response: r, applied: true}
}

// faultOf names a fault for its counter (P18).
func faultOf(err error) telemetry.Fault {
	for _, f := range []struct {
		is    error
		fault telemetry.Fault
	}{
		{xds.ErrTwice, telemetry.DuplicateName},
		{xds.ErrBoth, telemetry.ChangedAndGone},
		{xds.ErrOtherType, telemetry.WrongType},
		{xds.ErrNameless, telemetry.Nameless},
		{xds.ErrLongName, telemetry.InvalidName},
		{xds.ErrAliases, telemetry.ManyAliases},
	} {
		if errors.Is(err, f.is) {
			return f.fault
		}
	}
	return telemetry.Unreadable
}
