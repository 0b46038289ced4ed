package fanout

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xds"
)

func mustIdentity(t *testing.T, text string) *expr.Predicate {
	t.Helper()
	p, err := expr.NewIdentity(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// dialTo connects to a listener, with TLS if conf is not nil.
func (r *rig) dialTo(addr string, conf *tls.Config) *grpc.ClientConn {
	r.t.Helper()
	creds := insecure.NewCredentials()
	if conf != nil {
		creds = credentials.NewTLS(conf)
	}
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// plain is a stream of either variant, on any service.
type plain struct {
	t *testing.T
	v xds.Variant
	grpc.ClientStream
}

func (r *rig) stream(c *grpc.ClientConn, v xds.Variant, service string, methods [2]string) *plain {
	r.t.Helper()
	st, err := c.NewStream(testContext(r.t), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+service+"/"+methods[v])
	if err != nil {
		r.t.Fatal(err)
	}
	return &plain{r.t, v, st}
}

func (r *rig) ads(c *grpc.ClientConn, v xds.Variant) *plain {
	r.t.Helper()
	return r.stream(c, v, aggregated, [2]string{xds.SotW: "StreamAggregatedResources", xds.Delta: "DeltaAggregatedResources"})
}

func (r *rig) sds(c *grpc.ClientConn, v xds.Variant) *plain {
	r.t.Helper()
	typ := xds.TypeOf(xds.SecretType)
	return r.stream(c, v, typ.Service, [2]string{xds.SotW: typ.SotW, xds.Delta: typ.Delta})
}

// ask subscribes to names of a type, as a node.
func (p *plain) ask(n *corev3.Node, url xds.TypeURL, names ...string) {
	p.t.Helper()
	var m proto.Message = &discoveryv3.DiscoveryRequest{Node: n, TypeUrl: string(url), ResourceNames: names}
	if p.v == xds.Delta {
		m = &discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: string(url), ResourceNamesSubscribe: names}
	}
	_ = p.SendMsg(m) // a stream that ended says why when it is read
}

// next is the type of the next response, and how many resources it has; or the
// status that ended the stream.
func (p *plain) next() (xds.TypeURL, int, *status.Status) {
	if p.v == xds.Delta {
		var m discoveryv3.DeltaDiscoveryResponse
		err := p.RecvMsg(&m)
		return xds.TypeURL(m.TypeUrl), len(m.Resources), status.Convert(err)
	}
	var m discoveryv3.DiscoveryResponse
	err := p.RecvMsg(&m)
	return xds.TypeURL(m.TypeUrl), len(m.Resources), status.Convert(err)
}

// gets fails unless the next response has one resource of the type.
func (p *plain) gets(url xds.TypeURL) {
	p.t.Helper()
	if got, n, s := p.next(); got != url || n != 1 {
		p.t.Fatalf("%d of %s, %v; want one of %s", n, got, s.Err(), url)
	}
}

// ended fails unless the stream ends with the code before anything else.
func (p *plain) ended(code codes.Code) {
	p.t.Helper()
	if got, n, s := p.next(); got != "" || s.Code() != code || s.Message() == "" {
		p.t.Fatalf("%d of %s, %v; want %v", n, got, s.Err(), code)
	}
}

// ends drains the stream and returns how it ended.
func (p *plain) ends() *status.Status {
	for {
		if _, _, s := p.next(); s.Code() != codes.OK {
			return s
		}
	}
}

// world of certificates: the server's, and an authority for clients.
type certs struct {
	t  *testing.T
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

const itself = "node.id in peer.uri_sans"

// Secrets are given by default to clients over mTLS for which an identity rule
// holds, and to nobody else: not on their own service, which refuses, and not
// on the aggregated one, where the other types go on.
func TestP6_SecretsOnlyToProvenIdentities(t *testing.T) {
	c := newCerts(t)
	const id = "spiffe://test/n"
	proves := c.client(tlstest.URI(id))
	listeners := map[string]struct {
		tls      *tls.Config
		identity string
		dial     *tls.Config
		proven   bool
	}{
		"plaintext":               {nil, "", nil, false},
		"plaintext with identity": {nil, "true", nil, false},
		"TLS":                     {c.server(false), "", proves, false},
		"TLS with identity":       {c.server(false), "true", proves, false},
		"mTLS":                    {c.server(true), "", proves, false},
		"mTLS with identity":      {c.server(true), itself, proves, true},
	}
	r := newRig(t, nil)
	r.house.group("edge").publish(update(t, xds.SecretType, "s"), update(t, xds.RuntimeType, "r"))
	var mu sync.Mutex
	secrets := 0 // that were joined
	r.house.refuse = func(j Join) *Refusal {
		mu.Lock()
		defer mu.Unlock()
		if j.Type == xds.SecretType {
			secrets++
		}
		return nil
	}
	joined := func() int {
		mu.Lock()
		defer mu.Unlock()
		return secrets
	}
	n := &corev3.Node{Id: id, Cluster: "edge"}
	refused := 0
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			for _, mode := range []string{config.SecretsMTLS, config.SecretsAllow, config.SecretsDeny} {
				for listener, l := range listeners {
					given := mode == config.SecretsAllow || mode == config.SecretsMTLS && l.proven
					t.Run(mode+"/"+listener, func(t *testing.T) {
						gate := &Gate{Key: "downstream", TLS: l.tls, Secrets: mode}
						if l.identity != "" {
							gate.Identity = mustIdentity(t, l.identity)
						}
						r := &rig{t: t, house: r.house, srv: r.srv, meters: r.meters, grpc: r.grpc}
						conn := r.dialTo(r.listen(gate), l.dial)
						before := joined()

						ads := r.ads(conn, v)
						ads.ask(n, xds.SecretType, "s")
						ads.ask(nil, xds.RuntimeType, "r") // handled and sent after
						if given {
							ads.gets(xds.SecretType)
						}
						ads.gets(xds.RuntimeType)

						sds := r.sds(conn, v)
						sds.ask(n, xds.SecretType, "s")
						if given {
							sds.gets(xds.SecretType)
							if joined() != before+2 {
								t.Errorf("%d joins, want 2", joined()-before)
							}
							return
						}
						sds.ended(codes.PermissionDenied)
						if joined() != before {
							t.Error("joined, so that it would be answered some time")
						}
						refused += 2
						r.counted(telemetry.Secrets, refused)
					})
				}
			}
		})
	}
}

