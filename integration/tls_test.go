package integration

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
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

// A client that an operator excludes gets nothing any more, although a drain takes ten minutes: by
// another identity rule, without Secrets, and by other authorities. Other clients keep their streams.
func TestP6_ExcludedClientsGetNothing(t *testing.T) {
	t.Parallel()
	const stays, goes = "spiffe://cluster.test/stays", "spiffe://cluster.test/goes"
	for name, c := range map[string]struct {
		change  xdstest.Config // nil: the authority of the client that goes is removed
		all     bool           // both clients are excluded
		sdsCode codes.Code     // of SDS streams; streams of ADS can come back without Secrets
		adsCode codes.Code
	}{
		"identity":  {xdstest.Config{"downstream.identity": fmt.Sprintf("node.id in peer.uri_sans && node.id != %q", goes)}, false, codes.PermissionDenied, codes.PermissionDenied},
		"secrets":   {xdstest.Config{"downstream.secrets": "deny"}, true, codes.PermissionDenied, codes.Unavailable},
		"authority": {nil, false, codes.PermissionDenied, codes.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			certs, other := issue(t), issue(t)
			ca := filepath.Join(certs.dir, "ca")
			tlstest.File(t, certs.dir, "ca", slices.Concat(certs.ca.PEM(), other.ca.PEM()))
			o := origin(t, xdstest.Linear)
			o.Put("mesh", secret("s"))
			r := follow(t, o.Address, xdstest.Config{"downstream.tls": certs.serverTLS("relay", true), "downstream.identity": "node.id in peer.uri_sans", "downstream.drain": "10m"})
			dial := func(by *issued, uri string) *grpc.ClientConn {
				return xdstest.Dial(t, r.Address, credentials.NewTLS(&tls.Config{RootCAs: certs.ca.Pool(), Certificates: []tls.Certificate{by.ca.Pair(t, tlstest.URI(uri)).TLS(t)}}))
			}
			type open struct {
				*xdstest.Stream
				code codes.Code
			}
			var kept, ended []open
			for _, v := range variants {
				for method, code := range map[string]codes.Code{methods[v]: c.adsCode, secretMethods[v]: c.sdsCode} {
					for uri, by := range map[string]*issued{stays: other, goes: certs} {
						s := xdstest.OpenStreamOn(t, dial(by, uri), method)
						s.Ask(node(uri, "mesh"), resource.SecretType, "s")
						s.Ack("s")
						if uri == goes || c.all {
							ended = append(ended, open{s, code})
						} else {
							kept = append(kept, open{s, code})
						}
					}
				}
			}
			if c.change != nil {
				r.to(c.change, "ends the affected streams")
			} else {
				if err := os.WriteFile(ca, other.ca.PEM(), 0o600); err != nil {
					t.Fatal(err)
				}
				r.WaitMetric(1, "certificate_reloads_total", "result", "reloaded")
			}
			newer := secret("s")
			newer.GetTlsCertificate().Password = &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: "newer"}}
			o.Put("mesh", newer)
			for _, s := range ended {
				if r, err := s.Receive(); status.Code(err) != s.code {
					t.Errorf("an excluded client gets %v, %v, want %v", r.Resources, err, s.code)
				}
			}
			for _, s := range kept {
				gets(t, s.Stream, newer)
			}
		})
	}
}

// REST polls have the TLS of downstream. A certificate proves the identity of a poll.
func TestP6_PollsOverMutualTLS(t *testing.T) {
	t.Parallel()
	for _, up := range upstreams {
		t.Run(up, func(t *testing.T) {
			t.Parallel()
			certs := issue(t)
			o := origin(t, xdstest.Linear)
			o.Put("mesh", secret("s"), xdstest.Cluster("c", 1))
			s := withREST(up, "10s")
			s["downstream.tls"], s["downstream.identity"] = certs.serverTLS("relay", true), "node.id in peer.uri_sans"
			r := serve(t, o.Address, s)
			base := strings.Replace(r.rest(), "http://", "https://", 1)
			const uri = "spiffe://cluster.test/ns/shop/sa/cart"
			status := func(id, typ string, proven bool) int {
				conf := &tls.Config{RootCAs: certs.ca.Pool()}
				if proven {
					conf.Certificates = []tls.Certificate{certs.ca.Pair(t, tlstest.URI(uri)).TLS(t)}
				}
				tr := &http.Transport{TLSClientConfig: conf}
				defer tr.CloseIdleConnections()
				got, err := poll(xdstest.Context(t), &http.Client{Transport: tr}, base, typ, &discoveryv3.DiscoveryRequest{Node: node(id, "mesh"), ResourceNames: []string{"s", "c"}})
				if err != nil {
					return 0
				}
				return got.status
			}
			for _, typ := range []string{resource.SecretType, resource.ClusterType} {
				if got := status(uri, typ, true); got != http.StatusOK {
					t.Errorf("%s: %d", typ, got)
				}
			}
			if got := status("another", resource.ClusterType, true); got != http.StatusForbidden {
				t.Errorf("another node: %d", got)
			}
			if got := status(uri, resource.ClusterType, false); got != 0 {
				t.Errorf("without a certificate: %d", got)
			}
			r.WaitMetric(1, "refused_total", "reason", "tls_handshake")
			r.WaitMetric(1, "refused_total", "reason", "identity")
		})
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

// The relay presents a client certificate to an origin that requires one. If the origin does not
// accept it, the origin counts as away.
func TestUpstreamMTLS(t *testing.T) {
	t.Parallel()
	certs := issue(t)
	o := origin(t, xdstest.Linear, grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{certs.ca.Pair(t, tlstest.DNS("origin.test")).TLS(t)},
		ClientCAs:    certs.ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
	})))
	o.Put("edge", xdstest.Web(1)...)
	relayCert, relayKey := tlstest.NewAuthority(t).Pair(t, tlstest.CN("stranger")).Write(t, certs.dir, "relay")
	s := xdstest.QuickConfig()
	s["upstream.origins"] = []map[string]any{{"address": o.Address, "tls": map[string]any{
		"ca_file": filepath.Join(certs.dir, "ca"), "cert_file": relayCert, "key_file": relayKey, "server_name": "origin.test"}}}
	for _, up := range upstreams {
		t.Run(up, func(t *testing.T) {
			tlstest.NewAuthority(t).Pair(t, tlstest.CN("stranger")).Write(t, certs.dir, "relay")
			s["upstream.variant"] = up
			r := start(t, "", nil, "serve", "--config", s.WriteFile(t))
			st := xdstest.OpenStream(t, r.Address, xdstest.DeltaMethod)
			st.Ask(node("n", "edge"), resource.ClusterType)
			st.WantEnd(codes.Unavailable)
			// The certificate is renewed while the relay runs.
			certs.ca.Pair(t, tlstest.CN("relay")).Write(t, certs.dir, "relay")
			waitAll(t, envoys(t, r.Address, "edge"), "resources", hasAll(xdstest.Web(1)...))
		})
	}
}

