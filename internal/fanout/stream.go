package fanout

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/telemetry/tracing"
	"xdsrelay/internal/xds"
)

// stream is one client's stream.
type stream struct {
	// Fixed.
	id      uint64
	srv     *Server
	grpc    grpc.ServerStream
	variant xds.Variant
	only    xds.TypeURL // of a per-type service; empty: aggregated
	conn    *listener.Conn
	caller  *listener.Caller
	from    string // remote address, for people
	opened  time.Time
	fin     finisher // nil: this grpc has none

	// The receiver's.
	req   *xds.Request // while it handles one
	era   uint64       // in which its client was let in last: see mover
	names int          // that the stream asks for, over all types, by their weight
	asked int          // requests that were not just ACKs
	// limiter is that of requests_per_second; nil: it was not needed yet.
	limiter   *rate.Limiter
	throttled bool // the limiter has delayed a request

	// Any goroutine's.
	run     runState
	flying  atomic.Pointer[Frame]    // the message in flight; nil: none
	since   atomic.Int64             // when it was handed over, UnixNano
	refusal atomic.Pointer[Refusal]  // why the stream ends; the first counts
	left    atomic.Pointer[chan any] // closed when the last worker has left

	mu     sync.Mutex
	node   *xds.Node // set by the first request; dynamic parameters may follow (P1)
	slots  []*slot   // appended by the receiver; a slot's bit is its place
	order  []*slot   // the same, in the order of sending (P35)
	nonces session.Nonces
}

// receive handles requests until the stream ends, and returns its status.
func (st *stream) receive() error {
	var in incoming
	for first := true; ; first = false {
		err := st.grpc.RecvMsg(&in)
		if err != nil {
			return st.why(err)
		}
		st.req = requests.Get().(*xds.Request)
		refusal := st.handle(in.bytes(), first)
		if st.req.Entries() <= maxPooled {
			requests.Put(st.req)
		}
		st.req = nil
		in.release()
		if refusal != nil {
			st.end(refusal)
			return refusal
		}
	}
}

// requests are scanned into; a stream has one only while it handles a request.
// Those that had to hold many names are not kept.
var requests = sync.Pool{New: func() any { return new(xds.Request) }}

const maxPooled = 1 << 14

// why is the status of a stream whose receiver could not go on.
func (st *stream) why(err error) error {
	if r := st.refusal.Load(); r != nil {
		return r
	}
	if errors.Is(err, io.EOF) {
		return nil // the client is done
	}
	if status.Code(err) == codes.ResourceExhausted {
		st.srv.meters.Refuse(telemetry.LimitRequestBytes)
	}
	return err
}

// handle applies a request. A refusal ends the stream.
func (st *stream) handle(msg []byte, first bool) *Refusal {
	r := st.req
	if refusal := st.srv.scan(r, st.variant, msg); refusal != nil {
		return refusal
	}
	sl, refusal := st.slotOf(first)
	if refusal != nil {
		return refusal
	}
	if sl.member == nil {
		st.throttle()
		return nil // P5, P6: unanswered
	}
	return st.apply(sl)
}

// slotOf takes the request's node, if it has one, and returns the slot of its type.
func (st *stream) slotOf(first bool) (*slot, *Refusal) {
	if refusal := st.identify(first); refusal != nil {
		return nil, refusal
	}
	if !first {
		if sl := st.slot(st.req.TypeURL); sl != nil {
			return sl, nil
		}
	}
	return st.speaking()
}

// scan reads a request, within the limits.
func (s *Server) scan(r *xds.Request, v xds.Variant, msg []byte) *Refusal {
	refusal := s.scanned(r, v, msg)
	if refusal != nil {
		noteNode(refusal, r.Node)
	}
	return refusal
}

func (s *Server) scanned(r *xds.Request, v xds.Variant, msg []byte) *Refusal {
	limit := s.settings().Limits.NamesPerStream
	if err := r.Scan(v, msg, limit); err != nil {
		if errors.Is(err, xds.ErrTooManyNames) {
			return Refuse(codes.ResourceExhausted, telemetry.LimitNamesPerStream, "request: %w (a long one counts for several) than downstream.limits.names_per_stream allows (%d)", err, limit)
		}
		if errors.Is(err, xds.ErrLongRequestName) || errors.Is(err, xds.ErrLongType) {
			return Refuse(codes.InvalidArgument, telemetry.NameBytes, "request: %w", err)
		}
		return Refuse(codes.InvalidArgument, telemetry.RequestInvalid, "request: %w", err)
	}
	if r.Locators {
		return Refuse(codes.Unimplemented, telemetry.ResourceLocators, "request: resource_locators are not supported")
	}
	return nil
}

