package fanout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/session/sessiontest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// house is a Source with one group for each node cluster ("" has none): it
// wakes every member at every change, which is allowed, and counts who joined.
type house struct {
	mu     sync.Mutex
	groups map[string]*group
	nacks  []Nack
	refuse func(Join) *Refusal
	// other are the rules instead of those by cluster; nil: none.
	other func(n *xds.Node, typ xds.TypeURL) (xds.Key, error)
	// joined is called, once, before a member is returned; nil: not.
	joined func()
	// looked is called after a State was read for a type; nil: not.
	looked func(xds.TypeURL)
}

type group struct {
	mu       sync.Mutex
	key      xds.Key
	gen      uint64
	builders map[xds.TypeURL]*xds.Builder
	snaps    []*xds.Snapshot
	state    *xds.State
	members  map[*member]bool
	subs     []*xds.Subscription
	again    []string
}

type member struct {
	h      *house
	g      *group
	join   Join
	sub    *xds.Subscription
	routed bool     // as the group was told (P36)
	acked  []uint64 // generations, as it was told
}

func (h *house) group(name string) *group {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.groups[name] == nil {
		if h.groups == nil {
			h.groups = make(map[string]*group)
		}
		h.groups[name] = &group{key: xds.NewKey(name), builders: map[xds.TypeURL]*xds.Builder{}, members: map[*member]bool{}}
	}
	return h.groups[name]
}

func (h *house) Join(j Join) (Member, error) {
	if h.refuse != nil {
		if r := h.refuse(j); r != nil {
			return nil, r
		}
	}
	key, err := h.KeyOf(j.Node, j.Peer, j.Type)
	if err != nil {
		return nil, err
	}
	g := h.group(strings.Join(key.Elements(), "/"))
	m := &member{h: h, g: g, join: j, sub: xds.Nothing}
	g.mu.Lock()
	g.members[m] = true
	g.mu.Unlock()
	h.mu.Lock()
	joined := h.joined
	h.joined = nil
	h.mu.Unlock()
	if joined != nil {
		joined()
	}
	return m, nil
}

// KeyOf implements Source: by the node's cluster, unless keys say otherwise.
func (h *house) KeyOf(n *xds.Node, _ expr.Peer, typ xds.TypeURL) (xds.Key, error) {
	h.mu.Lock()
	other := h.other
	h.mu.Unlock()
	if other == nil {
		return xds.NewKey(n.Cluster), nil
	}
	return other(n, typ)
}

func (m *member) Key() xds.Key { return m.g.key }

func (m *member) State() *xds.State {
	m.g.mu.Lock()
	state := m.g.state
	m.g.mu.Unlock()
	m.h.mu.Lock()
	looked := m.h.looked
	m.h.mu.Unlock()
	if looked != nil {
		looked(m.join.Type)
	}
	return state
}

func (m *member) Newest() *xds.Snapshot {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	for _, s := range m.g.snaps {
		if s.Type.URL == m.join.Type {
			return s
		}
	}
	return nil
}

func (m *member) Intern(s *xds.Subscription) *xds.Subscription {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	for _, have := range m.g.subs {
		if have.Equal(s) {
			return have
		}
	}
	m.g.subs = append(m.g.subs, s)
	return s
}

func (m *member) Subscribe(s *xds.Subscription) {
	m.g.mu.Lock()
	m.sub = s
	m.g.mu.Unlock()
	m.join.Waker.Wake()
}

func (m *member) Routed() {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	m.routed = true
}

func (m *member) Again(names []string) {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	m.g.again = append(m.g.again, names...)
}

func (m *member) Nacked(n Nack) {
	m.h.mu.Lock()
	defer m.h.mu.Unlock()
	m.h.nacks = append(m.h.nacks, n)
}

func (m *member) Acked(gen uint64, _ *xds.Snapshot) {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	m.acked = append(m.acked, gen)
}

func (m *member) Leave() {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	delete(m.g.members, m)
}

// settling applies updates and publishes nothing.
func (g *group) settling(us ...xds.Update) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.apply(us)
}

// publish applies updates as one State.
func (g *group) publish(us ...xds.Update) {
	g.mu.Lock()
	g.apply(us)
	g.state = xds.NewState(1, g.gen, g.snaps)
	var members []*member
	for m := range g.members {
		members = append(members, m)
	}
	g.mu.Unlock()
	for _, m := range members {
		m.join.Waker.Wake()
	}
}

// apply makes the newest snapshots. Under the lock.
func (g *group) apply(us []xds.Update) {
	g.gen++
	for _, u := range us {
		b := g.builders[u.Type]
		at := len(g.snaps)
		for i, s := range g.snaps {
			if s.Type.URL == u.Type {
				at = i
			}
		}
		if b == nil {
			b = xds.NewBuilder(xds.TypeOf(u.Type))
			g.builders[u.Type] = b
			g.snaps = append(g.snaps, nil)
		}
		u.Origin, u.Received = "origin", time.Now()
		b.Apply(u)
		was := g.snaps[at]
		now, names := b.Snapshot(was, g.gen)
		if now != was {
			xds.NoteVersion(was, now, names)
		}
		g.snaps[at] = now
	}
}

// serverFixture is a Server behind a real grpc server on loopback, and its clients.
type serverFixture struct {
	t      testing.TB
	house  *house
	srv    *Server
	meters *telemetry.Metrics
	grpc   *grpc.Server
	addr   string // of the first listener
}

