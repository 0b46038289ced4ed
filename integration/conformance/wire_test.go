package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// kind is a resource type's URL.
type kind string

const (
	cds   kind = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	eds   kind = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	lds   kind = "type.googleapis.com/envoy.config.listener.v3.Listener"
	srds  kind = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"
	rds   kind = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	vhds  kind = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
	sds   kind = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	rtds  kind = "type.googleapis.com/envoy.service.runtime.v3.Runtime"
	ecds  kind = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
	leds  kind = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint"
	acme  kind = "type.googleapis.com/acme.Thing"        // unknown to the relay
	fence kind = "type.googleapis.com/conformance.Fence" // of fences on the aggregated stream
)

// full: a SotW response of the type holds everything.
func (k kind) full() bool { return k == cds || k == lds || k == srds }

// noLegacy: an empty first list of the type is no interest (P21).
func (k kind) noLegacy() bool { return k == eds || k == rds || k == sds || k == rtds || k == ecds }

// service is the discovery service of one type.
type service struct{ name, sotw, delta string }

const aggregated = "envoy.service.discovery.v3.AggregatedDiscoveryService"

var services = map[kind]service{
	cds:  {"envoy.service.cluster.v3.ClusterDiscoveryService", "StreamClusters", "DeltaClusters"},
	eds:  {"envoy.service.endpoint.v3.EndpointDiscoveryService", "StreamEndpoints", "DeltaEndpoints"},
	lds:  {"envoy.service.listener.v3.ListenerDiscoveryService", "StreamListeners", "DeltaListeners"},
	srds: {"envoy.service.route.v3.ScopedRoutesDiscoveryService", "StreamScopedRoutes", "DeltaScopedRoutes"},
	rds:  {"envoy.service.route.v3.RouteDiscoveryService", "StreamRoutes", "DeltaRoutes"},
	vhds: {"envoy.service.route.v3.VirtualHostDiscoveryService", "", "DeltaVirtualHosts"},
	sds:  {"envoy.service.secret.v3.SecretDiscoveryService", "StreamSecrets", "DeltaSecrets"},
	rtds: {"envoy.service.runtime.v3.RuntimeDiscoveryService", "StreamRuntime", "DeltaRuntime"},
	ecds: {"envoy.service.extension.v3.ExtensionConfigDiscoveryService", "StreamExtensionConfigs", "DeltaExtensionConfigs"},
	"":   {aggregated, "StreamAggregatedResources", "DeltaAggregatedResources"},
}

func (s service) method(delta bool) string {
	if delta {
		return "/" + s.name + "/" + s.delta
	}
	return "/" + s.name + "/" + s.sotw
}

// valueField is the field that holds a body's value. No type has this field, so decoding and
// encoding that drops unknown fields is detected.
const valueField = 2047

// body makes a resource. Its name is in field 1, as in every type. The value of a cluster may be
// "1@service", with the service name of its endpoints, and that of a load assignment "1@lease".
func body(k kind, name, value string) *anypb.Any {
	var b []byte
	if name != "" {
		b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), name)
	}
	if k == cds {
		b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), 3) // its endpoints come by EDS
		if _, service, ok := strings.Cut(value, "@"); ok {
			sub := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), service)
			b = protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType), sub)
		}
	}
	if k == eds && strings.HasSuffix(value, "@lease") { // policy.endpoint_stale_after: 30s
		b = protowire.AppendBytes(protowire.AppendTag(b, 4, protowire.BytesType), []byte{4<<3 | 2, 2, 1 << 3, 30})
	}
	b = protowire.AppendString(protowire.AppendTag(b, valueField, protowire.BytesType), value)
	return &anypb.Any{TypeUrl: string(k), Value: b}
}

// field returns the last string with this number in a message.
func field(b []byte, want protowire.Number) string {
	var out string
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Sprintf("unreadable: %v", protowire.ParseError(n))
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return fmt.Sprintf("unreadable: %v", protowire.ParseError(m))
		}
		if num == want && typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b[n:]) // the length was checked before
			out = string(v)
		}
		b = b[n+m:]
	}
	return out
}

// answer is a response of either variant.
type answer struct {
	kind    kind
	delta   bool
	version string
	nonce   string
	control string                           // control_plane.identifier
	bodies  map[string]*anypb.Any            // by name; nil values: without a body
	wraps   map[string]*discoveryv3.Resource // likewise, for wrapped resources
	removed []string
	msg     proto.Message
	twice   string // a name that it contains twice
}

func readSotW(r *discoveryv3.DiscoveryResponse) answer {
	a := answer{kind: kind(r.TypeUrl), version: r.VersionInfo, nonce: r.Nonce, control: r.GetControlPlane().GetIdentifier(), msg: r}
	a.bodies, a.wraps = make(map[string]*anypb.Any), make(map[string]*discoveryv3.Resource)
	for _, any := range r.Resources {
		if w := new(discoveryv3.Resource); any.MessageIs(w) && any.UnmarshalTo(w) == nil {
			a.add(w.Name, w.Resource, w)
			continue
		}
		a.add(field(any.Value, 1), any, nil)
	}
	return a
}

func readDelta(r *discoveryv3.DeltaDiscoveryResponse) answer {
	a := answer{kind: kind(r.TypeUrl), delta: true, version: r.SystemVersionInfo, nonce: r.Nonce,
		control: r.GetControlPlane().GetIdentifier(), removed: r.RemovedResources, msg: r}
	a.bodies, a.wraps = make(map[string]*anypb.Any), make(map[string]*discoveryv3.Resource)
	for _, w := range r.Resources {
		a.add(w.Name, w.Resource, w)
	}
	return a
}

func (a *answer) add(name string, body *anypb.Any, w *discoveryv3.Resource) {
	if _, there := a.bodies[name]; there {
		a.twice = name
	}
	a.bodies[name] = body
	if w != nil {
		a.wraps[name] = w
	}
}

// String formats the content of a response, in the order of names: "a=1 b=2 -c". Fences are left
// out.
func (a answer) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(a.bodies)) {
		if isFence(name) {
			continue
		}
		value := "(none)"
		if b := a.bodies[name]; b != nil {
			value = field(b.Value, valueField)
		}
		parts = append(parts, name+"="+value)
	}
	for _, name := range slices.Sorted(slices.Values(a.removed)) {
		if !isFence(name) {
			parts = append(parts, "-"+name)
		}
	}
	return strings.Join(parts, " ")
}

func isFence(name string) bool {
	return strings.HasPrefix(strings.TrimPrefix(name, onDemand), "fence-")
}

// short is a type's name in test messages.
func (k kind) short() string { return string(k)[strings.LastIndexByte(string(k), '.')+1:] }
