package integration

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

// issued are the certificates of a test, all of one CA.
type issued struct {
	t   testing.TB
	ca  *tlstest.Authority
	dir string
}

func issue(t testing.TB) *issued {
	i := &issued{t: t, ca: tlstest.NewAuthority(t), dir: t.TempDir()}
	tlstest.File(t, i.dir, "ca", i.ca.PEM())
	return i
}

// serverTLS is the tls section of a listener, with a certificate of that name.
func (i *issued) serverTLS(name string, mutual bool) map[string]any {
	i.t.Helper()
	cert, key := i.ca.Pair(i.t, tlstest.CN(name), tlstest.Loopback()).Write(i.t, i.dir, name)
	out := map[string]any{"cert_file": cert, "key_file": key}
	if mutual {
		out["client_ca_file"] = filepath.Join(i.dir, "ca")
	}
	return out
}

// dial connects with a certificate that has this URI; empty: none.
func (i *issued) dial(target, uri string) *grpc.ClientConn {
	i.t.Helper()
	conf := &tls.Config{RootCAs: i.ca.Pool()}
	if uri != "" {
		conf.Certificates = []tls.Certificate{i.ca.Pair(i.t, tlstest.URI(uri)).TLS(i.t)}
	}
	return xdstest.Dial(i.t, target, credentials.NewTLS(conf))
}

// serveOn starts a relay with these listeners, and returns their addresses.
func serveOn(t testing.TB, origin, variant string, listeners ...map[string]any) (*relay, []string) {
	t.Helper()
	for _, l := range listeners {
		l["address"] = "127.0.0.1:0"
	}
	s := xdstest.QuickConfig()
	delete(s, "downstream.address") // it is short for a single listener
	s["upstream.origins"], s["upstream.variant"], s["downstream.listeners"] = xdstest.Origins(origin), variant, listeners
	r := start(t, "", nil, "serve", "--config", s.WriteFile(t))
	return r, r.Addresses
}

// secretMethods are the methods of SDS.
var secretMethods = map[fleet.Variant]string{
	fleet.SotW:  "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets",
	fleet.Delta: "/envoy.service.secret.v3.SecretDiscoveryService/DeltaSecrets",
}

// gets fails the test unless the next response has only this resource. It returns the nonce.
func gets(t testing.TB, s *xdstest.Stream, want types.Resource) (nonce string) {
	t.Helper()
	r := s.Next()
	if r.Type != xdstest.TypeOf(want) || len(r.Resources) != 1 || string(r.Resources[0].Value) != string(marshal(want)) {
		t.Fatalf("%s has %q, want %v", r.Type, r.Resources, want)
	}
	return r.Nonce
}

const hidden = "the-key-that-nobody-may-see"

func secret(name string) *tlsv3.Secret {
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		PrivateKey: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: hidden}}}}}
}

// combination names a subtest, as in the conformance table.
func combination(up string, down fleet.Variant, aggregated bool) string {
	service := "per-type"
	if aggregated {
		service = "ads"
	}
	return fmt.Sprintf("%s-%s/%s", up, strings.ToLower(fmt.Sprint(down)), service)
}

