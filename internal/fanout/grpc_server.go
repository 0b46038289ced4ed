package fanout

import (
	"cmp"
	"errors"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// aggregated is the service that carries every type (P4).
const aggregated = "envoy.service.discovery.v3.AggregatedDiscoveryService"

// Register registers all xDS services with g, which was made with ServerOptions: the aggregated
// one, and one for each type of the table (P4).
func (s *Server) Register(g *grpc.Server) {
	s.register(g, aggregated, "", "StreamAggregatedResources", "DeltaAggregatedResources")
	for _, t := range xds.Types() {
		s.register(g, t.Service, t.URL, t.SotW, t.Delta)
	}
}

// register registers a service for one type, or for all if only is empty.
func (s *Server) register(g *grpc.Server, service string, only xds.TypeURL, sotw, delta string) {
	desc := &grpc.ServiceDesc{ServiceName: service, HandlerType: (*any)(nil)}
	for v, method := range map[xds.Variant]string{xds.SotW: sotw, xds.Delta: delta} {
		if method == "" {
			continue
		}
		desc.Streams = append(desc.Streams, grpc.StreamDesc{
			StreamName: method, ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, gs grpc.ServerStream) error { return s.serve(gs, v, only, refuseCompressed(gs)) },
		})
	}
	g.RegisterService(desc, s)
}

const (
	maxResponse = listener.MaxMessage // of a response, in bytes
	// writeBuffer is grpc's write buffer of a connection, in bytes. A larger one is not faster. A
	// smaller one costs one more system call for each part of a large response.
	writeBuffer = 128 << 10
	// maxHeaders bounds the headers of a call, in bytes. grpc's own bound is 16 MB.
	maxHeaders = 64 << 10
	// idleConnection is how long a connection may have no stream.
	idleConnection = 5 * time.Minute
	// ageGrace is how long a connection stays open after grpc told its client that the connection
	// is older than max_connection_age.
	ageGrace = 5 * time.Second
)

// Listen wraps a listener of the server that is made with ServerOptions.
func (s *Server) Listen(l net.Listener, p *listener.Policy) net.Listener {
	return listener.New(l, p, s.admission, s.refusals, s.opts.SendTimeout)
}

// ListenAdmin wraps the listener of the server that is made with AdminServerOptions. Its
// connections have a limit of their own.
func (s *Server) ListenAdmin(l net.Listener, p *listener.Policy, connections config.Count) net.Listener {
	return listener.New(l, p, listener.NewAdmission(config.Limits{Connections: connections}), s.refusals, 0)
}

// Keepalive is when connections are pinged, and how often clients may ping.
type Keepalive struct{ Time, Timeout, MinTime time.Duration }

// ServerOptions are the options of the grpc server that s is registered with. It serves what
// listener.New returns.
func (s *Server) ServerOptions(k Keepalive) []grpc.ServerOption {
	s.pingAfter.Store(int64(k.Time))
	opts := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		//nolint:staticcheck // A registered compressor would also be offered to origins.
		grpc.RPCDecompressor(noGzip{}),
		grpc.UnknownServiceHandler(s.refuseMethod),
		grpc.Creds(listener.Credentials(s.refusing)),
		grpc.ConnectionTimeout(listener.HandshakeTimeout),
		grpc.WriteBufferSize(writeBuffer),
		// Without a read buffer, an idle connection keeps none.
		grpc.ReadBufferSize(0),
		// With windows of a fixed size grpc does not estimate the bandwidth. It would answer
		// each request, and so each ACK, with a ping and a window update.
		grpc.StaticStreamWindowSize(listener.RequestWindow),
		grpc.StaticConnWindowSize(listener.RequestWindow),
		grpc.MaxSendMsgSize(maxResponse),
		grpc.MaxRecvMsgSize(cmp.Or(s.settings().Limits.RequestBytes, maxResponse)),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: k.Time, Timeout: k.Timeout, MaxConnectionIdle: idleConnection,
			MaxConnectionAge: s.opts.MaxConnectionAge, MaxConnectionAgeGrace: ageGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: k.MinTime, PermitWithoutStream: true}),
	}
	if n := s.settings().Limits.StreamsPerConnection; n > 0 {
		// One more, so that it is refused with a reason, except on a proxy's connection.
		// Otherwise the client's transport would let it wait.
		opts = append(opts, grpc.MaxConcurrentStreams(uint32(n)+1))
	}
	return opts
}

// AdminServerOptions are the options of the grpc server of the admin API, which has none of the xDS
// services. It serves what listener.New returns. Its connections have the same bounds as those of
// clients.
func (s *Server) AdminServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(listener.Credentials(func() bool { return false })),
		grpc.ConnectionTimeout(listener.HandshakeTimeout),
		grpc.ReadBufferSize(0),
		grpc.StaticStreamWindowSize(listener.RequestWindow),
		grpc.StaticConnWindowSize(listener.RequestWindow),
		grpc.MaxHeaderListSize(maxHeaders),
	}
}

// finisher ends a stream with a status, from any goroutine and without blocking, and makes
// its handler's receive return. The streams of grpc's transport have this method, which is not
// public. The public way is to return from the handler, which would need a second goroutine
// for each stream. If a later grpc has no such method, stream.end closes the connection
// instead: the client sees no reason, and other streams on the connection end as well.
type finisher interface {
	WriteStatus(*status.Status) error
}

// finisherOf returns nil if this grpc has none.
func finisherOf(gs grpc.ServerStream) finisher {
	f, _ := grpc.ServerTransportStreamFromContext(gs.Context()).(finisher)
	return f
}

// noGzip lets streams with gzip reach their handler, which refuses them with a reason. Without it,
// grpc would end them without a trace.
type noGzip struct{}

func (noGzip) Type() string { return "gzip" }

// Do implements grpc.Decompressor. No request of such a stream is read.
func (noGzip) Do(io.Reader) ([]byte, error) { return nil, errors.New("gzip is not supported") }

// refuseCompressed refuses a stream whose requests are compressed.
func refuseCompressed(gs grpc.ServerStream) *refusal.Refusal {
	s, ok := grpc.ServerTransportStreamFromContext(gs.Context()).(interface{ RecvCompress() string })
	if !ok || s.RecvCompress() != (noGzip{}).Type() {
		return nil
	}
	return refusal.New(codes.Unimplemented, telemetry.Compression, "stream: the client compresses its requests with gzip, which the relay does not support; turn compression off in its channel")
}

// refuseMethod refuses a call of a method that the relay does not have. Without it, grpc would
// refuse the call without a trace.
func (s *Server) refuseMethod(_ any, gs grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(gs)
	return s.serve(gs, xds.SotW, "", refusal.New(codes.Unimplemented, telemetry.UnknownMethod, "call: the relay has no method %s", refusal.Short(method, refusal.MaxNode)))
}