// A client is refused for which the identity rule is false or has an error,
// before it is given anything.
func TestP6_IdentityRefuses(t *testing.T) {
	c := newCerts(t)
	r := newRig(t, nil)
	r.house.group("edge").publish(update(t, xds.ClusterType, "a"))
	mutual := r.listen(&Gate{Key: "downstream", TLS: c.server(true), Identity: mustIdentity(t, itself), Secrets: config.SecretsMTLS})
	tenant := r.listen(&Gate{Key: "downstream.listeners[1]", Identity: mustIdentity(t, `node.metadata.tenant == "a"`)})
	var mu sync.Mutex
	joins := 0
	r.house.refuse = func(Join) *Refusal {
		mu.Lock()
		defer mu.Unlock()
		joins++
		return nil
	}
	refused := 0
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			r := &rig{t: t, house: r.house, srv: r.srv, meters: r.meters, grpc: r.grpc}
			joins = 0
			conn := r.dialTo(mutual, c.client(tlstest.URI("spiffe://test/a"), tlstest.URI("spiffe://test/b")))
			for _, own := range []string{"spiffe://test/a", "spiffe://test/b"} {
				p := r.ads(conn, v)
				p.ask(&corev3.Node{Id: own, Cluster: "edge"}, xds.ClusterType)
				p.gets(xds.ClusterType)
			}
			for _, other := range []string{"", "spiffe://test/c", "spiffe://test/", "SPIFFE://test/a"} {
				p := r.ads(conn, v)
				p.ask(&corev3.Node{Id: other, Cluster: "edge"}, xds.ClusterType)
				if s := p.ends(); s.Code() != codes.PermissionDenied || !strings.Contains(s.Message(), "downstream.identity: it does not hold") {
					t.Errorf("%q: %v", other, s)
				}
				refused++
			}
			p := r.ads(r.dialTo(tenant, nil), v)
			p.ask(node("n"), xds.ClusterType)
			if s := p.ends(); s.Code() != codes.PermissionDenied || !strings.Contains(s.Message(), "downstream.listeners[1].identity: ") ||
				!strings.Contains(s.Message(), "no such key: tenant") {
				t.Errorf("an error of the rule: %v", s)
			}
			refused++
			r.counted(telemetry.Identity, refused)
			if joins != 2 {
				t.Errorf("%d joined, want 2", joins)
			}
		})
	}
}