// Secrets are only sent to clients with a verified certificate over mTLS. For other clients of the
// same relay SDS refuses, and ADS leaves Secrets unanswered while other types go on. A client with
// another identity than its node claims is refused.
func TestP6_SecretsGoToProvenIdentities(t *testing.T) {
	t.Parallel()
	certs := issue(t)
	o := origin(t, xdstest.Linear)
	setting := &runtimev3.Runtime{Name: "r"}
	o.Put("mesh", secret("s"), setting)
	const me = "spiffe://cluster.test/ns/shop/sa/cart"
	n := node(me, "mesh")
	for _, up := range upstreams {
		r, at := serveOn(t, o.Address, up,
			map[string]any{"tls": certs.serverTLS("mutual", true), "identity": "node.id in peer.uri_sans"},
			map[string]any{"tls": certs.serverTLS("one-way", false)},
			map[string]any{})
		proven, oneWay := certs.dial(at[0], me), certs.dial(at[1], me)
		plain := xdstest.Dial(t, at[2], nil)
		for _, v := range variants {
			t.Run(combination(up, v, true), func(t *testing.T) {
				s := xdstest.OpenStreamOn(t, proven, methods[v])
				s.Ask(n, resource.SecretType, "s")
				gets(t, s, secret("s"))
				for _, conn := range []*grpc.ClientConn{oneWay, plain} {
					before := r.Metric("refused_total", "reason", "secrets")
					s := xdstest.OpenStreamOn(t, conn, methods[v])
					s.Ask(n, resource.SecretType, "s")
					s.Ask(nil, resource.RuntimeType, "r")
					gets(t, s, setting)
					if got := r.Metric("refused_total", "reason", "secrets"); got != before+1 {
						t.Errorf("counted %v times, want 1", got-before)
					}
				}
				s = xdstest.OpenStreamOn(t, proven, methods[v])
				s.Ask(node("spiffe://cluster.test/ns/shop/sa/till", "mesh"), resource.RuntimeType, "r")
				s.WantEnd(codes.PermissionDenied)
			})
			t.Run(combination(up, v, false), func(t *testing.T) {
				s := xdstest.OpenStreamOn(t, proven, secretMethods[v])
				s.Ask(n, "", "s")
				gets(t, s, secret("s"))
				for _, conn := range []*grpc.ClientConn{oneWay, plain} {
					s := xdstest.OpenStreamOn(t, conn, secretMethods[v])
					s.Ask(n, "", "s")
					s.WantEnd(codes.PermissionDenied)
				}
				s = xdstest.OpenStreamOn(t, proven, secretMethods[v])
				s.Ask(node("spiffe://cluster.test/ns/shop/sa/till", "mesh"), "", "s")
				s.WantEnd(codes.PermissionDenied)
			})
		}
		if got := r.Metric("refused_total", "reason", "identity"); got != 4 {
			t.Errorf("identity refused %v times, want 4", got)
		}
	}
}

// Operators and clients see the error with which an origin ends a stream.
func TestP6_ErrorsOfOriginsAreRedacted(t *testing.T) {
	t.Parallel()
	f := xdstest.StartScriptedOrigin(t)
	f.EndStreams(status.Error(codes.PermissionDenied, `wrong credentials in postgres://relay:`+hidden+`@db/xds`))
	r := serve(t, f.Address, xdstest.Config{"log.level": "debug"})
	for _, v := range variants {
		s := xdstest.OpenStream(t, r.Address, methods[v])
		s.Ask(node("n", "mesh"), resource.ClusterType)
		if told := s.WantEnd(codes.Unavailable).Message(); strings.Contains(told, hidden) || !strings.Contains(told, "wrong credentials") {
			t.Errorf("%s is told %q", v, told)
		}
	}
	shown := together(r.everything(t, "mesh", node("n", "mesh")))
	if !strings.Contains(shown, "wrong credentials") || strings.Contains(shown+r.Log(), hidden) {
		t.Errorf("shown:\n%s\nlog:\n%s", shown, r.Log())
	}
}

// Each listener answers health checks under its own TLS settings. A client without a required
// certificate is rejected and counted.
func TestListeners(t *testing.T) {
	t.Parallel()
	certs := issue(t)
	r, at := serveOn(t, origin(t, xdstest.Linear).Address, "delta", map[string]any{}, map[string]any{"tls": certs.serverTLS("mutual", true)})
	check := func(conn *grpc.ClientConn) error {
		_, err := grpc_health_v1.NewHealthClient(conn).Check(xdstest.Context(t), &grpc_health_v1.HealthCheckRequest{})
		return err
	}
	for i, conn := range []*grpc.ClientConn{xdstest.Dial(t, at[0], nil), certs.dial(at[1], "spiffe://a")} {
		if err := check(conn); err != nil {
			t.Errorf("listener %d: %v", i, err)
		}
	}
	for i, conn := range []*grpc.ClientConn{xdstest.Dial(t, at[1], nil), certs.dial(at[1], ""), issue(t).dial(at[1], "spiffe://a")} {
		if err := check(conn); err == nil {
			t.Errorf("stranger %d is let in", i)
		}
	}
	r.WaitMetric(3, "refused_total", "reason", "tls_handshake")
	info, err := r.Get("/server_info") // no stream reports them
	if err != nil || !bytes.Contains(info, []byte(`"reason": "tls_handshake"`)) || !bytes.Contains(info, []byte(`"count": 3`)) ||
		!bytes.Contains(info, []byte(`"error": "downstream.listeners[1]: peer 127.0.0.1:`)) {
		t.Errorf("%v %s", err, info)
	}
}
