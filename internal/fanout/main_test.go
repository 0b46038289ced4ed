package fanout

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
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
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serverFixture is a Server behind a real grpc server on loopback, and its clients.
type serverFixture struct {
	t       testing.TB
	groups  *subscribertest.Joiner
	srv     *Server
	metrics *telemetry.Metrics
	log     *xdstest.Log
	grpc    *grpc.Server
	addr    string // of the first listener
}

func newServerFixture(t testing.TB, change func(*Options)) *serverFixture {
	t.Helper()
	metrics := newMetrics(t)
	r := &serverFixture{t: t, groups: &subscribertest.Joiner{}, metrics: metrics, log: new(xdstest.Log)}
	o := Options{Joiner: r.groups, Metrics: metrics, Replica: "replica", Settings: Settings{AckTimeout: time.Minute, RESTBytes: 1 << 30}, Log: r.log.Logger()}
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
	r.addr = r.listen(&listener.Policy{Key: "downstream", Secrets: config.SecretsMTLS})
	return r
}

// bubble is a server in a synctest bubble. Nothing of it is started.
func bubble(t *testing.T, change func(*Options)) (*Server, *subscribertest.Joiner) {
	h := new(subscribertest.Joiner)
	o := Options{Joiner: h, Metrics: newMetrics(t), Replica: "replica", Settings: Settings{LongPoll: 30 * time.Second, RESTBytes: 1 << 30}}
	if change != nil {
		change(&o)
	}
	return NewServer(o), h
}

// with returns the fixture for a subtest.
func (r *serverFixture) with(t testing.TB) *serverFixture {
	of := *r
	of.t = t
	return &of
}

// listen opens one more listener, and returns its address.
func (r *serverFixture) listen(policy *listener.Policy) string {
	r.t.Helper()
	l := xdstest.Must(net.Listen("tcp", "127.0.0.1:0"))(r.t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.grpc.Serve(r.srv.Listen(l, policy)) // ended below, or by Stop
	}()
	r.t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

func newMetrics(t testing.TB) *telemetry.Metrics {
	t.Helper()
	m := xdstest.Must(telemetry.New(telemetry.Options{Prefix: "xdsrelay"}))(t)
	return m
}

func (r *serverFixture) dial() *grpc.ClientConn { return xdstest.Dial(r.t, r.addr, nil) }

// client is a delta stream.
type client struct {
	t testing.TB
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

func (r *serverFixture) delta(c *grpc.ClientConn) *client {
	r.t.Helper()
	if c == nil {
		c = r.dial()
	}
	st := xdstest.Must(discoveryv3.NewAggregatedDiscoveryServiceClient(c).DeltaAggregatedResources(xdstest.Context(r.t)))(r.t)
	return &client{r.t, st}
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
	r := xdstest.Must(c.Recv())(c.t)
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
	xdstest.Eventually(r.t, string(reason), func() error {
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
	_, after, ok := strings.Cut(r.scrape(), fmt.Sprintf("xdsrelay_%s{reason=%q} ", metric, string(reason)))
	if _, err := fmt.Sscan(after, &n); !ok || err != nil {
		r.t.Fatalf("the metrics have no %s: %v", reason, err)
	}
	return n
}

func (r *serverFixture) scrape() string {
	w := httptest.NewRecorder()
	r.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// update makes an Update of plain resources.
var update = subscribertest.Update

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("name-%04d", i)
	}
	return out
}

// metric waits until the metrics have this line.
func (r *serverFixture) metric(line string) {
	r.t.Helper()
	r.eventually(func() bool { return strings.Contains(r.scrape(), line+"\n") })
}

// refuse refuses all clients.
func refuse(code codes.Code, reason telemetry.Reason) func(subscribertest.Join) *refusal.Refusal {
	return func(subscribertest.Join) *refusal.Refusal { return refusal.New(code, reason, "because") }
}

func caller(address string) *listener.Caller { return new(listener.Policy).Caller(address, nil) }

func mustIdentity(t *testing.T, text string) *expr.Predicate {
	t.Helper()
	p := xdstest.Must(expr.NewIdentity(text))(t)
	return p
}

// dialTo connects to a listener, with TLS if conf is not nil.
func (r *serverFixture) dialTo(addr string, conf *tls.Config, opts ...grpc.DialOption) *grpc.ClientConn {
	r.t.Helper()
	if conf == nil {
		return xdstest.Dial(r.t, addr, nil, opts...)
	}
	return xdstest.Dial(r.t, addr, credentials.NewTLS(conf), opts...)
}

// plain is a stream of either variant, on any service.
type plain struct {
	*xdstest.Stream
	t testing.TB
}

func (r *serverFixture) ads(c *grpc.ClientConn, v xds.Variant) *plain {
	r.t.Helper()
	return &plain{xdstest.OpenStreamOn(r.t, c, map[xds.Variant]string{xds.SotW: xdstest.SotWMethod, xds.Delta: xdstest.DeltaMethod}[v]), r.t}
}

func (r *serverFixture) sds(c *grpc.ClientConn, v xds.Variant) *plain {
	r.t.Helper()
	typ := xds.TypeOf(xds.SecretType)
	return &plain{xdstest.OpenStreamOn(r.t, c, "/"+typ.Service+"/"+map[xds.Variant]string{xds.SotW: typ.SotW, xds.Delta: typ.Delta}[v]), r.t}
}

// ask subscribes to names of a type, as a node.
func (p *plain) ask(n *corev3.Node, url xds.TypeURL, names ...string) {
	p.t.Helper()
	p.Ask(n, string(url), names...)
}

// gets fails unless the next response has one resource of the type, and returns
// its nonce.
func (p *plain) gets(url xds.TypeURL) (nonce string) {
	p.t.Helper()
	r := p.Next()
	if r.Type != string(url) || len(r.Resources) != 1 {
		p.t.Fatalf("%+v; want one of %s", r, url)
	}
	return r.Nonce
}

// ended fails unless the stream ends with the code before anything else.
func (p *plain) ended(code codes.Code) (said string) {
	p.t.Helper()
	r, err := p.Receive()
	if s := status.Convert(err); s.Code() == code && s.Message() != "" {
		return s.Message()
	}
	p.t.Fatalf("%+v, %v; want %v", r, err, code)
	return ""
}

// world of certificates: the server's, and an authority for clients.
type certs struct {
	t  testing.TB
	ca *tlstest.Authority
}

func newCerts(t *testing.T) *certs { return &certs{t, tlstest.NewAuthority(t)} }

// server is the TLS of a listener; mutual: clients prove themselves.
func (c *certs) server(mutual bool) *tls.Config {
	conf := &tls.Config{Certificates: []tls.Certificate{c.ca.Pair(c.t, tlstest.Loopback()).TLS(c.t)}, NextProtos: []string{"h2"}}
	if mutual {
		conf.ClientCAs, conf.ClientAuth = c.ca.Pool(), tls.RequireAndVerifyClientCert
	}
	return conf
}

// client is the TLS of a client with a certificate that says this.
func (c *certs) client(says ...tlstest.Option) *tls.Config {
	return &tls.Config{RootCAs: c.ca.Pool(), Certificates: []tls.Certificate{c.ca.Pair(c.t, says...).TLS(c.t)}}
}