// nodeBytes refuses a node that is larger than it may be.
func (s *Server) nodeBytes(raw []byte) *Refusal {
	if limit := s.settings().Limits.NodeBytes; limit > 0 && len(raw) > limit {
		r := Refuse(codes.ResourceExhausted, telemetry.LimitNodeBytes, "node: %d bytes, more than downstream.limits.node_bytes allows (%d)", len(raw), limit)
		noteNode(r, raw)
		return r
	}
	return nil
}

// speaking returns the slot of the request's type, which is not known by that (P2).
func (st *stream) speaking() (*slot, *Refusal) {
	url := st.req.TypeURL
	switch {
	case st.only != "" && len(url) == 0 && len(st.slots) > 0:
		return st.slots[0], nil
	case st.only != "" && len(url) == 0:
		return st.join(st.only)
	case st.only != "" && string(url) != string(st.only):
		return nil, Refuse(codes.InvalidArgument, telemetry.TypeMismatch, "request: type_url %s on a stream of %s", url, st.only)
	case len(url) == 0:
		return nil, Refuse(codes.InvalidArgument, telemetry.TypeMissing, "request: no type_url on an aggregated stream")
	}
	return st.join(xds.TypeURL(url))
}

// identify takes the node of the first request; of a later one only the
// dynamic parameters count (P1).
func (st *stream) identify(first bool) *Refusal {
	raw := st.req.Node
	if raw == nil {
		if first {
			return Refuse(codes.InvalidArgument, telemetry.NodeMissing, "request: the first one has no node")
		}
		return nil
	}
	if refusal := st.srv.nodeBytes(raw); refusal != nil {
		return refusal
	}
	if !first {
		if string(raw) == string(st.node.Bytes()) {
			return nil
		}
		st.srv.meters.Refuse(telemetry.NodeChanged)
		merged, err := xds.MergeDynamic(st.node.Bytes(), raw)
		if err != nil {
			return Refuse(codes.InvalidArgument, telemetry.NodeInvalid, "request: %w", err)
		}
		raw = merged
	}
	node, err := st.srv.nodes.Intern(raw)
	if err != nil {
		return Refuse(codes.InvalidArgument, telemetry.NodeInvalid, "request: %w", err)
	}
	if node == st.node {
		return nil
	}
	st.mu.Lock()
	st.node = node
	st.mu.Unlock()
	st.era = st.srv.mover.era.Load() // before the gate is looked at
	// Of each node that the stream has: dynamic parameters are a part of it.
	return st.caller.Admit(node)
}

// slot returns the type's slot; nil before it spoke. Receiver only.
func (st *stream) slot(url []byte) *slot {
	for _, s := range st.slots {
		if string(s.Type.URL) == string(url) {
			return s
		}
	}
	return nil
}

// maxTypes is how many dirty bits there are.
const maxTypes = 64

