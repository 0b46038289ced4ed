package grpcadmin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/service"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	_ "xdsrelay/internal/anytypes" // for reflection, and what opens resources
	"xdsrelay/internal/fanout/inspect"
)

// MaxConnections bounds the open connections. With maxStreams and maxAnswer it bounds the memory of
// answers that nobody reads: 1 GiB.
const MaxConnections = 16

// Bounds for a connection.
const (
	maxStreams  = 16        // of a connection
	maxRequest  = 256 << 10 // bytes
	idleTimeout = time.Minute
	grace       = 2 * time.Second // for calls in progress when Run ends
)

// Guard decides on access, as admin.Server does.
type Guard interface {
	Authorized(authorization, peer string) bool
	AllowsHost(authority string) bool
	MayServe(net.Addr) error
	AcquireRead(context.Context) (release func(), ok bool)
}

// Clients gives the open streams, as fanout.Server does.
type Clients interface{ ClientConfigs() []inspect.ClientConfig }

// Options of a Server. All are required.
type Options struct {
	Guard   Guard
	Clients Clients
	// Health is the relay's. New registers it here too.
	Health *health.Server
	// Transport has the connection settings (fanout's AdminServerOptions).
	Transport []grpc.ServerOption
}

type Server struct {
	statusv3.UnimplementedClientStatusDiscoveryServiceServer
	opts Options
	grpc *grpc.Server
}

// New makes a Server, and starts nothing.
func New(o Options) (*Server, error) {
	if o.Guard == nil || o.Clients == nil || o.Health == nil || o.Transport == nil {
		return nil, errors.New("grpcadmin: options are missing")
	}
	s := &Server{opts: o}
	s.grpc = grpc.NewServer(append(o.Transport,
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxSendMsgSize(maxAnswer+1<<10),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second, MaxConnectionIdle: idleTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(s.guardUnary),
		grpc.StreamInterceptor(s.guardStream),
	)...)
	statusv3.RegisterClientStatusDiscoveryServiceServer(s.grpc, s)
	grpc_health_v1.RegisterHealthServer(s.grpc, o.Health)
	channelz.RegisterChannelzServiceToServer(s.grpc)
	reflection.Register(s.grpc)
	return s, nil
}

// Services returns the names of the registered services.
func (s *Server) Services() (names []string) {
	for name := range s.grpc.GetServiceInfo() {
		names = append(names, name)
	}
	return names
}

// Run serves l until ctx ends; then it returns nil. It closes l. Without a token it refuses an
// address that is not loopback.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	if err := s.opts.Guard.MayServe(l.Addr()); err != nil {
		return errors.Join(err, l.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- s.grpc.Serve(l) }()
	select {
	case err := <-ended:
		s.grpc.Stop()
		return fmt.Errorf("admin %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	left := make(chan struct{})
	go func() { defer close(left); s.grpc.GracefulStop() }()
	select {
	case <-left:
		<-ended
	case <-time.After(grace):
		// Stop waits for connections in their handshake; the process ends before that.
		go s.grpc.Stop()
		select {
		case <-left:
			<-ended
		case <-time.After(grace):
		}
	}
	return nil
}
