package fanout

import (
	"crypto/tls"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/expr"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
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
func (r *serverFixture) dialTo(addr string, conf *tls.Config) *grpc.ClientConn {
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
	t testing.TB
	v xds.Variant
	grpc.ClientStream
}

func (r *serverFixture) stream(c *grpc.ClientConn, v xds.Variant, service string, methods [2]string) *plain {
	r.t.Helper()
	st, err := c.NewStream(xdstest.Context(r.t), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+service+"/"+methods[v])
	if err != nil {
		r.t.Fatal(err)
	}
	return &plain{r.t, v, st}
}

func (r *serverFixture) ads(c *grpc.ClientConn, v xds.Variant) *plain {
	r.t.Helper()
	return r.stream(c, v, aggregated, [2]string{xds.SotW: "StreamAggregatedResources", xds.Delta: "DeltaAggregatedResources"})
}

func (r *serverFixture) sds(c *grpc.ClientConn, v xds.Variant) *plain {
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

// refuse is a NACK of the response with that nonce.
func (p *plain) refuse(url xds.TypeURL, nonce, why string, names ...string) {
	p.t.Helper()
	detail := &rpcstatus.Status{Code: 3, Message: why}
	var m proto.Message = &discoveryv3.DiscoveryRequest{TypeUrl: string(url), ResourceNames: names, ResponseNonce: nonce, ErrorDetail: detail}
	if p.v == xds.Delta {
		m = &discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(url), ResponseNonce: nonce, ErrorDetail: detail}
	}
	if err := p.SendMsg(m); err != nil {
		p.t.Fatal(err)
	}
}

// answer is a response, or how the stream ended.
type answer struct {
	url       xds.TypeURL
	resources int
	nonce     string
	end       *status.Status
}

func (p *plain) next() answer {
	if p.v == xds.Delta {
		var m discoveryv3.DeltaDiscoveryResponse
		err := p.RecvMsg(&m)
		return answer{xds.TypeURL(m.TypeUrl), len(m.Resources), m.Nonce, status.Convert(err)}
	}
	var m discoveryv3.DiscoveryResponse
	err := p.RecvMsg(&m)
	return answer{xds.TypeURL(m.TypeUrl), len(m.Resources), m.Nonce, status.Convert(err)}
}

// gets fails unless the next response has one resource of the type, and returns
// its nonce.
func (p *plain) gets(url xds.TypeURL) (nonce string) {
	p.t.Helper()
	a := p.next()
	if a.url != url || a.resources != 1 {
		p.t.Fatalf("%+v; want one of %s", a, url)
	}
	return a.nonce
}

// ended fails unless the stream ends with the code before anything else.
func (p *plain) ended(code codes.Code) (said string) {
	p.t.Helper()
	a := p.next()
	if a.end.Code() != code || a.end.Message() == "" {
		p.t.Fatalf("%+v; want %v", a, code)
	}
	return a.end.Message()
}

// ends drains the stream and returns how it ended.
func (p *plain) ends() *status.Status {
	for {
		if a := p.next(); a.end.Code() != codes.OK {
			return a.end
		}
	}
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
