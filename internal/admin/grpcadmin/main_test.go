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

	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Fakes of the relay's parts.
var _ Clients = (*fanout.Server)(nil)

// fakeSource is a subscriber.Joiner with one State for all clients.
type fakeSource struct {
	mu          sync.Mutex
	state       *snapshot.State
	subscribers map[*fakeSubscriber]bool
}

type fakeSubscriber struct {
	h    *fakeSource
	join subscriber.Join
}

func (h *fakeSource) Join(j subscriber.Join) (subscriber.Subscriber, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := &fakeSubscriber{h, j}
	h.subscribers[m] = true
	return m, nil
}

func (h *fakeSource) KeyOf(*xds.Node, expr.Peer, xds.TypeURL) (xds.Key, error) {
	return xds.NewKey("all"), nil
}

func (m *fakeSubscriber) Key() xds.Key { return xds.NewKey("all") }
func (m *fakeSubscriber) State() *snapshot.State {
	m.h.mu.Lock()
	defer m.h.mu.Unlock()
	return m.h.state
}
func (m *fakeSubscriber) Newest() *snapshot.Snapshot                             { return m.State().Snapshot(m.join.Type) }
func (m *fakeSubscriber) Intern(s *snapshot.Subscription) *snapshot.Subscription { return s }
func (m *fakeSubscriber) Subscribe(*snapshot.Subscription)                       { m.join.Waker.Wake() }
func (m *fakeSubscriber) Resubscribe([]string)                                   {}
func (m *fakeSubscriber) Offered(*snapshot.Offer, int) ([]*xds.Resource, bool)   { return nil, true }
func (m *fakeSubscriber) Nacked(subscriber.Nack, *snapshot.Offer)                {}
func (m *fakeSubscriber) Routed()                                                {}
func (m *fakeSubscriber) SetRoutesWait(time.Duration)                            {}
func (m *fakeSubscriber) RoutesWait() time.Duration                              { return 0 }
func (m *fakeSubscriber) Acked(uint64, *snapshot.Snapshot)                       {}
func (m *fakeSubscriber) Leave() {
	m.h.mu.Lock()
	defer m.h.mu.Unlock()
	delete(m.h.subscribers, m)
}

// publish replaces all resources; they answer the wildcard.
func (h *fakeSource) publish(t testing.TB, typ xds.TypeURL, removed []string, all ...proto.Message) {
	t.Helper()
	of := xds.TypeOf(typ)
	u := snapshot.Update{Type: typ, Origin: "o", Wildcard: of.FullState, Removed: removed, Received: time.Now()}
	for _, m := range all {
		a, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		wire, err := proto.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		r, err := xds.NewResource(of, m.(interface{ GetName() string }).GetName(), wire)
		if err != nil {
			t.Fatal(err)
		}
		u.Changed = append(u.Changed, r)
	}
	h.mu.Lock()
	b := snapshot.NewBuilder(of)
	b.Apply(u)
	gen := uint64(1)
	if h.state != nil {
		gen = h.state.Gen + 1
	}
	s, _ := b.Snapshot(nil, gen)
	h.state = snapshot.NewState(1, gen, []*snapshot.Snapshot{s})
	var subscribers []*fakeSubscriber
	for m := range h.subscribers {
		subscribers = append(subscribers, m)
	}
	h.mu.Unlock()
	for _, m := range subscribers {
		m.join.Waker.Wake()
	}
}

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

func (g *fakeGuard) Authorized(a string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
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

func (g *fakeGuard) Turn(ctx context.Context) (func(), bool) {
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
	t          testing.TB
	fakeSource *fakeSource
	gate       *fakeGuard
	srv        *Server
	fanout     *fanout.Server
	health     *health.Server
	down       string // for clients
	addr       string // for operators
	stop       func() // waits until Run has returned
}

func newServerFixture(t testing.TB, tls *tls.Config) *serverFixture {
	t.Helper()
	metrics, err := telemetry.New(telemetry.Options{Prefix: "xdsrelay"})
	if err != nil {
		t.Fatal(err)
	}
	r := &serverFixture{
		t: t, fakeSource: &fakeSource{subscribers: map[*fakeSubscriber]bool{}}, gate: &fakeGuard{turns: make(chan struct{}, 1)}, health: health.NewServer(),
	}
	log := slog.New(slog.DiscardHandler)
	r.fanout = fanout.NewServer(fanout.Options{Source: r.fakeSource, Metrics: metrics, Replica: "r", Settings: fanout.Settings{AckTimeout: time.Minute}, Log: log})
	clients := grpc.NewServer(r.fanout.ServerOptions(fanout.Keepalive{Time: time.Minute, Timeout: time.Minute, MinTime: time.Second})...)
	r.fanout.Register(clients)
	r.srv, err = New(Options{
		Guard: r.gate, Clients: r.fanout, Health: r.health, Transport: r.fanout.AdminServerOptions(),
	})
	if err != nil {
		t.Fatal(err)
	}
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
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
	c, err := grpc.NewClient(addr, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64 << 20)),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
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
