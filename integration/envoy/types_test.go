package envoy

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

// greenKey is the runtime key that says how many percent of the requests to
// /runtime go to the cluster "green".
const greenKey = "routing.green"

// runtimeResource is an RTDS layer that sends so many percent to green.
func runtimeResource(percent float64) *runtimev3.Runtime {
	layer, err := structpb.NewStruct(map[string]any{greenKey: percent})
	if err != nil {
		panic(err) // of values given here
	}
	return &runtimev3.Runtime{Name: "runtime", Layer: layer}
}

// withRuntime puts the RTDS layer into a bootstrap.
func withRuntime(t testing.TB, b bootstrap, source *corev3.ConfigSource) {
	t.Helper()
	text, err := protojson.Marshal(source)
	if err != nil {
		t.Fatal(err)
	}
	config := bootstrap{}
	if err := yaml.Unmarshal(text, &config); err != nil { // JSON is YAML
		t.Fatal(err)
	}
	b["layered_runtime"] = bootstrap{"layers": []any{
		bootstrap{"name": "rtds", "rtds_layer": bootstrap{"name": "runtime", "rtds_config": config}}}}
}

// runtimeRoutes send a path to green for the share that the runtime key says,
// and otherwise to blue.
func runtimeRoutes(prefix string) []*routev3.Route {
	green := xdstest.RouteTo(prefix, "green")
	green.Match.RuntimeFraction = &corev3.RuntimeFractionalPercent{
		DefaultValue: &typev3.FractionalPercent{Numerator: 0, Denominator: typev3.FractionalPercent_HUNDRED}, RuntimeKey: greenKey}
	return []*routev3.Route{green, xdstest.RouteTo(prefix, "blue")}
}

// addHeader is an extension config: a Lua filter "lua" that adds the header
// x-filter with this value to each request.
func addHeader(value string) *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: "lua", TypedConfig: xdstest.Pack(&luav3.Lua{
		DefaultSourceCode: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: `
function envoy_on_request(handle)
  handle:headers():add("x-filter", "` + value + `")
  handle:clearRouteCache()
end`}}})}
}

// discoveredFilter is a filter whose configuration comes by ECDS.
func discoveredFilter(source *corev3.ConfigSource) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: "lua", ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{
		ConfigDiscovery: &corev3.ExtensionConfigSource{ConfigSource: source, TypeUrls: []string{xdstest.TypeOf(&luav3.Lua{})}}}}
}

// routeByHeader sends requests with this header to a cluster.
func routeByHeader(name, value, cluster string) *routev3.Route {
	r := xdstest.RouteTo("/", cluster)
	r.Match.Headers = []*routev3.HeaderMatcher{{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
		StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: value}}}}}
	return r
}

// routeConfig is a route configuration for all domains.
func routeConfig(name string, list ...*routev3.Route) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: "all", Domains: []string{"*"}, Routes: list}}}
}

// scope sends requests with the header "x-scope: <key>" to a route
// configuration.
func scope(key, routes string) *routev3.ScopedRouteConfiguration {
	return &routev3.ScopedRouteConfiguration{Name: "scope-" + key, RouteConfigurationName: routes,
		Key: &routev3.ScopedRouteConfiguration_Key{Fragments: []*routev3.ScopedRouteConfiguration_Key_Fragment{
			{Type: &routev3.ScopedRouteConfiguration_Key_Fragment_StringKey{StringKey: key}}}}}
}

// scopedManager is an HTTP connection manager whose scopes come by SRDS.
func scopedManager(source *corev3.ConfigSource) *hcmv3.HttpConnectionManager {
	m := xdstest.Manager("", source)
	type (
		builder   = hcmv3.ScopedRoutes_ScopeKeyBuilder
		fragment  = hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder
		extractor = hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor
	)
	m.RouteSpecifier = &hcmv3.HttpConnectionManager_ScopedRoutes{ScopedRoutes: &hcmv3.ScopedRoutes{
		Name: "scopes",
		ScopeKeyBuilder: &builder{Fragments: []*fragment{{
			Type: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor_{
				HeaderValueExtractor: &extractor{Name: "x-scope", ExtractType: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor_Index{}}}}}},
		RdsConfigSource: source,
		ConfigSpecifier: &hcmv3.ScopedRoutes_ScopedRds{ScopedRds: &hcmv3.ScopedRds{ScopedRdsConfigSource: source}},
	}}
	return m
}

// certificate is a Secret with a certificate and its key.
func certificate(name string, p tlstest.Pair) *tlsv3.Secret {
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline(p.Cert), PrivateKey: inline(p.Key)}}}
}

// authority is a Secret with an authority to trust.
func authority(name string, a *tlstest.Authority) *tlsv3.Secret {
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{
		ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(a.PEM())}}}
}

func inline(text []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: text}}
}

// withCertificate makes a listener terminate TLS with a certificate from SDS.
func withCertificate(l *listenerv3.Listener, secret string, source *corev3.ConfigSource) *listenerv3.Listener {
	l.FilterChains[0].TransportSocket = &corev3.TransportSocket{Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: xdstest.Pack(&tlsv3.DownstreamTlsContext{
			CommonTlsContext: &tlsv3.CommonTlsContext{
				TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{Name: secret, SdsConfig: source}}}})}}
	return l
}