func newServerFixture(t testing.TB, change func(*Options)) *serverFixture {
	t.Helper()
	meters := newMeters(t)
	r := &serverFixture{t: t, house: &house{}, meters: meters}
	o := Options{Source: r.house, Metrics: meters, Replica: "replica", Settings: Settings{AckTimeout: time.Minute}, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	r.srv = NewServer(o)
	r.grpc = grpc.NewServer(r.srv.ServerOptions(Keepalive{Time: time.Minute, Timeout: time.Minute, MinTime: time.Second})...)
	r.srv.Register(r.grpc)
	grpc_health_v1.RegisterHealthServer(r.grpc, health.NewServer())
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { _ = r.srv.Run(ctx) })
	t.Cleanup(func() { r.grpc.Stop(); cancel(); parts.Wait() })
	r.addr = r.listen(&listener.Gate{Key: "downstream", Secrets: config.SecretsMTLS})
	return r
}

// listen opens one more listener, and returns its address.
func (r *serverFixture) listen(gate *listener.Gate) string {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.grpc.Serve(listener.New(l, gate)) // ended below, or by Stop
	}()
	r.t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

func newMeters(t testing.TB) *telemetry.Metrics {
	t.Helper()
	m, err := telemetry.New(telemetry.Options{Prefix: "xdsrelay"})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (r *serverFixture) dial() *grpc.ClientConn { return xdstest.Dial(r.t, r.addr, nil) }

// client is an incremental stream; sotw is the other.
type client struct {
	t testing.TB
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

type sotw struct {
	t testing.TB
	discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
}

func (r *serverFixture) delta(c *grpc.ClientConn) *client {
	r.t.Helper()
	if c == nil {
		c = r.dial()
	}
	st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c).DeltaAggregatedResources(xdstest.Context(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	return &client{r.t, st}
}

func (r *serverFixture) sotw(c *grpc.ClientConn) *sotw {
	r.t.Helper()
	if c == nil {
		c = r.dial()
	}
	st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c).StreamAggregatedResources(xdstest.Context(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	return &sotw{r.t, st}
}

func node(id string) *corev3.Node { return &corev3.Node{Id: id, Cluster: "edge"} }

// ask sends a request for a type by names.
func (c *client) ask(url xds.TypeURL, names ...string) {
	c.t.Helper()
	c.must(&discoveryv3.DeltaDiscoveryRequest{Node: node("n"), TypeUrl: string(url), ResourceNamesSubscribe: names})
}

func (c *client) must(r *discoveryv3.DeltaDiscoveryRequest) {
	c.t.Helper()
	// io.EOF: the stream has ended already, and Recv says why.
	if err := c.Send(r); err != nil && !errors.Is(err, io.EOF) {
		c.t.Fatal(err)
	}
}

// recv returns the next response and acknowledges it.
func (c *client) recv() *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	r, err := c.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
	return r
}

// said is a response's resources and removals in words.
func said(r *discoveryv3.DeltaDiscoveryResponse) string {
	s := ""
	for _, res := range r.Resources {
		s += res.Name + " "
	}
	for _, n := range r.RemovedResources {
		s += "-" + n + " "
	}
	return s
}

func (c *client) want(text string) *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	r := c.recv()
	if got := said(r); got != text {
		c.t.Fatalf("received %q, want %q", got, text)
	}
	return r
}

// ends reads until the stream ends and returns its status.
func (c *client) ends() *status.Status {
	for {
		if _, err := c.Recv(); err != nil {
			return status.Convert(err)
		}
	}
}

// wantEnd fails unless the stream ends with this code, counted once by this
// reason.
func (r *serverFixture) wantEnd(c *client, code codes.Code, reason telemetry.Reason) {
	r.t.Helper()
	if s := c.ends(); s.Code() != code || s.Message() == "" {
		r.t.Fatalf("ended with %v %q, want %v", s.Code(), s.Message(), code)
	}
	r.counted(reason, 1)
}

// counted waits until so many were refused for this reason: grpc may tell the
// client before its stream's handler has counted.
func (r *serverFixture) counted(reason telemetry.Reason, n int) {
	r.t.Helper()
	xdstest.Eventually(r.t, reason.String(), func() error {
		if got := r.count(reason); got != n {
			return fmt.Errorf("counted %d times, want %d", got, n)
		}
		return nil
	})
}

// count is how often something was refused for this reason, as metrics say.
func (r *serverFixture) count(reason telemetry.Reason) (n int) {
	r.t.Helper()
	n = r.countOf("refused_total", reason)
	if reason.Planned() {
		n += r.countOf("downstream_ended_total", reason)
	}
	return n
}

func (r *serverFixture) countOf(metric string, reason telemetry.Reason) (n int) {
	r.t.Helper()
	_, after, ok := strings.Cut(r.scrape(), fmt.Sprintf("xdsrelay_%s{reason=%q} ", metric, reason.String()))
	if _, err := fmt.Sscan(after, &n); !ok || err != nil {
		r.t.Fatalf("the metrics have no %s: %v", reason, err)
	}
	return n
}

func (r *serverFixture) scrape() string {
	w := httptest.NewRecorder()
	r.meters.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// update makes one of plain resources of a type.
func update(t testing.TB, url xds.TypeURL, specs ...string) xds.Update {
	w := sessiontest.New(t, url)
	u := xds.Update{Type: url, Wildcard: url == xds.ClusterType || url == xds.ListenerType}
	for _, s := range specs {
		if s[0] == '-' {
			u.Removed = append(u.Removed, s[1:])
		} else {
			u.Changed = append(u.Changed, w.Resource(s))
		}
	}
	return u
}

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("name-%04d", i)
	}
	return out
}
