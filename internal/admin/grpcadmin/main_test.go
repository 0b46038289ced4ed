package grpcadmin

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/fanout"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Fakes of the relay's parts.
var _ Clients = (*fanout.Server)(nil)

// fakeGuard is a Guard.
type fakeGuard struct {
	mu    sync.Mutex
	token string
	names map[string]bool // nil: all
	turns chan struct{}
	gone  bool // Turn fails
}

func (g *fakeGuard) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

func (g *fakeGuard) Authorized(a, from string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, _, err := net.SplitHostPort(from); err != nil {
		return false
	}
	return g.token == "" || a == "Bearer "+g.token
}

func (g *fakeGuard) AllowsHost(n string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.names == nil || g.names[n]
}

func (g *fakeGuard) MayServe(a net.Addr) error {
	if a.(*net.TCPAddr).IP.IsLoopback() {
		return nil
	}
	return errors.New("not a loopback address")
}

func (g *fakeGuard) AcquireRead(ctx context.Context) (func(), bool) {
	g.mu.Lock()
	gone := g.gone
	g.mu.Unlock()
	if gone {
		return nil, false
	}
	select {
	case g.turns <- struct{}{}:
		return func() { <-g.turns }, true
	case <-ctx.Done():
		return nil, false
	}
}

// serverFixture is a Server with a real fanout.Server, both on loopback.
type serverFixture struct {
	t      testing.TB
	groups *subscribertest.Joiner // with one key for all clients
	gate   *fakeGuard
	srv    *Server
	fanout *fanout.Server
	health *health.Server
	down   string // for clients
	addr   string // for operators
	stop   func() // waits until Run has returned
}

func newServerFixture(t testing.TB, tls *tls.Config) *serverFixture {
	t.Helper()
	metrics := xdstest.Must(telemetry.New(telemetry.Options{Prefix: "xdsrelay"}))(t)
	r := &serverFixture{
		t: t, groups: new(subscribertest.Joiner), gate: &fakeGuard{turns: make(chan struct{}, 1)}, health: health.NewServer(),
	}
	r.groups.Rules = func(*xds.Node, xds.TypeURL) (xds.Key, error) { return xds.NewKey("all"), nil }
	log := slog.New(slog.DiscardHandler)
	r.fanout = fanout.NewServer(fanout.Options{Joiner: r.groups, Metrics: metrics, Replica: "r", Settings: fanout.Settings{AckTimeout: time.Minute}, Log: log})
	clients := grpc.NewServer(r.fanout.ServerOptions(fanout.Keepalive{Time: time.Minute, Timeout: time.Minute, MinTime: time.Second})...)
	r.fanout.Register(clients)
	r.srv = xdstest.Must(New(Options{
		Guard: r.gate, Clients: r.fanout, Health: r.health, Transport: r.fanout.AdminServerOptions(),
	}))(t)
	listen := func() net.Listener {
		l := xdstest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
		return l
	}
	down, up := listen(), listen()
	r.down, r.addr = down.Addr().String(), up.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	operators, end := context.WithCancel(ctx)
	var parts, run sync.WaitGroup
	parts.Go(func() { _ = r.fanout.Run(ctx) })
	parts.Go(func() { _ = clients.Serve(r.fanout.Listen(down, &listener.Policy{Key: "downstream"})) })
	run.Go(func() {
		if err := r.srv.Run(operators, r.fanout.ListenAdmin(up, &listener.Policy{Key: "admin.grpc_address", TLS: tls}, MaxConnections)); err != nil {
			t.Error(err)
		}
	})
	r.stop = func() { end(); run.Wait() }
	t.Cleanup(func() { r.stop(); clients.Stop(); cancel(); parts.Wait() })
	return r
}

func dial(t testing.TB, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	c := xdstest.Must(grpc.NewClient(addr, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64 << 20)),
	}, opts...)...))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// publish replaces all resources; they answer the wildcard.
func (r *serverFixture) publish(typ xds.TypeURL, removed []string, all ...proto.Message) {
	r.t.Helper()
	of := xds.TypeOf(typ)
	u := snapshot.Update{Type: typ, Origin: "o", Wildcard: of.FullState, Removed: removed, Received: time.Now()}
	for _, m := range all {
		a := xdstest.Must(anypb.New(m))(r.t)
		wire := xdstest.Must(proto.Marshal(a))(r.t)
		resource := xdstest.Must(xds.NewResource(of, m.(interface{ GetName() string }).GetName(), wire))(r.t)
		u.Changed = append(u.Changed, resource)
	}
	r.groups.Group("all").Publish(u)
}

// client is a delta client of the relay.
type client struct {
	*xdstest.Stream
	node *corev3.Node
}

func (r *serverFixture) client(cc *grpc.ClientConn, n *corev3.Node) *client {
	r.t.Helper()
	return &client{xdstest.OpenStreamOn(r.t, cc, xdstest.DeltaMethod), n}
}

func (c *client) ask(url xds.TypeURL, names ...string) { c.Ask(c.node, string(url), names...) }

func (r *serverFixture) csds() statusv3.ClientStatusDiscoveryServiceClient {
	return statusv3.NewClientStatusDiscoveryServiceClient(dial(r.t, r.addr))
}

func (r *serverFixture) fetch(req *statusv3.ClientStatusRequest) (*statusv3.ClientStatusResponse, error) {
	return r.csds().FetchClientStatus(xdstest.Context(r.t), req)
}