// withAuthority makes a cluster speak TLS to its endpoints and verify them with
// an authority from SDS.
func withAuthority(c *clusterv3.Cluster, secret string, source *corev3.ConfigSource) *clusterv3.Cluster {
	c.TransportSocket = &corev3.TransportSocket{Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: xdstest.Pack(&tlsv3.UpstreamTlsContext{
			CommonTlsContext: &tlsv3.CommonTlsContext{ValidationContextType: &tlsv3.CommonTlsContext_ValidationContextSdsSecretConfig{
				ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{Name: secret, SdsConfig: source}}}})}}
	return c
}

// everything is a configuration with resources of all types.
type everything struct {
	ca        *tlstest.Authority // of the listener "tls" and the backend "secure"
	resources []types.Resource
}

// newEverything starts the backends "blue" and "green", which speak plaintext,
// and "secure", which speaks TLS.
//
// Listener "in" has a filter from ECDS, which adds a header that the routes
// send to green, and the path /runtime, which goes to blue or green as RTDS
// says. Listener "scoped" sends the scopes "blue" and "green" to these
// backends. Listener "tls" has its certificate from SDS, and so has its cluster
// the authority that it verifies "secure" with. Listener "plain" sends all to
// blue. Nothing uses the cluster "moving" yet, whose endpoints are green.
func newEverything(t testing.TB, source *corev3.ConfigSource) *everything {
	t.Helper()
	ca := tlstest.NewAuthority(t)
	blue, green := xdstest.StartHTTPBackend(t, "blue"), xdstest.StartHTTPBackend(t, "green")
	secure := xdstest.StartHTTPSBackend(t, "secure", serverTLS(t, ca))

	in := xdstest.Manager("in", source)
	in.HttpFilters = []*hcmv3.HttpFilter{discoveredFilter(source), xdstest.RouterFilter()}
	return &everything{ca: ca, resources: []types.Resource{
		cluster("blue", source), endpoints("blue", blue),
		cluster("green", source), endpoints("green", green),
		withAuthority(cluster("secure", source), "backend-ca", source), endpoints("secure", secure), authority("backend-ca", ca),
		xdstest.HTTPListener("in", in), addHeader("on"), runtimeResource(0),
		routeConfig("in", append(runtimeRoutes("/runtime"), routeByHeader("x-filter", "on", "green"), xdstest.RouteTo("/", "blue"))...),
		xdstest.HTTPListener("scoped", scopedManager(source)), scope("blue", "all-blue"), scope("green", "all-green"),
		routes("all-blue", "blue"), routes("all-green", "green"),
		xdstest.HTTPListener("plain", xdstest.Manager("all-blue", source)), routes("moving", "moving"),
		clusterOfService("moving", "moving-1", source), endpoints("moving-1", green), endpoints("moving-2", blue),
		withCertificate(xdstest.HTTPListener("tls", xdstest.Manager("secure", source)), "server", source), routes("secure", "secure"),
		certificate("server", ca.Pair(t, tlstest.DNS("in.example.com"))),
	}}
}

// clusterOfService is an EDS cluster with the load assignment of this name.
func clusterOfService(name, service string, source *corev3.ConfigSource) *clusterv3.Cluster {
	c := cluster(name, source)
	c.EdsClusterConfig.ServiceName = service
	return c
}

// rotate replaces the authority, the listener's certificate, and the backend
// "secure", whose certificate only the new authority signed.
func (x *everything) rotate(t testing.TB, o *xdstest.Origin) {
	t.Helper()
	x.ca = tlstest.NewAuthority(t)
	secure := xdstest.StartHTTPSBackend(t, "secure", serverTLS(t, x.ca))
	o.Put("edge", authority("backend-ca", x.ca), endpoints("secure", secure),
		certificate("server", x.ca.Pair(t, tlstest.DNS("in.example.com"))))
}

// serverTLS is the configuration of a TLS server on loopback.
func serverTLS(t testing.TB, ca *tlstest.Authority) *tls.Config {
	t.Helper()
	return &tls.Config{Certificates: []tls.Certificate{ca.Pair(t, tlstest.Loopback()).TLS(t)}, MinVersion: tls.VersionTLS12}
}

// ask is a request to a listener.
type ask struct {
	listener, path string
	header         [2]string          // its name and value; may be empty
	trust          *tlstest.Authority // nil: plaintext
}

// answer returns the name of the backend that answers a request.
func (e *envoy) answer(a ask) (string, error) {
	address, err := e.listenerAddress(a.listener)
	if err != nil {
		return "", err
	}
	client, scheme, header := newClient(nil), "http", http.Header{}
	if a.trust != nil {
		scheme = "https"
		client = newClient(&tls.Config{RootCAs: a.trust.Pool(), ServerName: "in.example.com", MinVersion: tls.VersionTLS12})
	}
	if a.header[0] != "" {
		header.Set(a.header[0], a.header[1])
	}
	return answered(send(e.t.Context(), client, scheme+"://"+address+a.path, "", header))
}

// answers waits until this backend answers a request.
func (e *envoy) answers(a ask, backend string) {
	e.t.Helper()
	xdstest.Eventually(e.t, fmt.Sprintf("%s: listener %s, path %q, header %q", e.node, a.listener, a.path, a.header), func() error {
		got, err := e.answer(a)
		if err == nil && got != backend {
			err = fmt.Errorf("answered by %s, want %s", got, backend)
		}
		return err
	})
}