// join makes the slot of a type that speaks for the first time, with the key
// of the node as it is now (P5).
func (st *stream) join(url xds.TypeURL) (*slot, *Refusal) {
	limit := st.srv.settings().Limits.TypesPerStream
	if limit <= 0 || limit > maxTypes {
		limit = maxTypes
	}
	if len(st.slots) >= limit {
		return nil, Refuse(codes.ResourceExhausted, telemetry.LimitTypesPerStream, "request: %s: more than downstream.limits.types_per_stream allows (%d)", url, limit)
	}
	t := xds.TypeOf(url)
	form := st.node.Form(st.variant)
	form.OriginVersions, form.SeveralOrigins = st.srv.opts.OriginVersions, st.srv.opts.SeveralOrigins
	era := st.srv.mover.era.Load() // before rules and gate are looked at: see placed
	if era != st.era {
		// Who is let in no more may have to wait until it is ended. Nothing is to come
		// of its node meanwhile, which the rules of today may take for another's.
		if refusal := st.caller.Admit(st.node); refusal != nil {
			return nil, refusal
		}
		st.era = era
	}
	sl := &slot{Session: *session.New(t, form, st.srv.opts.MaxResponse), st: st, node: st.node, bit: 1 << len(st.slots), began: time.Now(), meter: meter{meters: &uncounted}}
	if refusal := st.caller.MayHave(t); refusal != nil {
		if st.only != "" {
			return nil, refusal
		}
		st.srv.meters.Refuse(refusal.Reason)
		st.srv.log.Warn("a type is not given to this client, and stays unanswered",
			append(clientAttrs(st.node.ID, st.from, st.caller.Account), "type", url, "reason", refusal.Reason.String(), "error", refusal.Err)...)
		return st.placed(sl, era) // P6: unanswered
	}
	member, err := st.srv.source.Join(Join{Node: st.node, Peer: st.caller.Peer, Account: st.caller.Account, Type: url, Waker: sl})
	if err != nil {
		var refusal *Refusal
		if !errors.As(err, &refusal) {
			return nil, Refuse(codes.Internal, telemetry.KeyError, "join %s: %w", url, err)
		}
		first := !slices.ContainsFunc(st.slots, func(s *slot) bool { return s.member != nil })
		if first || refusal.Code != codes.PermissionDenied {
			return nil, refusal
		}
		st.srv.meters.Refuse(telemetry.UnmappedLater)
		return st.placed(sl, era)
	}
	sl.member, sl.meter = member, st.srv.meter(member.Key(), url)
	return st.placed(sl, era)
}

// place adds the slot to the stream, after those that are sent before it.
func (st *stream) place(sl *slot) *slot {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.slots = append(st.slots, sl)
	at, _ := slices.BinarySearchFunc(st.order, sl.Type.Order+1, func(s *slot, o uint8) int { return int(s.Type.Order) - int(o) })
	st.order = slices.Insert(slices.Clone(st.order), at, sl)
	return sl
}

// tellRouted tells the groups of the stream's clusters and load assignments once the
// stream has listeners or routes as well (P36). Receiver only.
func (st *stream) tellRouted() {
	if !slices.ContainsFunc(st.slots, func(o *slot) bool { return o.Type.Points && o.member != nil }) {
		return
	}
	for _, o := range st.slots {
		if o.Type.LeavesLast && o.member != nil {
			o.member.Routed()
		}
	}
}

// apply changes the type's session by the request.
func (st *stream) apply(sl *slot) *Refusal {
	r := st.req
	fresh := !sl.Began()
	want, changed := st.subscribe(sl)
	limit := st.srv.settings().Limits.NamesPerStream
	more := want.Names.Weight() - sl.Requested().Names.Weight()
	st.names += more // counted also without a limit, since there may be one later
	if limit > 0 && more > 0 && st.names > limit {
		return Refuse(codes.ResourceExhausted, telemetry.LimitNamesPerStream, "request: %s: %d names (a long one counts for several), more than downstream.limits.names_per_stream allows (%d)", sl.Type.URL, st.names, limit)
	}
	if changed || fresh {
		want = sl.member.Intern(want)
	}
	now := time.Now()
	st.mu.Lock()
	out := sl.Request(r, want, st.nonces.Number(r.Nonce))
	if fresh || changed {
		sl.asked = now
	}
	if fresh || changed || out.Wake || out.Answer == session.Acked || out.Answer == session.Nacked {
		sl.epoch++
	}
	remembers := sl.NamesWeight()
	ask := sl.RetryAliases(r, sl.snapshot())
	nack := st.note(sl, &out, now)
	acked := out.Answer == session.Acked && sl.RefusesNothing()
	var accepted *xds.Snapshot
	if acked {
		accepted = sl.Accepted()
	}
	st.mu.Unlock()

	if limit > 0 && remembers > limit {
		return Refuse(codes.ResourceExhausted, telemetry.LimitNamesPerStream, "request: %s: %d names of this type brought or given up, and not answered yet: more than downstream.limits.names_per_stream allows (%d)", sl.Type.URL, remembers, limit)
	}
	if changed || fresh {
		// Interest first: the group wakes the slot once it has indexed it, so
		// no update falls between.
		sl.member.Subscribe(want)
	}
	if len(ask) > 0 {
		sl.member.Again(ask)
	}
	if out.Wake {
		st.wake(sl.bit)
	}
	if acked {
		sl.member.Acked(out.Gen, accepted)
	}
	if t := st.srv.opts.Tracer; t != nil && out.Answer == session.Acked && out.Received.After(sl.began) {
		t.Acked(&tracing.Ack{Node: st.node.ID, Key: sl.member.Key(), Type: sl.Type.URL, Version: out.Version, Nonce: r.Nonce, Received: out.Received, At: now})
	}
	if nack != nil {
		// Not under the lock: to look for secrets takes time.
		message := nackMessage(sl.Type, r.ErrorMessage)
		st.mu.Lock()
		nack.Message = message
		st.mu.Unlock()
		sl.member.Nacked(*nack)
		st.srv.logNack(sl.member, sl.Type.URL, nack, string(r.Nonce))
	}
	if out.Answer != session.Acked || changed || fresh {
		st.throttle()
	}
	return nil
}

