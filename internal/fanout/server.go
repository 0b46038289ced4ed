package fanout

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/nonce"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/rest"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tracing"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Options of a Server. All are needed but Log and Tracer.
type Options struct {
	Joiner  subscriber.Joiner
	Metrics *telemetry.Metrics
	Log     *slog.Logger
	Tracer  *tracing.Tracer // nil: nothing is traced
	// Replica is this relay's name in control_plane.identifier (P39).
	Replica string
	// SendTimeout ends a stream whose client reads nothing for so long (slow_clients.go); 0: never.
	SendTimeout time.Duration
	// MaxConnectionAge is grpc's: older connections are closed, and their clients open new
	// ones. 0: never.
	MaxConnectionAge time.Duration
	// OriginVersions: delta resources have the origin's versions, where it gave them, instead
	// of versions made from their content (P61).
	OriginVersions bool
	// SeveralOrigins: resources come from more than one origin.
	SeveralOrigins bool
	// Settings are the first ones.
	Settings
	// RelayKey makes the server one for other relays of the cluster. It returns the key of a stream from
	// its metadata. Nil: the clients are no relays, and the rules give the keys.
	RelayKey func(metadata.MD) (xds.Key, *refusal.Refusal)
	// MaxResponse is the largest response that is sent, in bytes; 0: listener.MaxMessage. It
	// is for tests.
	MaxResponse int
}

// Server serves the downstream side. See the package's Concurrency.
type Server struct {
	*inspect.Inspector // of its clients

	opts            Options
	currentSettings atomic.Pointer[Settings] // see settings
	joiner          subscriber.Joiner
	metrics         *telemetry.Metrics
	log             *slog.Logger
	nodes           xds.NodeTable

	sched     *scheduler
	admission *listener.Admission
	refusals  *refusal.Log
	rest      *rest.Server
	rekeyer   *rekeyer

	finisherOf func(grpc.ServerStream) finisher
	refusedAt  atomic.Int64 // UnixNano; see refusing
	pingAfter  atomic.Int64 // keepalive.time; 0: no pings

	mu       sync.Mutex
	streams  map[uint64]*stream
	lastID   uint64
	draining bool
}

// NewServer makes a server and starts nothing.
func NewServer(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.MaxResponse == 0 {
		o.MaxResponse = maxResponse
	}
	s := &Server{
		opts: o, joiner: o.Joiner, metrics: o.Metrics, log: o.Log, refusals: refusal.NewLog(o.Log, o.Metrics),
		sched: newScheduler(), admission: listener.NewAdmission(o.Limits),
		finisherOf: finisherOf, streams: make(map[uint64]*stream),
	}
	s.currentSettings.Store(&o.Settings)
	s.rekeyer = newRekeyer(s)
	s.rest = rest.New(rest.Options{
		Joiner: o.Joiner, Metrics: o.Metrics, Log: o.Log, Refusals: s.refusals, Admission: s.admission, Nodes: &s.nodes,
		SendTimeout: o.SendTimeout, MaxConnectionAge: o.MaxConnectionAge,
		LongPoll:     func() time.Duration { return s.settings().LongPoll },
		Limits:       func() *config.Limits { return &s.settings().Limits },
		RESTBytes:    func() int64 { return s.settings().RESTBytes },
		RulesVersion: s.rekeyer.rulesVersion.Load,
		NextID:       s.nextID,
		Identifier:   func(snap *snapshot.Snapshot) string { return identifier(o.Replica, snap) },
		DocumentsOf:  func(snap *snapshot.Snapshot) *rest.Documents { return &framesOf(snap).documents },
	})
	s.Inspector = inspect.New(s.inspected)
	return s
}

// Run sends until ctx ends, and returns when its workers have. The grpc server ends the streams
// that are still open then.
func (s *Server) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	parts.Go(func() { s.sched.run(ctx) })
	parts.Go(func() { s.newWatcher().run(ctx) })
	parts.Go(func() { s.rekeyer.run(ctx) })
	parts.Go(func() { s.Inspector.Run(ctx, s.metrics) })
	parts.Wait()
	return nil
}

// instance distinguishes the nonces of this process from those of any other (P10).
var instance = rand.Uint64()

// identifier is the control_plane.identifier of a response (P39).
func identifier(replica string, s *snapshot.Snapshot) string {
	id := replica + "/" + s.Origin
	if s.Stale {
		id += staleMark
	}
	return id
}

// staleMark follows the origin's name while a part of what is served is the last known good, which
// the origin has not confirmed yet.
const staleMark = " (last known good)"

// serve serves one stream, of all types if only is empty. It refuses the stream if refused is not
// nil.
func (s *Server) serve(gs grpc.ServerStream, v xds.Variant, only xds.TypeURL, refused *refusal.Refusal) error {
	p, _ := peer.FromContext(gs.Context())
	if p == nil {
		return status.Error(codes.Internal, "stream: grpc gives no peer")
	}
	conn, caller, ok := listener.Of(gs.Context())
	if !ok {
		return status.Error(codes.Internal, "stream: the server was not made with ServerOptions")
	}
	st := &stream{
		srv: s, grpc: gs, variant: v, only: only, fin: s.finisherOf(gs), opened: time.Now(),
		from: p.Addr.String(), conn: conn, caller: caller, checkedRules: s.rekeyer.rulesVersion.Load(),
	}
	if refused == nil {
		st.caller, refused = caller.Authenticate(gs.Context(), metadata.ValueFromIncomingContext(gs.Context(), "authorization"))
	}
	err := s.serveStream(st, refused)
	s.hangUpLater(st, err)
	return err
}

