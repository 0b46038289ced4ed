package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"xdsrelay/internal/buffers"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tracing"
	"xdsrelay/internal/upstream/adsclient"
	"xdsrelay/internal/upstream/connections"
	"xdsrelay/internal/upstream/timing"
	"xdsrelay/internal/xds"
)

// adsStream runs one gRPC stream. Its loop owns the conversation. A sender writes one request and
// ends, so that an idle stream has no sender. There is one sender at a time: changes that come
// while it waits for the transport are merged. The receiver parses each response and hands it to
// the loop, which decides whether to accept it. The receiver then makes the update and waits until
// it is applied, so that a large update delays only the next response.
type adsStream struct {
	stream       *stream
	cs           grpc.ClientStream
	conn         *connections.Connection
	began        int64 // conn.ReceivedOfLarge when the stream was opened
	variant      xds.Variant
	conversation adsclient.Conversation

	wg        sync.WaitGroup          // shared by senders and the receiver
	written   chan struct{}           // sender to loop; room for one
	received  chan incoming           // receiver to loop
	decisions chan adsclient.Decision // loop to receiver; room for the one it waits for

	oversized map[xds.TypeURL]bool // types whose last request was too large; owned by the loop
}

// incoming is what the receiver passes to the loop: a response with its fault, an applied update,
// or the end.
type incoming struct {
	response *xds.Response
	fault    error
	applied  bool
	err      error
}

func newADSStream(s *stream, cs grpc.ClientStream, c *connections.Connection) *adsStream {
	opts, node := &s.client.opts, s.node
	if s.as != nil {
		node = s.as
	}
	return &adsStream{
		stream: s, cs: cs, conn: c, began: c.ReceivedOfLarge(), variant: s.at.Variant,
		conversation: adsclient.New(s.at.Variant, adsclient.Options{
			Domain:                    s.at.Domain,
			ContentVersions:           s.at.ContentVersions,
			Node:                      node,
			SetNodeOnFirstMessageOnly: opts.SetNodeOnFirstMessageOnly,
			Newest:                    s.Newest,
			LastVersions:              s.lastVersions,
			MaxRequestBytes:           s.at.MaxRequestBytes,
			NACKDelay:                 func(repeats int) time.Duration { return opts.Backoff.Delay(repeats, timing.UpTo) },
			MinNACKDelay:              opts.Backoff.Base,
		}),
		written: make(chan struct{}, 1), received: make(chan incoming), decisions: make(chan adsclient.Decision, 1),
		oversized: make(map[xds.TypeURL]bool),
	}
}

// run returns why the stream ended, once all its goroutines have ended.
func (a *adsStream) run(ctx context.Context, cancel context.CancelCauseFunc) error {
	a.wg.Go(func() { a.receive(ctx) })
	err := a.loop(ctx, cancel)
	cancel(err)
	a.wg.Wait()
	return err
}