// subscribe is the session's Subscribe. What a name that is given up identifies is
// seen from what was sent, which the workers change.
func (st *stream) subscribe(sl *slot) (*xds.Subscription, bool) {
	if len(st.req.Unsubscribe) > 0 {
		st.mu.Lock()
		defer st.mu.Unlock()
	}
	return sl.Subscribe(st.req)
}

// maxNackMessage bounds what is kept of a client's message, and maxNackRead what of it is
// read at all, in bytes (P17). Envoy's messages are 4 KiB at most.
const (
	maxNackMessage = 1 << 10
	maxNackRead    = 8 << 10
)

// nackMessage is what is kept and shown of a client's message. Envoy quotes the whole
// resource where it breaks a constraint. So nothing is kept of a message about a Secret,
// and of others nothing that looks like one: a cluster may have a key inline.
func nackMessage(t xds.Type, said []byte) string {
	if t.Secret {
		return "(not shown, since it may quote the Secret)"
	}
	// Secrets are looked for before it is cut: half of one has no form.
	return ends(redact.Text(string(said[:min(len(said), maxNackRead)])), maxNackMessage)
}

// ends shortens a text to n bytes. It keeps both ends, since Envoy writes the resource first
// and the reason last.
func ends(text string, n int) string {
	const gap = "…"
	if len(text) <= n {
		return text
	}
	head := (n - len(gap)) / 2
	tail := len(text) - (n - len(gap) - head)
	return strings.ToValidUTF8(text[:head], "") + gap + strings.ToValidUTF8(text[tail:], "")
}

// note counts what a request said. It returns the refusal, if it is one, whose
// message is yet to come. Under the lock.
func (st *stream) note(sl *slot, out *session.Outcome, now time.Time) *Nack {
	sl.answering(out, now)
	switch out.Answer {
	case session.Acked:
		sl.counts.acks++
		sl.answered = now
		sl.meters.Acks.Inc()
		// Not of what was there when the client came: that is no propagation.
		if out.Received.After(sl.began) {
			sl.meters.Propagation.Observe(now.Sub(out.Received))
		}
	case session.Nacked:
		sl.counts.nacks++
		sl.meters.Nacks.Inc()
		n := &Nack{Version: out.Version, Code: st.req.ErrorCode, Node: st.node.ID, At: now, Gen: out.Gen}
		sl.nack, sl.answered = n, now
		return n
	case session.Stale, session.UnknownNonce:
		sl.meters.Stale.Inc()
	}
	return nil
}

// wake marks slots dirty and queues the stream if nobody has it.
func (st *stream) wake(bits uint64) {
	st.run.mark(bits)
	if st.run.tryQueue() {
		st.srv.sched.push(st)
	}
}

// completed is called when message n has left.
func (st *stream) completed(n uint64) {
	st.flying.Store(nil)
	if st.run.completed(n) {
		st.srv.sched.push(st)
	}
}

// end ends the stream with r, from any goroutine. The first one counts.
func (st *stream) end(r *Refusal) {
	if !st.refusal.CompareAndSwap(nil, r) {
		return
	}
	st.srv.meters.End(r.Reason)
	if st.fin == nil {
		_ = st.conn.Close() // the receiver sees it
		return
	}
	// An error means that the stream is over already.
	_ = st.fin.WriteStatus(r.GRPCStatus())
}

// close waits until no worker has the stream, and leaves the groups.
func (st *stream) close() {
	left := make(chan any)
	st.left.Store(&left)
	if st.run.close() {
		<-left
	}
	for _, sl := range st.slots {
		if sl.timer != nil { // no worker sets it any more
			sl.timer.Stop()
		}
		if sl.member != nil {
			sl.member.Leave()
			sl.perKey.Release()
		}
	}
}
