package envoy

import (
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"xdsrelay/internal/xdstest"
)

// way is how an Envoy gets its configuration.
type way struct {
	name  string
	file  string // its bootstrap in config/clients
	delta bool
	// source is the config source that resources name for the resources that
	// they refer to.
	source *corev3.ConfigSource
	rest   bool
	mtls   bool
}

// All ways but REST are gRPC streams, and all but mTLS are plaintext.
var (
	adsSotW    = way{name: "ads-sotw", file: "envoy-sotw.yaml", source: overADS}
	adsDelta   = way{name: "ads-delta", file: "envoy-delta.yaml", source: overADS, delta: true}
	typesSotW  = way{name: "types-sotw", file: "envoy-types.yaml", source: overTypes(corev3.ApiConfigSource_GRPC)}
	typesDelta = way{name: "types-delta", file: "envoy-types.yaml", source: overTypes(corev3.ApiConfigSource_DELTA_GRPC), delta: true}
	restPolls  = way{name: "rest", file: "envoy-rest.yaml", source: overREST, rest: true}
	adsMTLS    = way{name: "mtls", file: "envoy-mtls.yaml", source: overADS, delta: true, mtls: true}

	ways    = []way{adsSotW, adsDelta, typesSotW, typesDelta, restPolls}
	adsWays = []way{adsSotW, adsDelta}
	allWays = append(slices.Clone(ways), adsMTLS)
)

// variants are those of the relay's upstream streams.
var variants = []string{"sotw", "delta"}

var overADS = &corev3.ConfigSource{ResourceApiVersion: corev3.ApiVersion_V3,
	ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}

// overTypes is a stream of its own for each type.
func overTypes(kind corev3.ApiConfigSource_ApiType) *corev3.ConfigSource {
	return &corev3.ConfigSource{ResourceApiVersion: corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
			ApiType: kind, TransportApiVersion: corev3.ApiVersion_V3,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "relay"}}}},
		}}}
}

var overREST = &corev3.ConfigSource{ResourceApiVersion: corev3.ApiVersion_V3,
	ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
		ApiType: corev3.ApiConfigSource_REST, TransportApiVersion: corev3.ApiVersion_V3,
		ClusterNames: []string{"relay"}, RefreshDelay: durationpb.New(200e6), RequestTimeout: durationpb.New(35e9),
	}}}

// bootstrap is the way's file of config/clients, with these addresses for the
// cluster "relay".
func (w way) bootstrap(t testing.TB, addresses ...string) bootstrap {
	t.Helper()
	b := readBootstrap(t, w.file)
	b.connectTo(addresses...)
	for _, name := range []string{"cds_config", "lds_config"} {
		source, _ := b.at("dynamic_resources", name)["api_config_source"].(bootstrap)
		switch {
		case source == nil:
		case w.rest:
			source["refresh_delay"] = "0.2s"
		case w.delta:
			source["api_type"] = "DELTA_GRPC"
			b.at("node")["client_features"] = []any{"xds.config.supports-resource-ttl"}
		}
	}
	return b
}

// scene is an origin, a relay in front of it, and Envoys behind the relay.
type scene struct {
	t      *testing.T
	way    way
	origin *xdstest.Origin
	relay  *xdstest.Relay // nil: the Envoys ask the origin directly
	tls    *certificates  // nil but for mTLS
}

// sceneOptions say how a scene is set up. The zero value is a snapshot cache
// behind a relay with QuickConfig whose upstream variant is delta.
type sceneOptions struct {
	origin  xdstest.OriginOptions
	variant string // of the relay's upstream streams
	config  xdstest.Config
	direct  bool // no relay
}

// newScene starts an origin and, unless opts.direct, a relay in front of it.
func newScene(t *testing.T, w way, opts sceneOptions) *scene {
	t.Helper()
	xdstest.PythonEnv(t) // skips before anything is built
	opts.origin.REST = opts.direct && w.rest
	s := &scene{t: t, way: w}
	if w.mtls {
		s.tls = newCertificates(t)
		if opts.direct {
			opts.origin.Server = append(slices.Clone(opts.origin.Server), s.tls.originOption())
		}
	}
	s.origin = xdstest.StartOrigin(t, opts.origin)
	if opts.direct {
		return s
	}
	config := xdstest.QuickConfig().With(xdstest.Config{"upstream.origins": xdstest.Origins(s.origin.Address)})
	if opts.variant != "" {
		config["upstream.variant"] = opts.variant
	}
	if w.rest {
		config["downstream.rest_address"] = xdstest.FreeAddress(t)
		config["downstream.long_poll"] = "5s"
	}
	if w.mtls {
		config = config.With(s.tls.relayConfig())
	}
	s.relay = xdstest.StartRelay(t, config.With(opts.config))
	return s
}

// server is the address that the scene's Envoys ask.
func (s *scene) server() string {
	switch {
	case s.relay == nil && s.way.rest:
		return s.origin.RESTAddress
	case s.relay == nil:
		return s.origin.Address
	case s.way.rest:
		return s.relay.RESTAddress
	}
	return s.relay.Address
}

// envoy starts an Envoy of node.cluster "edge". change, if not nil, edits its
// bootstrap.
func (s *scene) envoy(node string, change func(bootstrap)) *envoy {
	s.t.Helper()
	b := s.way.bootstrap(s.t, s.server())
	if s.tls != nil {
		s.tls.identify(b, node)
	}
	if change != nil {
		change(b)
	}
	return startEnvoy(s.t, node, "edge", b)
}

// each runs a test for each of these ways and each upstream variant, in
// parallel.
func each(t *testing.T, ways []way, test func(t *testing.T, w way, variant string)) {
	eachInTurn(t, ways, func(t *testing.T, w way, variant string) {
		t.Parallel()
		test(t, w, variant)
	})
}

// eachInTurn runs a test for each of these ways and each upstream variant, one
// after the other.
func eachInTurn(t *testing.T, ways []way, test func(t *testing.T, w way, variant string)) {
	for _, w := range ways {
		for _, variant := range variants {
			t.Run(w.name+"/"+variant+"-origin", func(t *testing.T) { test(t, w, variant) })
		}
	}
}
