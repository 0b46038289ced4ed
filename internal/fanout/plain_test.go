package fanout

import (
	"crypto/tls"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/expr"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

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