func (s *Server) serveStream(st *stream, refused *refusal.Refusal) error {
	if refused == nil && s.opts.RelayKey != nil { // before anything is read
		refused = st.caller.Admit(new(xds.Node))
	}
	if refused == nil {
		refused = s.admission.Enter(st.caller, st.conn)
	}
	if refused != nil {
		s.metrics.Refuse(refused.Reason)
		s.refusals.Note("client stream refused", refused, st.logClient(""))
		return refused
	}
	defer s.admission.Leave(st.caller, st.conn)
	if !s.add(st) {
		s.metrics.Refuse(telemetry.Draining)
		return refusal.New(codes.Unavailable, telemetry.Draining, "stream: the relay is shutting down")
	}
	s.metrics.Streams[st.variant].Add(1)
	defer st.caller.AtExpiry(st.End)()
	err := st.receive()
	tooLarge := st.rejectsLarge(time.Now())
	st.close()
	s.remove(st)
	s.metrics.Streams[st.variant].Add(-1)
	if r := st.refusal.Load(); r != nil {
		s.refusals.Note("client stream ended", r, st.logClient(st.NodeID()))
		s.hangUp(st, r)
	} else if tooLarge != nil {
		s.metrics.Refuse(tooLarge.Reason)
		s.refusals.Note("client ended its stream", tooLarge, st.logClient(st.NodeID()))
	}
	return err
}

// RecentRefusals returns what was refused or ended in the last minute, by reason. It may be
// called at any time.
func (s *Server) RecentRefusals() []refusal.Recent { return s.refusals.Recent() }

// client identifies the stream's client in a log line.
func (st *stream) logClient(node string) refusal.Client {
	return refusal.Client{Node: node, Peer: st.from, Identity: st.caller.Identity()}
}

// hangUp closes the connection of a client that reads nothing. The status that ends the stream
// would wait for ever behind the data that the client does not read. A connection with other
// streams stays open, since they may be of other clients (P16).
func (s *Server) hangUp(st *stream, r *refusal.Refusal) {
	if (r.Reason == telemetry.SendTimeout || r.Reason == telemetry.LimitPinnedBytes) && st.run.sending() && s.admission.Streams(st.conn) <= 1 {
		_ = st.conn.Close() // its stream sees it
	}
}

// statusTime is how long the transport has to write the status of a stream, before hangUpLater
// closes the connection. It is less than the time after which clients open their next stream.
const statusTime = 200 * time.Millisecond

// hangUpLater closes the connection of a stream that ended with err, if another replica may serve
// the client. Otherwise gRPC's channel would open the next stream on the same connection. A
// connection with other streams stays open. So does one whose client has not read all responses:
// hangUp decides about it. A connection whose certificate is not valid any more is closed in any case,
// because it can have no streams. The client may have a new certificate by now.
func (s *Server) hangUpLater(st *stream, err error) {
	code := status.Code(err)
	invalid := code == codes.PermissionDenied && st.caller.Verify() != nil
	if code != codes.Unavailable && code != codes.ResourceExhausted && !invalid {
		return
	}
	var r *refusal.Refusal
	if errors.As(err, &r) && r.Reason == telemetry.KeyChanged {
		return // the client comes back for its new key
	}
	if r != nil && r.Reason.OfRelay() {
		s.refusedAt.Store(time.Now().UnixNano())
	}
	time.AfterFunc(statusTime, func() {
		if invalid || !st.run.sending() && s.admission.Streams(st.conn) == 0 {
			_ = st.conn.Close() // its client sees it
		}
	})
}

// refusingTime is how long after a refusal the relay counts as refusing clients. It is longer than
// most pauses of clients between two attempts.
const refusingTime = 30 * time.Second

// refusing reports whether the relay lately refused a client for a reason that holds for most
// clients.
func (s *Server) refusing() bool {
	return time.Now().UnixNano()-s.refusedAt.Load() < int64(refusingTime)
}

func (s *Server) add(st *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.lastID++
	st.id = s.lastID
	st.nonces = nonce.New(instance, st.id)
	s.streams[st.id] = st
	return true
}

// nextID numbers REST pollers among streams.
func (s *Server) nextID() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastID++
	return s.lastID
}

func (s *Server) remove(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st.id)
}

func (s *Server) all() []*stream { return s.appendAll(nil) }

func (s *Server) appendAll(to []*stream) []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	to = slices.Grow(to, len(s.streams))
	for _, st := range s.streams {
		to = append(to, st)
	}
	return to
}

// ServeREST serves REST-JSON on l until ctx ends; then it returns nil. secured is its TLS, nil for
// none. Clients have to pass all of the policies.
func (s *Server) ServeREST(ctx context.Context, l net.Listener, secured *tls.Config, k Keepalive, policies ...*listener.Policy) error {
	return s.rest.Serve(ctx, l, secured, rest.Ping{Every: k.Time, Timeout: k.Timeout}, policies...)
}

// Settings are what can change while the server runs. A Settings in force does not change: code
// that needs two values of the same moment loads it once.
type Settings struct {
	// AckTimeout is how long the next response waits for the ACK of the last one (P19).
	AckTimeout time.Duration
	// LongPoll is how long a REST poll without news is held (P71).
	LongPoll time.Duration
	// RESTBytes bounds the bodies of REST polls that are being read, together.
	RESTBytes int64
	// Limits; 0: none. Connections, StreamsPerConnection and RequestBytes take effect when the
	// listeners and the grpc server are made. Later changes have no effect.
	Limits config.Limits
}

func (s *Server) settings() *Settings { return s.currentSettings.Load() }

// Reconfigure puts other settings in force. A stream that exceeds a new limit stays until it requests
// more. A SotW request counts as requesting everything anew.
func (s *Server) Reconfigure(to Settings) {
	s.currentSettings.Store(&to)
	s.admission.Reconfigure(to.Limits)
}