// A node that dynamic parameters make another is held against the rule again; a
// node that changes nothing is not.
func TestP6_IdentityOfChangedNodes(t *testing.T) {
	r := newRig(t, nil)
	r.house.group("edge").publish(update(t, xds.ClusterType, "a"), update(t, xds.EndpointType, "a"), update(t, xds.RuntimeType, "a"))
	addr := r.listen(&Gate{Key: "downstream", Identity: mustIdentity(t, `node.id == "n" && !("t" in node.dynamic_parameters)`)})
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			r := &rig{t: t, house: r.house, srv: r.srv, meters: r.meters, grpc: r.grpc}
			p := r.ads(r.dialTo(addr, nil), v)
			p.ask(node("n"), xds.ClusterType)
			p.gets(xds.ClusterType)
			p.ask(node("other"), xds.EndpointType, "a") // changes nothing (P1)
			p.gets(xds.EndpointType)
			later := node("n")
			later.DynamicParameters = map[string]*xdscorev3.ContextParams{"t": {}}
			p.ask(later, xds.RuntimeType, "a")
			p.ended(codes.PermissionDenied)
		})
	}
}

// What rules see of a peer, and whom limits count it as, comes of verified
// certificates alone.
func TestCaller(t *testing.T) {
	c := newCerts(t)
	leaf := func(says ...tlstest.Option) *x509.Certificate {
		return c.ca.Pair(t, says...).TLS(t).Leaf
	}
	all := []tlstest.Option{tlstest.CN("cn"), tlstest.DNS("d1"), tlstest.DNS("d2"), tlstest.URI("spiffe://a/b"), tlstest.URI("spiffe://c")}
	for _, tc := range []struct {
		says     []tlstest.Option
		claimed  bool // and not verified
		uri, dns []string
		subject  string
		account  string
	}{
		{all, false, []string{"spiffe://a/b", "spiffe://c"}, []string{"d1", "d2"}, "CN=cn", "uri:spiffe://a/b"},
		{all[:3], false, nil, []string{"d1", "d2"}, "CN=cn", "dns:d1"},
		{all[:1], false, nil, nil, "CN=cn", "subject:CN=cn"},
		{nil, false, nil, nil, "", "10.1.2.3"},
		{all, true, nil, nil, "", "10.1.2.3"},
		{[]tlstest.Option{tlstest.URI("10.1.2.4")}, false, []string{"10.1.2.4"}, nil, "", "uri:10.1.2.4"},
	} {
		state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf(tc.says...)}}
		if !tc.claimed {
			state.VerifiedChains = [][]*x509.Certificate{state.PeerCertificates}
		}
		got := new(Gate).Caller("10.1.2.3:5000", state)
		p := got.Peer
		if p.Address != "10.1.2.3" || !slices.Equal(p.URISANs, tc.uri) || !slices.Equal(p.DNSSANs, tc.dns) || p.Subject != tc.subject || got.Account != tc.account {
			t.Errorf("%+v, %q; want %+v", p, got.Account, tc)
		}
	}
	if got := new(Gate).Caller("[::1]:5000", nil); got.Account != "::1" || got.Peer.Address != "::1" {
		t.Errorf("%+v", got)
	}
	if got := new(Gate).Caller("@", nil); got.Account != "@" { // a unix socket
		t.Errorf("%+v", got)
	}
}

// May is what all of a client's requests together would be told.
func TestP6_May(t *testing.T) {
	n, err := new(xds.NodeTable).Intern([]byte("\x0a\x01n"))
	if err != nil {
		t.Fatal(err)
	}
	gate := &Gate{Key: "downstream", Identity: mustIdentity(t, `node.id == "n" && peer.address == "10.0.0.1"`), Secrets: config.SecretsMTLS}
	for _, tc := range []struct {
		from string
		url  xds.TypeURL
		want telemetry.Reason
	}{
		{"10.0.0.2:1", xds.ClusterType, telemetry.Identity},
		{"10.0.0.2:1", xds.SecretType, telemetry.Identity},
		{"10.0.0.1:1", xds.SecretType, telemetry.Secrets},
	} {
		if got := gate.Caller(tc.from, nil).May(n, tc.url); got == nil || got.Reason != tc.want || got.Code != codes.PermissionDenied {
			t.Errorf("%s, %s: %v", tc.from, tc.url, got)
		}
	}
	if got := gate.Caller("10.0.0.1:1", nil).May(n, xds.ClusterType); got != nil {
		t.Error(got)
	}
}

