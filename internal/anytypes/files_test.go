package anytypes_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	_ "xdsrelay/internal/anytypes"
)

// readFile reads a message from a YAML or JSON file.
func readFile(t *testing.T, path string, m proto.Message) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if ext := filepath.Ext(path); ext == ".yaml" || ext == ".yml" {
		var tree any
		if err := yaml.Unmarshal(raw, &tree); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if raw, err = json.Marshal(tree); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	if err := protojson.Unmarshal(raw, m); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// demos are the directories of the demo's origins, for Envoy and for gRPC.
var demos = []string{"../../config/demo", "../../config/demo-grpc"}

// demoResponses reads one of demos as an origin of files does (P80): each file is a DiscoveryResponse.
func demoResponses(t *testing.T, dir string) map[string]*discoveryv3.DiscoveryResponse {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]*discoveryv3.DiscoveryResponse)
	for _, f := range files {
		m := new(discoveryv3.DiscoveryResponse)
		readFile(t, filepath.Join(dir, f.Name()), m)
		out[f.Name()] = m
	}
	return out
}

// validate checks the constraints of Envoy's API for m and for every message in an Any below it.
func validate(t *testing.T, place string, m proto.Message) {
	t.Helper()
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			t.Errorf("%s: %v", place, err)
		}
	}
	eachAny(m.ProtoReflect(), func(a *anypb.Any) {
		inner, err := a.UnmarshalNew()
		if err != nil {
			t.Errorf("%s: %v", place, err)
			return
		}
		validate(t, place+"/"+string(inner.ProtoReflect().Descriptor().Name()), inner)
	})
}

// eachAny calls f for each Any in m, except those in another Any.
func eachAny(m protoreflect.Message, f func(*anypb.Any)) {
	if a, ok := m.Interface().(*anypb.Any); ok {
		f(a)
		return
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				eachAny(v.List().Get(i).Message(), f)
			}
		case fd.IsMap() && fd.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				eachAny(v.Message(), f)
				return true
			})
		case !fd.IsMap() && fd.Message() != nil:
			eachAny(v.Message(), f)
		}
		return true
	})
}

// Types that files for Envoy use: one for each group of types.go, and those that are easily missed.
func TestFilesMayName(t *testing.T) {
	wellKnown := map[string]string{
		"google.protobuf.StringValue": `"x"`,
		"google.protobuf.Struct":      `{"a": 1}`,
		"google.protobuf.Empty":       `{}`,
	}
	for _, name := range strings.Fields(`
		envoy.config.listener.v3.Listener
		envoy.config.route.v3.VirtualHost
		envoy.config.route.v3.ScopedRouteConfiguration
		envoy.config.core.v3.TypedExtensionConfig
		envoy.config.bootstrap.v3.Bootstrap
		envoy.config.trace.v3.ZipkinConfig
		envoy.service.runtime.v3.Runtime
		envoy.extensions.transport_sockets.tls.v3.Secret
		envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
		envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer
		envoy.extensions.access_loggers.file.v3.FileAccessLog
		envoy.extensions.access_loggers.stream.v3.StderrAccessLog
		envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig
		envoy.extensions.clusters.aggregate.v3.ClusterConfig
		envoy.extensions.compression.gzip.compressor.v3.Gzip
		envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication
		envoy.extensions.filters.http.rbac.v3.RBACPerRoute
		envoy.extensions.filters.http.ext_authz.v3.ExtAuthz
		envoy.extensions.filters.http.lua.v3.Lua
		envoy.extensions.filters.http.wasm.v3.Wasm
		envoy.extensions.filters.http.fault.v3.HTTPFault
		envoy.extensions.filters.http.stateful_session.v3.StatefulSession
		envoy.extensions.filters.http.header_to_metadata.v3.Config
		envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector
		envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
		envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig
		envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState
		envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin
		envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality
		envoy.extensions.health_checkers.redis.v3.Redis
		envoy.extensions.matching.common_inputs.network.v3.SourceIPInput
		envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig
		envoy.extensions.upstreams.http.v3.HttpProtocolOptions
		envoy.type.matcher.v3.HttpRequestHeaderMatchInput
		udpa.type.v1.TypedStruct
		xds.type.v3.TypedStruct
		xds.type.matcher.v3.CelMatcher
		google.protobuf.StringValue
		google.protobuf.Struct
		google.protobuf.Empty`) {
		a := new(anypb.Any)
		body := fmt.Sprintf(`{"@type": "type.googleapis.com/%s"}`, name)
		if value, ok := wellKnown[name]; ok { // JSON of their own, under "value"
			body = fmt.Sprintf(`{"@type": "type.googleapis.com/%s", "value": %s}`, name, value)
		}
		if err := protojson.Unmarshal([]byte(body), a); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := protojson.Marshal(a); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
