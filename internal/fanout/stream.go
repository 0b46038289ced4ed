package fanout

import (
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/nonce"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tracing"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// stream is one client's stream. With thousands of streams, its memory is not in the processor's
// cache when a response leaves or an ACK comes. What these need is in the first four cache lines.
// Fields without a lock or an owner are fixed, or any goroutine's.
type stream struct {
	id       uint64
	srv      *Server
	run      runState
	inFlight atomic.Pointer[Frame] // the message in flight; nil: none
	since    atomic.Int64          // when it was handed over, UnixNano
	size     atomic.Int64          // its size without the nonce: of a part, if the response has several (P38)
	before   atomic.Int64          // bytes that were written to the connection before it

	mu     sync.Mutex
	types  []*streamType  // in the order of sending (P35); replaced, not changed, by the receiver under mu
	nonces nonce.Sequence // under mu
	unsent *unsent        // nil: none; owner: the worker that has the stream

	grpc         grpc.ServerStream
	conn         *listener.Conn
	large        atomic.Pointer[large]           // the last large message that the client has not answered; nil: none
	checkedRules uint64                          // version of the rules under which it was admitted: see stillAdmitted; owner: as unsent
	refusal      atomic.Pointer[refusal.Refusal] // why the stream ends; the first counts
	first        [1]*streamType                  // has types while there is one: they are not in memory of their own
	variant      xds.Variant

	req          *xds.Request // while one is handled; owner of this and the next five: the receiver
	in           incoming
	names        int               // weight of all names that the stream requests
	client       subscriber.Client // joined at the first request
	rulesVersion uint64            // by which the client was admitted last: see rekeyer
	throttle     listener.Throttle

	only   xds.TypeURL              // of a per-type service; empty: aggregated
	node   *xds.Node                // set by the first request; dynamic parameters may follow (P1); under mu
	left   atomic.Pointer[chan any] // closed when the last worker has left
	caller *listener.Caller
	from   string // remote address, for messages
	opened time.Time
	fin    finisher // nil: this grpc version has none
	_      [32]byte // the allocator begins streams of more than 416 bytes at a cache line
}

// receive handles requests until the stream ends, and returns its status.
func (st *stream) receive() error {
	in := &st.in
	for first := true; ; first = false {
		err := st.grpc.RecvMsg(in)
		if err != nil {
			return st.status(err)
		}
		st.req = requests.Get().(*xds.Request)
		refused := st.handle(in.bytes(), first)
		if st.req.Entries() <= maxPooled {
			requests.Put(st.req)
		}
		st.req = nil
		in.release()
		if refused != nil {
			st.End(refused)
			return refused
		}
	}
}

// requests are pooled requests, into which streams scan. A stream has one only while it handles a
// request. The pool keeps no request that had many names.
var requests = sync.Pool{New: func() any { return new(xds.Request) }}

const maxPooled = 1 << 14

// status is the status of a stream whose RecvMsg failed.
func (st *stream) status(err error) error {
	if r := st.refusal.Load(); r != nil {
		return r
	}
	if errors.Is(err, io.EOF) {
		return nil // the client is done
	}
	if status.Code(err) == codes.ResourceExhausted {
		st.End(refusal.New(codes.ResourceExhausted, telemetry.LimitRequestBytes, "request: more bytes than downstream.limits.request_bytes allows: %s", status.Convert(err).Message()))
		return st.refusal.Load()
	}
	return err
}

// handle applies a request. A refusal ends the stream.
func (st *stream) handle(msg []byte, first bool) *refusal.Refusal {
	if refused := st.scan(msg); refused != nil {
		return refused
	}
	ty, refused := st.typeOfRequest(first)
	if refused != nil {
		return refused
	}
	if ty == nil || ty.subscriber == nil {
		st.wait(0)
		return nil // P3, P5, P6: no response
	}
	return st.apply(ty)
}

// scan reads a request. The type of a SotW request follows its names on the wire. So the names may
// be recognised as the list of any type, and are read in full if it is another type's.
func (st *stream) scan(msg []byte) *refusal.Refusal {
	r, limits := st.req, &st.srv.settings().Limits
	var known [8]xds.NameList // not allocated
	lists := known[:0]
	for _, ty := range st.types {
		if list := ty.NameList(); !list.Empty() {
			lists = append(lists, list)
		}
	}
	refused := listener.Scan(r, st.variant, msg, limits, lists...)
	if refused != nil || r.Known.Empty() {
		return refused
	}
	ty := st.typeOf(r.TypeURL)
	if st.only != "" && len(r.TypeURL) == 0 {
		ty = st.types[0]
	}
	if ty != nil && ty.NameList() == r.Known {
		return nil
	}
	return listener.Scan(r, st.variant, msg, limits)
}

// typeOfRequest takes the request's node, if it has one, and returns the type of the request; nil:
// the request is a report.
func (st *stream) typeOfRequest(first bool) (*streamType, *refusal.Refusal) {
	if refused := st.identify(first); refused != nil {
		return nil, refused
	}
	if !first {
		if ty := st.typeOf(st.req.TypeURL); ty != nil {
			return ty, nil
		}
	}
	return st.newType()
}

// newType returns the type of a request whose type_url the stream does not know yet (P2).
func (st *stream) newType() (*streamType, *refusal.Refusal) {
	url := st.req.TypeURL
	switch {
	case st.only != "" && len(url) == 0 && len(st.types) > 0:
		return st.types[0], nil
	case st.only != "" && len(url) == 0:
		return st.join(st.only)
	case st.only != "" && string(url) != string(st.only):
		return nil, refusal.New(codes.InvalidArgument, telemetry.TypeMismatch, "request: type_url must be %s on this stream, but is %s", st.only, url)
	case len(url) == 0:
		return nil, refusal.New(codes.InvalidArgument, telemetry.TypeMissing, "request: type_url is missing; an aggregated stream needs it")
	}
	return st.join(xds.TypeURL(url))
}

// identify takes the node of the first request. Of a later node only the dynamic parameters count
// (P1).
func (st *stream) identify(first bool) *refusal.Refusal {
	raw := st.req.Node
	if raw == nil {
		if first {
			return refusal.New(codes.InvalidArgument, telemetry.NodeMissing, "request: node is missing in the first request")
		}
		return nil
	}
	if refused := listener.CheckNode(raw, &st.srv.settings().Limits); refused != nil {
		return refused
	}
	if !first {
		if string(raw) == string(st.node.Bytes()) {
			return nil
		}
		st.srv.metrics.Refuse(telemetry.NodeChanged)
		merged, err := xds.MergeDynamic(st.node.Bytes(), raw)
		if err != nil {
			return refusal.New(codes.InvalidArgument, telemetry.NodeInvalid, "request: %w", err)
		}
		raw = merged
	}
	node, err := st.srv.nodes.Intern(raw)
	if err != nil {
		return refusal.New(codes.InvalidArgument, telemetry.NodeInvalid, "request: %w", err)
	}
	if node == st.node {
		return nil
	}
	st.mu.Lock()
	st.node = node
	st.mu.Unlock()
	st.conn.Carries(node)
	st.rulesVersion = st.srv.rekeyer.rulesVersion.Load() // before the policy is asked
	// Each node is checked, since dynamic parameters are a part of it.
	if refused := st.caller.Admit(node); refused != nil {
		return refused
	}
	if !first {
		st.client.SetNode(node)
		return nil
	}
	return st.joinAs(node)
}

// joinAs makes the client known with its first node.
func (st *stream) joinAs(node *xds.Node) (refused *refusal.Refusal) {
	info := subscriber.Info{Node: node, Peer: st.caller.Peer, PeerID: st.caller.PeerID, Token: st.caller.Token, End: st.End}
	if keyOf := st.srv.opts.RelayKey; keyOf != nil {
		md, _ := metadata.FromIncomingContext(st.grpc.Context())
		if info.Key, refused = keyOf(md); refused != nil {
			return refused
		}
		info.Relay = true
	}
	st.client = st.srv.joiner.Join(info)
	return nil
}

// typeOf returns the type; nil before its first request. Receiver only.
func (st *stream) typeOf(url []byte) *streamType {
	for _, s := range st.types {
		if string(s.Type.URL) == string(url) {
			return s
		}
	}
	return nil
}

// maxTypes is the number of dirty bits.
const maxTypes = 64

// isReport reports whether the first request for a type reports something and does not subscribe
// (P3). There is no response that it could refuse.
func (st *stream) isReport(url xds.TypeURL) bool {
	return url == xds.HealthReportType || st.req.IsNACK && len(st.req.Nonce) == 0
}

// dropReport counts and logs a report. Many clients share a stream to the origin, which could not
// tell whose report it is (P3).
func (st *stream) dropReport(url xds.TypeURL) {
	st.srv.metrics.Refuse(telemetry.Report)
	said := ""
	if st.req.IsNACK {
		said = ": " + subscriber.NackMessage(xds.TypeOf(url), st.req.ErrorMessage, nil, nil)
	}
	st.srv.refusals.Note("client report dropped; the origin does not get it",
		refusal.New(codes.Code(st.req.ErrorCode), telemetry.Report, "%s%s", url, said), st.logClient(st.node.ID))
}

// join adds a type at its first request, with the key of the node as it is now (P5). It returns nil
// if the request is a report.
func (st *stream) join(url xds.TypeURL) (*streamType, *refusal.Refusal) {
	if st.isReport(url) {
		st.dropReport(url)
		return nil, nil
	}
	limit := st.srv.settings().Limits.TypesPerStream
	if limit <= 0 || limit > maxTypes {
		limit = maxTypes
	}
	if len(st.types) >= limit {
		return nil, refusal.New(codes.ResourceExhausted, telemetry.LimitTypesPerStream, "request: %s: more types than downstream.limits.types_per_stream allows (%d)", url, limit)
	}
	t := xds.RowOf(url)
	url = t.URL // types of the table share their URL
	form := st.node.ResourceFormat(st.variant)
	form.OriginVersions, form.SeveralOrigins = st.srv.opts.OriginVersions, st.srv.opts.SeveralOrigins
	form.Relay = st.srv.opts.RelayKey != nil
	rulesVersion := st.srv.rekeyer.rulesVersion.Load() // before rules and policy are read: see addChecked
	if rulesVersion != st.rulesVersion {
		// The rekeyer ends a client that is not admitted any more. It gets no further types until
		// then: the rules of today may map its node to the key of another client.
		if refused := st.caller.Admit(st.node); refused != nil {
			return nil, refused
		}
		st.rulesVersion = rulesVersion
	}
	ty := &streamType{Session: *session.New(t, form, st.srv.opts.MaxResponse), st: st, node: st.node, bit: 1 << len(st.types), track: inspect.NewTracker(time.Now()), metrics: &uncounted}
	if refused := st.caller.MayHave(*t); refused != nil {
		if st.only != "" {
			return nil, refused
		}
		ty.leaveUnanswered(refused.Reason, refused.Err) // P6
		return st.addChecked(ty, rulesVersion)
	}
	sub, err := st.client.Subscribe(url, ty)
	if err != nil {
		var refused *refusal.Refusal
		if !errors.As(err, &refused) {
			return nil, refusal.New(codes.Internal, telemetry.KeyError, "join %s: %w", url, err)
		}
		first := !slices.ContainsFunc(st.types, func(s *streamType) bool { return s.subscriber != nil })
		if first || refused.Code != codes.PermissionDenied {
			return nil, refused
		}
		ty.leaveUnanswered(telemetry.UnmappedLater, refused.Err) // P5
		return st.addChecked(ty, rulesVersion)
	}
	ty.joined(sub)
	return st.addChecked(ty, rulesVersion)
}

// apply changes the type's session by the request.
func (st *stream) apply(ty *streamType) *refusal.Refusal {
	r := st.req
	first := !ty.Began()
	want, changed := st.subscribe(ty)
	limit := st.srv.settings().Limits.NamesPerStream
	more, newNames := 0, 0
	if changed { // otherwise the memory of the names is not read
		more = want.Names.Weight() - ty.Requested().Names.Weight()
		newNames = addedWeight(ty.Requested().Names, want.Names)
	}
	st.names += more // counted also without a limit, since one may be set later
	if limit > 0 && more > 0 && st.names > limit {
		return refusal.New(codes.ResourceExhausted, telemetry.LimitNamesPerStream, "request: %s: %d names (a long name counts several times), more than downstream.limits.names_per_stream allows (%d)", ty.Type.URL, st.names, limit)
	}
	if changed || first {
		want = ty.subscriber.Intern(want)
	}
	now := time.Now()
	if first && st.variant == xds.SotW && ty.Type.URL == xds.ClusterType {
		ty.subscriber.SetRoutesWait(want.RoutesWait()) // before the types that wait for it begin
	}
	st.mu.Lock()
	seq := st.nonces.Number(r.Nonce)
	out := ty.Request(r, want, seq)
	if first || changed {
		ty.track.Requested(now, st.variant)
	}
	if first || changed || out.Wake || out.Answer == session.Acked || out.Answer == session.Nacked {
		ty.epoch++
	}
	remembers := ty.NamesWeight()
	ask := ty.Retry(r, ty.snapshot())
	nack := st.note(ty, &out, now)
	acked := out.Answer == session.Acked && ty.RemembersNoNACK()
	var accepted *snapshot.Snapshot
	if acked {
		accepted = ty.Accepted()
	}
	st.mu.Unlock()

	if l := st.large.Load(); l != nil && seq >= l.seq {
		st.large.CompareAndSwap(l, nil)
	}
	if limit > 0 && remembers > limit {
		return refusal.New(codes.ResourceExhausted, telemetry.LimitNamesPerStream, "request: %s: %d names are unsubscribed or in initial_resource_versions, without a response yet; more than downstream.limits.names_per_stream allows (%d)", ty.Type.URL, remembers, limit)
	}
	if changed || first {
		// The group wakes the type once it has indexed the subscription, so that no update
		// is missed.
		ty.subscriber.Request(want)
	}
	if len(ask) > 0 {
		ty.subscriber.Resubscribe(ask)
	}
	if out.Wake {
		st.wake(ty.bit)
	}
	if acked {
		ty.subscriber.Acked(out.Gen, accepted)
	}
	if t := st.srv.opts.Tracer; t != nil && out.Answer == session.Acked && out.Received.After(ty.track.Began()) {
		t.Acked(&tracing.Ack{Node: st.node.ID, Key: ty.subscriber.Key(), Type: ty.Type.URL, Version: out.Version, Nonce: r.Nonce, Received: out.Received, At: now})
	}
	if nack != nil {
		// Not under the lock, since redaction takes time.
		message := subscriber.NackMessage(*ty.Type, r.ErrorMessage, ty.subscriber, out.Rejected)
		st.mu.Lock()
		nack.Message = message
		st.mu.Unlock()
		ty.subscriber.Nacked(*nack, out.Rejected)
		subscriber.LogNack(st.srv.log, ty.subscriber, ty.Type.URL, nack, string(r.Nonce))
	}
	if out.Answer != session.Acked || changed || first {
		st.wait(newNames)
	}
	return nil
}

// wait delays the stream if it sends too much; newNames is the weight of the newly requested names.
func (st *stream) wait(newNames int) {
	s := st.srv
	st.throttle.Wait(st.grpc.Context(), newNames, listener.Limiting{Limits: &s.settings().Limits, Metrics: s.metrics, Log: s.log, Client: st.logClient(st.node.ID)})
}

// addedWeight is the weight of the names that are in the subscription now and were not before.
func addedWeight(before, now *xds.NameSet) (weight int) {
	for name, added := range before.Diff(now) {
		if added {
			weight += xds.NameWeight(len(name))
		}
	}
	return weight
}

// subscribe calls the session's Subscribe. If the client unsubscribes from names, Subscribe reads
// what was sent, which the workers change under the lock.
func (st *stream) subscribe(ty *streamType) (*snapshot.Subscription, bool) {
	if len(st.req.Unsubscribe) > 0 {
		st.mu.Lock()
		defer st.mu.Unlock()
	}
	return ty.Subscribe(st.req)
}

// note counts an ACK, a NACK or a stale request. It returns the NACK without its message; nil: the
// request is none. The lock is held.
func (st *stream) note(ty *streamType, out *session.Outcome, now time.Time) *subscriber.Nack {
	switch out.Answer {
	case session.Acked:
		ty.track.Acked(out, now)
		ty.metrics.Acks.Inc()
		// A change from before the client came says nothing about propagation.
		if out.Received.After(ty.track.Began()) {
			ty.metrics.Propagation.Observe(now.Sub(out.Received))
		}
	case session.Nacked:
		ty.metrics.Nacks.Inc()
		n := &subscriber.Nack{Version: out.Version, Code: st.req.ErrorCode, Node: st.node.ID, At: now, Gen: out.Gen}
		ty.track.Nacked(out, n, now)
		return n
	case session.Stale, session.UnknownNonce:
		ty.metrics.Stale.Inc()
	}
	return nil
}

// End ends the stream with r, from any goroutine. The first one counts.
func (st *stream) End(r *refusal.Refusal) {
	if !st.refusal.CompareAndSwap(nil, r) {
		return
	}
	st.srv.metrics.End(r.Reason)
	if st.fin == nil {
		_ = st.conn.Close() // the receiver sees it
		return
	}
	// An error means that the stream has ended already.
	_ = st.fin.WriteStatus(r.GRPCStatus())
}

// close waits until no worker has the stream, and then leaves the groups.
func (st *stream) close() {
	left := make(chan any)
	st.left.Store(&left)
	if st.run.close() {
		<-left
	}
	if st.client != nil {
		st.client.Leave()
	}
	for _, ty := range st.types {
		if ty.wakeTimer != nil { // no worker sets it any more
			ty.wakeTimer.Stop()
		}
		if ty.unanswered != nil {
			ty.unanswered.Add(-1)
		}
		if ty.subscriber != nil {
			ty.perKey.Release()
		}
	}
}