// Limits per peer count by proven identity, whatever the address and the
// connection; by address without.
func TestLimitsCountIdentities(t *testing.T) {
	c := newCerts(t)
	r := newRig(t, func(o *Options) { o.Limits.StreamsPerPeer = 1 })
	r.house.group("edge").publish(update(t, xds.ClusterType, "a"))
	var mu sync.Mutex
	var accounts []string
	r.house.refuse = func(j Join) *Refusal {
		mu.Lock()
		defer mu.Unlock()
		accounts = append(accounts, j.Account)
		return nil
	}
	addr := r.listen(&Gate{Key: "downstream", TLS: c.server(true)})
	plain := r.dial()
	a, again, b := c.client(tlstest.URI("spiffe://test/a")), c.client(tlstest.URI("spiffe://test/a")), c.client(tlstest.URI("spiffe://test/b"))
	for i, s := range []struct {
		conn *grpc.ClientConn
		ok   bool
	}{
		{plain, true}, {r.dialTo(addr, a), true}, {r.dialTo(addr, b), true},
		{r.dialTo(addr, again), false}, {plain, false}, {r.dial(), false},
	} {
		p := r.ads(s.conn, xds.Delta)
		p.ask(node("n"), xds.ClusterType)
		if s.ok {
			p.gets(xds.ClusterType)
		} else if got := p.ends(); got.Code() != codes.ResourceExhausted {
			t.Errorf("%d: %v", i, got)
		}
	}
	if want := []string{"127.0.0.1", "uri:spiffe://test/a", "uri:spiffe://test/b"}; !slices.Equal(accounts, want) {
		t.Errorf("joined as %q, want %q", accounts, want)
	}
}

// Who cannot prove itself has no connection, and is counted.
func TestHandshakesThatFail(t *testing.T) {
	c := newCerts(t)
	r := newRig(t, nil)
	addr := r.listen(&Gate{Key: "downstream", TLS: c.server(true)})
	none := c.client()
	none.Certificates = nil
	for i, conf := range []*tls.Config{nil, none, c.client(tlstest.Expired()), {RootCAs: c.ca.Pool(), Certificates: newCerts(t).client().Certificates}} {
		p, err := r.dialTo(addr, conf).NewStream(testContext(t), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+aggregated+"/DeltaAggregatedResources")
		if err == nil {
			t.Errorf("%d: a stream: %v", i, p)
		}
	}
	r.eventually(func() bool { return r.count(telemetry.Handshake) >= 4 })
	// A client that does not speak HTTP/2.
	raw, err := tls.Dial("tcp", addr, c.client())
	if err == nil {
		_, err = raw.Read(make([]byte, 1))
		_ = raw.Close()
	}
	if err == nil {
		t.Error("a connection without ALPN")
	}
}

// A client that takes nothing is cut under TLS as well: what is closed is what
// lies below it.
func TestSendTimeoutUnderTLS(t *testing.T) {
	c := newCerts(t)
	r := newRig(t, func(o *Options) { o.SendTimeout = 40 * time.Millisecond })
	u := xds.Update{Type: "type.googleapis.com/acme.Blob", Wildcard: true}
	w := newWorld(t, u.Type, xds.Delta)
	for _, n := range names(100) {
		u.Changed = append(u.Changed, w.resource(n+"="+strings.Repeat("x", 10000)))
	}
	r.house.group("edge").publish(u)
	p := r.ads(r.dialTo(r.listen(&Gate{Key: "downstream", TLS: c.server(true)}), c.client()), xds.Delta)
	p.ask(node("slow"), u.Type)
	r.eventually(func() bool { return r.srv.streamsOf("slow") == 1 })
	r.eventually(func() bool { return r.srv.streamsOf("slow") == 0 })
	if s := p.ends(); s.Code() != codes.Unavailable {
		t.Error(s)
	}
	r.counted(telemetry.SendTimeout, 1)
	r.srv.door.mu.Lock()
	defer r.srv.door.mu.Unlock()
	if len(r.srv.door.conns) != 0 {
		t.Errorf("%d connections are open", len(r.srv.door.conns))
	}
}

// What clients can make the relay log has a bound, and what is left out is
// told.
func TestSparing(t *testing.T) {
	s := newSparing()
	for i := range sparingBurst {
		if left, ok := s.allow(); !ok || left != 0 {
			t.Fatalf("line %d: %v, %d left out", i, ok, left)
		}
	}
	out := 0
	for ok := true; ok; {
		if _, ok = s.allow(); !ok {
			out++
		}
	}
	for {
		if left, ok := s.allow(); ok {
			if int(left) != out {
				t.Errorf("%d left out, want %d", left, out)
			}
			return
		}
		out++
	}
}