func (a *adsStream) loop(ctx context.Context, cancel context.CancelCauseFunc) error {
	interest, again := a.stream.takeInterest()
	var promoted <-chan struct{}
	if p := a.stream.probing.Load(); p != nil {
		promoted = p.promoted
		p.begin(interest, a.stream.Newest)
	}
	var tick <-chan time.Time // while probing
	answers := 0              // of the probe at the last tick
	probed, looked := a.began, a.began
	if promoted != nil {
		ticker := time.NewTicker(probeTimeout)
		defer ticker.Stop()
		tick = ticker.C
	}
	a.conversation.SetInterest(interest, again)
	var merge <-chan time.Time // the changed interest waits until then
	var pause timing.RequestPause
	silent := time.NewTicker(a.stream.client.opts.FirstAnswerTimeout)
	defer silent.Stop()
	for writing := false; ; {
		var resume <-chan time.Time
		if !writing {
			if r := a.conversation.NextRequest(time.Now()); r != nil {
				a.reportSize(r)
				writing = true
				a.wg.Go(func() { a.send(r, cancel) })
			} else {
				overdue := a.overdueAt()
				if !overdue.IsZero() && !time.Now().Before(overdue) {
					return a.replace()
				}
				if at := earlier(a.conversation.WakeAt(), overdue); !at.IsZero() {
					resume = time.After(time.Until(at))
				}
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-a.stream.InterestChanged():
			if merge == nil {
				merge = time.After(pause.Next(time.Now()))
			}
		case <-merge:
			merge = nil
			if !a.conversation.SetInterest(a.stream.takeInterest()) {
				return errReopen
			}
		case <-a.written:
			writing = false
		case <-resume:
		case <-silent.C:
			if a.stream.status.Responded {
				silent.Stop()
			} else {
				a.stream.checkSilence(a.arriving(&looked))
			}
		case <-tick:
			p, was := a.stream.probing.Load(), answers
			answers = len(p.covered)
			if a.arriving(&probed) == 0 && answers == was && !p.lacksOnlyNames(a.stream) {
				return errIncomplete
			}
		case <-promoted:
			promoted, tick = nil, nil
			kept, unlisted := a.stream.promote()
			for _, r := range kept {
				if done := a.apply(ctx, r.Response, r.Decision, r.Received, nil); done.err != nil {
					return done.err
				}
			}
			if unlisted {
				return errReopen
			}
		case in := <-a.received:
			switch {
			case in.err != nil:
				return in.err
			case in.applied:
				a.conversation.Applied(in.response)
			default:
				d, err := a.decide(in)
				if err != nil {
					return err
				}
				if p := a.stream.probing.Load(); p != nil && d.Accept {
					a.conversation.Applied(in.response)
					p.kept.Add(a.variant, in.response, d, time.Now())
					p.cover(typePart{in.response.TypeURL, d.Scope()}, a.stream.carriedNow())
					d = adsclient.Decision{} // the receiver does not apply it, and leaves its buffer alone
				}
				a.decisions <- d
			}
		}
	}
}

// minProgress is how many bytes have to arrive between two looks at a connection. It is more than
// pings.
const minProgress = 4096

// arriving is how many bytes of large responses have arrived on the connection since the stream was
// opened; 0: fewer than minProgress since the last look. They may belong to another stream.
func (a *adsStream) arriving(looked *int64) int64 {
	was := *looked
	*looked = a.conn.ReceivedOfLarge()
	if *looked-was < minProgress {
		return 0
	}
	return *looked - a.began
}

// replaceEvery bounds how often a stream is replaced because of unanswered names (P64).
const replaceEvery = time.Minute

// overdueAt is when the stream has to be replaced, because a name that was answered on it, dropped
// and requested again stays unanswered (P64). It is zero if there is no such name.
func (a *adsStream) overdueAt() time.Time {
	at := a.conversation.OverdueAt()
	if next := a.stream.replaced.Add(replaceEvery); !at.IsZero() && at.Before(next) {
		return next
	}
	return at
}

// replace records that the stream is replaced, and returns the reason to end it.
func (a *adsStream) replace() error {
	a.stream.replaced = time.Now()
	a.stream.log.Info("upstream stream is replaced: a resource that was unsubscribed in between is not sent again",
		"origin", a.stream.at.Name)
	return errReopen
}

// earlier returns the earlier of two times; a zero time does not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// send writes a request. If that fails, the receiver reports why the transport ended.
func (a *adsStream) send(r *adsclient.Request, cancel context.CancelCauseFunc) {
	switch err := a.cs.SendMsg(r); {
	case err == nil:
		a.written <- struct{}{}
	case !errors.Is(err, io.EOF):
		cancel(ended(err))
	}
}

// reportSize counts and logs a request that exceeds the limit, or that leaves versions out (P59).
// Every SotW request of a type repeats its names, so only the first oversized one is logged.
func (a *adsStream) reportSize(r *adsclient.Request) {
	m := a.stream.client.opts.Metrics
	if r.VersionsLeftOut > 0 {
		m.VersionsLeftOut.Add(r.VersionsLeftOut)
		a.stream.log.Warn("versions left out of a request over upstream.max_request_bytes; removals of these resources may go unnoticed",
			"type", r.Type, "versions_left_out", r.VersionsLeftOut)
	}
	if !r.Oversized {
		delete(a.oversized, r.Type)
		return
	}
	m.OversizedRequests.Inc()
	if !a.oversized[r.Type] {
		a.oversized[r.Type] = true
		a.stream.log.Warn("request sent although it is larger than upstream.max_request_bytes", "type", r.Type, "bytes", r.Size())
	}
}

// decide asks the conversation for its decision on a response, and counts it.
func (a *adsStream) decide(in incoming) (adsclient.Decision, error) {
	s, r := a.stream, in.response
	d, err := a.conversation.Receive(r, in.fault, time.Now())
	if err != nil {
		s.client.opts.Metrics.Reject(telemetry.Unreadable)
		return d, err
	}
	s.Responded()
	c := s.Counters(r.TypeURL)
	switch {
	case d.NotRequested:
		c.Updates[telemetry.Unchanged].Inc()
		c.NotRequested.Add(len(r.Resources) + len(r.Removed))
		s.at.logUnasked(s.id, r.TypeURL, r.FirstName())
	case !d.Accept:
		c.Updates[telemetry.Rejected].Inc()
		s.reject(r, in.fault)
		s.client.opts.Metrics.Reject(telemetry.FaultOf(in.fault))
		level := slog.LevelDebug
		if d.NewFault {
			level = slog.LevelWarn
		}
		s.log.Log(context.Background(), level, "relay rejected a response", "origin", s.at.Name, "type", r.TypeURL, "version", r.Version, "nonce", r.Nonce, "in_a_row", d.NACKsInARow, "error", in.fault)
	default:
		s.forgetRejected(func(typ xds.TypeURL) bool { return typ == r.TypeURL })
	}
	return d, nil
}

func (a *adsStream) receive(ctx context.Context) {
	for {
		var msg mem.Buffer
		err := a.cs.RecvMsg(&msg)
		if err != nil {
			if tooLarge(err) {
				a.stream.client.opts.Metrics.Reject(telemetry.TooLarge)
			}
			a.sendToLoop(ctx, incoming{err: ended(err)})
			return
		}
		a.conn.Completed(msg.Len())
		now := time.Now()
		trace := a.stream.Trace(now)
		r, fault := xds.ParseResponse(a.variant, msg.ReadOnlyData())
		if !a.sendToLoop(ctx, incoming{response: r, fault: fault}) {
			trace.Fail("over", fault)
			return
		}
		select {
		case d := <-a.decisions:
			trace.Read(tracing.Response{
				Type: r.TypeURL, Version: r.Version, Nonce: r.Nonce, Resources: len(r.Resources), Removed: len(r.Removed),
			}, fault)
			switch {
			case d.NotRequested:
				trace.End("unasked")
			case !d.Accept:
				trace.Fail("rejected", fault)
			}
			if !d.Accept {
				break
			}
			done := a.apply(ctx, r, d, now, trace)
			// An accepted response is copied.
			for i := range r.Resources {
				r.Resources[i].DropBody()
			}
			msg.Free()
			if !a.sendToLoop(ctx, done) {
				return
			}
		case <-ctx.Done():
			trace.Fail("over", fault)
			return
		}
	}
}

// sendToLoop passes a message to the loop. It returns false if the loop has ended.
func (a *adsStream) sendToLoop(ctx context.Context, in incoming) bool {
	select {
	case a.received <- in:
		return true
	case <-ctx.Done():
		return false
	}
}

// apply makes an update of an accepted response and applies it.
func (a *adsStream) apply(ctx context.Context, r *xds.Response, d adsclient.Decision, now time.Time, trace *tracing.Update) incoming {
	s := a.stream
	u, n := adsclient.BuildUpdate(a.variant, d, r, s.Newest(r.TypeURL), now)
	trace.Handed(len(u.Changed), len(u.Removed))
	changed := false
	if d.Wanted() {
		var err error
		if changed, err = s.Apply(tracing.With(ctx, trace), u); err != nil {
			trace.Fail("over", err)
			return incoming{err: err}
		}
	}
	if !changed { // otherwise the group ends the trace
		trace.End("unchanged")
	}
	c := s.Counters(r.TypeURL)
	if n.NotRequested > 0 {
		c.NotRequested.Add(n.NotRequested)
		s.at.logUnasked(s.id, r.TypeURL, n.NotRequestedName)
	}
	c.OriginHeartbeats[telemetry.Renewed].Add(n.Renewed)
	c.OriginHeartbeats[telemetry.StaleHeartbeat].Add(n.Stale)
	if changed {
		c.Updates[telemetry.Applied].Inc()
	} else {
		c.Updates[telemetry.Unchanged].Inc()
	}
	s.client.opts.Metrics.ConfigReceived(now)
	if s.log.Enabled(ctx, slog.LevelDebug) {
		s.log.Debug("relay accepted a response", "origin", s.at.Name, "type", r.TypeURL, "version", r.Version, "nonce", r.Nonce,
			"resources", len(r.Resources), "removed", len(r.Removed), "another_snapshot", changed)
	}
	return incoming{response: r, applied: true}
}

// rawCodec sends requests as already encoded bytes, and returns responses as received bytes.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	r, ok := v.(*adsclient.Request)
	if !ok {
		return nil, fmt.Errorf("upstream codec: cannot send a %T", v)
	}
	var out mem.BufferSlice
	for _, part := range r.Message {
		if len(part) > 0 {
			out = append(out, mem.SliceBuffer(part))
		}
	}
	return out, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*mem.Buffer)
	if !ok {
		return fmt.Errorf("upstream codec: cannot receive into a %T", v)
	}
	*b = buffers.One(data) // the receiver frees it
	return nil
}