// A certificate renewed by Kubernetes' symlink swap is presented to new clients. A broken one is
// not.
func TestRenewedCertificates(t *testing.T) {
	t.Parallel()
	certs := issue(t)
	o := origin(t, xdstest.Linear)
	mount := t.TempDir()
	publish := func(generation string, pair tlstest.Pair) {
		t.Helper()
		dir := filepath.Join(mount, generation)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		pair.Write(t, dir, "tls")
		if err := os.Symlink(generation, filepath.Join(mount, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(mount, "..tmp"), filepath.Join(mount, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	publish("..1", certs.ca.Pair(t, tlstest.CN("first"), tlstest.Loopback()))
	for _, name := range []string{"tls.crt", "tls.key"} {
		if err := os.Symlink("..data/"+name, filepath.Join(mount, name)); err != nil {
			t.Fatal(err)
		}
	}
	r := serve(t, o.Address, xdstest.Config{"downstream.tls": map[string]any{
		"cert_file": filepath.Join(mount, "tls.crt"), "key_file": filepath.Join(mount, "tls.key")}})
	shows := func(want string) {
		t.Helper()
		c, err := tls.Dial("tcp", r.Address, &tls.Config{RootCAs: certs.ca.Pool(), NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }() // read what there was to read
		if got := c.ConnectionState().PeerCertificates[0].Subject.CommonName; got != want {
			t.Fatalf("the relay presents %q, want %q", got, want)
		}
	}
	shows("first")
	publish("..2", tlstest.Pair{Cert: []byte("broken"), Key: []byte("broken")})
	r.WaitMetric(1, "certificate_reloads_total", "result", "failed")
	shows("first")
	publish("..3", certs.ca.Pair(t, tlstest.CN("second"), tlstest.Loopback()))
	r.WaitMetric(1, "certificate_reloads_total", "result", "reloaded")
	shows("second")
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

// Rules see a client's verified identity, not its claimed one.
func TestKeysByIdentity(t *testing.T) {
	t.Parallel()
	certs := issue(t)
	o := origin(t, xdstest.Linear)
	o.Put("edge", xdstest.Web(1)...)
	r := serve(t, o.Address, xdstest.Config{
		"downstream.tls":    certs.serverTLS("mutual", true),
		"aggregation.rules": []map[string]any{{"key": []string{"node.cluster", "peer.uri_sans[0]"}}},
	})
	for _, uri := range []string{"spiffe://test/a", "spiffe://test/b", "spiffe://test/a"} {
		s := xdstest.OpenStreamOn(t, certs.dial(r.Address, uri), xdstest.DeltaMethod)
		s.Ask(node("same", "edge"), resource.ClusterType)
		gets(t, s, xdstest.Web(1)[0])
	}
	var got []string
	for _, k := range r.keys() {
		got = append(got, k.Key)
	}
	slices.Sort(got)
	if want := []string{`edge/"spiffe://test/a"`, `edge/"spiffe://test/b"`}; !slices.Equal(got, want) {
		t.Errorf("keys %q, want %q", got, want)
	}
	nameless := xdstest.Dial(t, r.Address, credentials.NewTLS(&tls.Config{RootCAs: certs.ca.Pool(),
		Certificates: []tls.Certificate{certs.ca.Pair(t, tlstest.CN("spiffe://test/a")).TLS(t)}}))
	s := xdstest.OpenStreamOn(t, nameless, xdstest.DeltaMethod)
	s.Ask(node("same", "edge"), resource.ClusterType)
	s.WantEnd(codes.PermissionDenied)
}

// keyed is a cluster with an inline private key, in an Any in an Any.
func keyed(name string) *clusterv3.Cluster {
	c := xdstest.Cluster(name, 1)
	c.TransportSocket = &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: xdstest.Pack(xdstest.Pack(&tlsv3.UpstreamTlsContext{
		CommonTlsContext: &tlsv3.CommonTlsContext{TlsCertificates: []*tlsv3.TlsCertificate{{
			PrivateKey: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: hidden}}}}}}))}}
	return c
}
