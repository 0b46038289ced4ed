package upstream

import (
	"context"
	"errors"
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

// exchange is one gRPC stream's life: goroutines around a talker. The loop owns
// the talker. A sender writes one request and ends, so that a stream at rest has
// none; there is one at a time, so that what changes while the origin is slow to
// read is merged. The receiver reads, cuts and hands each response to the loop,
// which judges it by what was asked and says what to do; the receiver then makes
// the update and waits until it is applied, so that a large one holds up nothing
// but the next response.
type exchange struct {
	stream  *line
	cs      grpc.ClientStream
	variant xds.Variant
	talk    talker
	ask     func(context.Context, *life) error // for a sign of life over a transport
	life    *life                              // of what the stream is on; the loop's, nil until it is of interest

	wg      sync.WaitGroup // of senders and the receiver
	written chan struct{}  // sender to loop; room for one
	inbox   chan incoming  // receiver to loop
	lives   chan error     // whether the origin does, to loop; room for one
	orders  chan verdict   // loop to receiver; room for the one it waits for

	oversized map[xds.TypeURL]bool // types whose last request was; the loop's
}

// incoming is what the receiver has to tell: a response with its fault; an
// update that was applied; or the end.
type incoming struct {
	response *xds.Response
	fault    error
	came     time.Time // when it did at the earliest, if the receiver was busy
	applied  bool
	err      error
}

func newExchange(s *line, cs grpc.ClientStream, ask func(context.Context, *life) error) *exchange {
	o := talkOptions{
		origin:      s.at.name,
		node:        s.node,
		held:        s.held,
		memory:      s.memory,
		absentAfter: s.client.opts.AbsentAfter,
		maxRequest:  s.client.opts.MaxRequestBytes,
		damping:     s.client.opts.Backoff,
		random:      upTo,
		carried:     s.carried,
	}
	s.carried = nil
	e := &exchange{
		stream: s, cs: cs, variant: s.client.opts.Variant, ask: ask,
		written: make(chan struct{}, 1), inbox: make(chan incoming), lives: make(chan error, 1), orders: make(chan verdict, 1),
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
	var quiet, held, unread clock
	defer quiet.stop()
	defer unread.stop()
	defer held.stop()
	var going sending
	applying, reviving := false, false
	var began time.Time // when what is applied came
	doubt := doubt{absentAfter: e.stream.client.opts.AbsentAfter}
	silence, ask := time.NewTimer(e.stream.silence()), time.Now().Add(e.stream.silence())
	defer silence.Stop()
	for {
		var resume, stuck <-chan time.Time
		if going.since.IsZero() {
			if r := e.talk.next(time.Now()); r != nil {
				going = e.begin(ctx, r, cancel)
			} else if at := e.talk.heldUntil(); !at.IsZero() {
				resume = held.at(at)
			}
		}
		if e.stream.had && !going.since.IsZero() && !applying {
			stuck = unread.at(going.unread(e.stream.client.opts.AbsentAfter))
		}
		var due <-chan time.Time
		if at := e.talk.deadline(); (!at.IsZero() || e.stream.lost()) && !applying && !reviving && !e.stream.arrived.Load() {
			due = quiet.at(doubt.next(at, e.stream.lost()))
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
				e.stream.carried = e.talk.carry(time.Now())
				return errReopen
			}
			if soon := time.Now().Add(e.stream.silence()); !e.stream.had && soon.Before(ask) {
				ask = soon
				silence.Reset(e.stream.silence())
			}
		case <-e.written:
			going = sending{}
			e.talk.written(time.Now())
		case <-silence.C:
			now := time.Now() // the timer may be late
			if e.stream.arrived.Load() {
				continue // to what is no silence
			}
			if listens := e.stream.client.pulse.beat(now); now.Before(listens) && !e.stream.had {
				ask = listens
				silence.Reset(listens.Sub(now))
				continue
			}
			if now.Sub(e.stream.openedAt) >= e.stream.client.opts.AbsentAfter {
				e.stream.muted(now)
			}
			next, err := e.stream.givenUp(ctx, now)
			if errors.Is(err, errSilent) && e.stream.arrived.Load() {
				continue
			}
			if err != nil {
				return err // the next stream's clocks begin anew: nobody has spoken
			}
			if !e.stream.had {
				ask = now.Add(next)
				silence.Reset(next)
			}
		case <-resume:
		case <-stuck:
			now := time.Now()
			going.listens = e.stream.client.pulse.beat(now)
			if !now.Before(going.listens) && !going.goesOn(e.ofTransport().bytes.Load(), now) {
				return errUnread
			}
		case <-due:
			if e.stream.arrived.Load() {
				continue // to what may be an answer
			}
			now := time.Now() // the timer may be late
			switch doubt.decide(now, e.signs(now)) {
			case waitOn:
				continue
			case askLife:
				reviving = true
				l, since := e.ofTransport(), doubt.since(now, e.talk.deadline())
				e.wg.Go(func() { e.lives <- e.revive(ctx, l, since) })
				continue
			}
			for _, u := range e.talk.expired(now) {
				if _, err := e.stream.apply(ctx, u); err != nil {
					return err
				}
			}
		case err := <-e.lives:
			reviving = false
			if err == nil {
				doubt.lives()
				e.stream.found()
				continue
			}
			e.stream.log.Debug("an origin shows no life: what it leaves unanswered is waited for", "origin", e.stream.at.name, "error", err)
			now := time.Now()
			doubt.lifeless(now)
			if !errors.Is(err, errUnasked) {
				e.stream.lifeless(now)
			}
		case in := <-e.inbox:
			switch {
			case in.err != nil:
				return in.err
			case in.applied:
				applying = false
				doubt.busy(began, time.Now(), e.talk.deadline())
				e.talk.taken(in.response)
			default:
				first := !e.stream.had
				v, err := e.judge(in)
				e.stream.arrived.Store(false)
				if err != nil {
					return err
				}
				applying, began = v.take, time.Now()
				if first && !going.since.IsZero() {
					going.since = began // who takes its time for the first word may read the rest after that
				}
				e.orders <- v
			}
		}
	}
}

// signs are what is so of what the origin leaves unanswered; that it lives is seen, and told.
func (e *exchange) signs(now time.Time) signs {
	s, after := e.stream, e.stream.client.opts.AbsentAfter
	listens := s.client.pulse.beat(now)
	due := e.talk.deadline()
	until, from := e.ofTransport().lively(after)
	lively, lasts := now.Before(until), later(now, due).Before(until)
	if lively && !now.Before(listens) {
		s.found()
	}
	return signs{
		due: due, listens: listens, lively: lively, from: from, lasts: lasts, lost: s.lost(), mute: s.mute(), known: s.known(),
		early: s.at.early(after), grace: e.ofTransport().grace(after),
		unanswered: !lasts && e.talk.unanswered(later(now, due)),
	}
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
	e.ofTransport().show(in.came, s.client.opts.AbsentAfter)
	s.answered()
	if first && (!v.take || v.asked.empty()) && s.serves() {
		s.sink.Status(Status{Connected: true, Origin: s.at.name, Spoken: true})
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

// waited is how long the receiver waits at least for a response that was not there yet.
const waited = time.Millisecond

// receive reads responses until the stream ends.
func (e *exchange) receive(ctx context.Context) {
	came := time.Now() // when the last did that was waited for: those after it may have come right behind
	for {
		var msg mem.Buffer
		began := time.Now()
		err := e.cs.RecvMsg(&msg)
		if err != nil {
			if tooLarge(err) {
				e.stream.client.opts.Metrics.Reject(telemetry.TooLarge)
			}
			e.tell(ctx, incoming{err: ended(err)})
			return
		}
		e.stream.arrived.Store(true)
		now := time.Now()
		if now.Sub(began) >= waited {
			came = now
		}
		trace := e.stream.trace(now)
		r, fault := xds.ParseResponse(e.variant, msg.ReadOnlyData())
		if !e.tell(ctx, incoming{response: r, fault: fault, came: came}) {
			trace.Fail("over", fault)
			return
		}
		select {
		case v := <-e.orders:
			traceRead(trace, r, fault)
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
	u, n := judge(e.variant, v, r, s.held(r.TypeURL), now)
	trace.Handed(len(u.Changed), len(u.Removed))
	changed := false
	if !v.asked.empty() { // nobody wants the type any more
		var err error
		if changed, err = s.hand(tracing.With(ctx, trace), u, answer{whole: e.all(r, &v.asked, n), beats: beats(r, &u, n)}); err != nil {
			trace.Fail("over", err)
			return incoming{err: err}
		}
	}
	s.traceEnd(trace, changed)
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

// all is what was asked, if the response holds all that there is of it, so that
// what it leaves out is gone (P65).
func (e *exchange) all(r *xds.Response, a *asked, n tally) *asked {
	if e.variant == xds.Delta || !complete(xds.TypeOf(r.TypeURL), r, n.bodyless) {
		return nil
	}
	return a
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
