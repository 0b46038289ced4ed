package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// methods are those of the aggregated service.
var methods = map[fleet.Variant]string{fleet.SotW: xdstest.SotWMethod, fleet.Delta: xdstest.DeltaMethod}

// ask is a first request, in either variant.
func ask(v fleet.Variant, n *corev3.Node, typ string, names ...string) proto.Message {
	return xdstest.NewRequest(v == fleet.Delta, n, typ, names...)
}

// names are n different ones.
func names(prefix string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprint(prefix, i))
	}
	return out
}

// Whatever one client sends: a clear status, a counter with a reason, and its
// neighbours under the same key go on (P16). What the reasons stand for is in
// the rules named with them.
func TestP16_BadClientsDisturbNobody(t *testing.T) {
	const nameLimit, nodeLimit = 50, 4000
	n := node("bad", "edge")
	big := proto.CloneOf(n)
	big.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{
		"large": structpb.NewStringValue(strings.Repeat("x", nodeLimit))}}
	cases := []struct {
		name   string
		send   func(v fleet.Variant) []any
		code   codes.Code
		reason string
	}{
		{"garbage", func(fleet.Variant) []any { return []any{xdstest.Raw("\xff\xff\xff not protobuf")} },
			codes.InvalidArgument, "request_invalid"},
		{"cut", func(v fleet.Variant) []any {
			b, _ := proto.Marshal(ask(v, n, resource.ClusterType)) // of a message made here
			return []any{xdstest.Raw(b[:len(b)-3])}
		}, codes.InvalidArgument, "request_invalid"},
		{"garbage later", func(v fleet.Variant) []any { return []any{ask(v, n, resource.ClusterType), xdstest.Raw("\x0a\xff")} },
			codes.InvalidArgument, "request_invalid"},
		{"node of garbage", func(v fleet.Variant) []any {
			if v == fleet.SotW { // the node is field 2, field 1 the version
				return []any{xdstest.Raw("\x12\x02\x0a\x7f\x22\x01t")}
			}
			return []any{xdstest.Raw("\x0a\x02\x0a\x7f\x12\x01t")} // field 1, the type is field 2
		},
			codes.InvalidArgument, "node_invalid"},
		{"no node P1", func(v fleet.Variant) []any { return []any{ask(v, nil, resource.ClusterType)} },
			codes.InvalidArgument, "node_missing"},
		{"empty request P1", func(fleet.Variant) []any { return []any{xdstest.Raw("")} },
			codes.InvalidArgument, "node_missing"},
		{"no type P2", func(v fleet.Variant) []any { return []any{ask(v, n, "")} },
			codes.InvalidArgument, "type_missing"},
		{"unmapped P5", func(v fleet.Variant) []any { return []any{ask(v, node("bad", "stranger"), resource.ClusterType)} },
			codes.PermissionDenied, "unmapped"},
		{"node_bytes", func(v fleet.Variant) []any { return []any{ask(v, big, resource.ClusterType)} },
			codes.ResourceExhausted, "node_bytes"},
		{"names_per_stream", func(v fleet.Variant) []any {
			return []any{ask(v, n, resource.EndpointType, names("bad-", nameLimit+1)...)}
		}, codes.ResourceExhausted, "names_per_stream"},
		{"names_per_stream, over types", func(v fleet.Variant) []any {
			return []any{ask(v, n, resource.EndpointType, names("bad-", nameLimit)...), ask(v, n, resource.RouteType, "one-more")}
		}, codes.ResourceExhausted, "names_per_stream"},
		{"a name over 2 KiB P28", func(v fleet.Variant) []any {
			return []any{ask(v, n, resource.EndpointType, strings.Repeat("n", 2049))}
		}, codes.InvalidArgument, "name_bytes"},
		{"types_per_stream", func(v fleet.Variant) []any {
			var out []any
			for _, typ := range names("type.googleapis.com/acme.T", 9) {
				out = append(out, ask(v, n, string(typ), "x"))
			}
			return out
		}, codes.ResourceExhausted, "types_per_stream"},
		{"request_bytes", func(v fleet.Variant) []any {
			return []any{ask(v, n, resource.EndpointType, names(strings.Repeat("l", 1000), 70)...)}
		}, codes.ResourceExhausted, "request_bytes"},
		{"resource_locators P39", func(v fleet.Variant) []any {
			l := []*discoveryv3.ResourceLocator{{Name: "x"}}
			if v == fleet.SotW {
				return []any{&discoveryv3.DiscoveryRequest{Node: n, TypeUrl: string(resource.ClusterType), ResourceLocators: l}}
			}
			return []any{&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: string(resource.ClusterType), ResourceLocatorsSubscribe: l}}
		}, codes.Unimplemented, "resource_locators"},
	}

	o := origin(t, xdstest.Snapshot)
	o.Put("edge", xdstest.Web(1)...)
	r := serve(t, o.Address, xdstest.Config{
		"aggregation.rules":                  []any{map[string]any{"match": `node.cluster == "edge"`, "key": "node.cluster"}},
		"downstream.limits.names_per_stream": nameLimit,
		"downstream.limits.node_bytes":       nodeLimit,
		"downstream.limits.types_per_stream": 8,
		"downstream.limits.request_bytes":    65536,
	})
	neighbours := envoys(t, r.Address, "edge")
	waitAll(t, neighbours, "what the origin has", hasAll(xdstest.Web(1)...))

	revision := 1
	for _, tc := range cases {
		for _, v := range variants {
			t.Run(tc.name+"/"+v.String(), func(t *testing.T) {
				before := r.Metric("refused_total", "reason", tc.reason)
				s := xdstest.OpenStream(t, r.Address, methods[v])
				s.Send(tc.send(v)...)
				s.WantEnd(tc.code)
				r.WaitMetric(before+1, "refused_total", "reason", tc.reason)
				revision++
				o.Put("edge", xdstest.Web(revision)...)
				waitAll(t, neighbours, "a change", hasAll(xdstest.Web(revision)...))
			})
		}
	}
	for _, c := range neighbours {
		if s := c.Counters().Streams; s != 1 {
			t.Errorf("%s needed %d streams", c, s)
		}
	}
	if _, ever := o.Streams(); ever != 1 {
		t.Errorf("the origin had %d streams, want 1", ever)
	}
	// What nobody wants any more is not kept (8.): the names of those refused.
	xdstest.Eventually(t, "the names of refused clients", xdstest.Holds(func() bool { return !r.wants("edge", "EDS", 2) }))
}

// P5: the answer to a node that maps to nothing says which rules were tried.
func TestP5_UnmappedNodeIsToldTheRules(t *testing.T) {
	o := origin(t, xdstest.Snapshot)
	r := serve(t, o.Address, xdstest.Config{"aggregation.rules": []any{
		map[string]any{"match": `node.cluster == "edge"`, "key": "node.cluster"},
		map[string]any{"match": `node.metadata.tenant == "a"`, "key": "node.metadata.tenant"},
	}})
	for _, v := range variants {
		s := xdstest.OpenStream(t, r.Address, methods[v])
		s.Ask(node("n", "nowhere"), resource.ClusterType) // and no metadata: no match, no error
		msg := s.WantEnd(codes.PermissionDenied).Message()
		for _, rule := range []string{`node.cluster == "edge"`, `node.metadata.tenant == "a"`} {
			if !strings.Contains(msg, rule) && !strings.Contains(msg, "rules[") {
				t.Errorf("%s: the refusal does not name the rules: %q", v, msg)
			}
		}
	}
	if _, ever := o.Streams(); ever != 0 {
		t.Errorf("a refused node cost the origin %d streams", ever)
	}
}

// P2: a service for one type takes no other, and needs none to be named.
func TestP2_ServiceOfOneType(t *testing.T) {
	o := origin(t, xdstest.Snapshot)
	o.Put("edge", xdstest.Web(1)...)
	r := serve(t, o.Address, nil)
	for _, method := range []string{
		"/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters",
		"/envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters",
	} {
		good := xdstest.OpenStream(t, r.Address, method)
		good.Ask(node("n", "edge"), "")
		if _, err := good.Receive(); err != nil {
			t.Errorf("%s: without a type: %v", method, err)
		}
		bad := xdstest.OpenStream(t, r.Address, method)
		bad.Ask(node("n", "edge"), resource.ListenerType)
		bad.WantEnd(codes.InvalidArgument)
	}
	r.WaitMetric(2, "refused_total", "reason", "type_mismatch")
}

// A type URL that nobody knows is carried as any other (P3), and one that the
// origin has nothing of disturbs neither its own stream nor others.
func TestP3_UnknownTypes(t *testing.T) {
	eachOrigin(t, func(t *testing.T, upstream, kind string) {
		o := origin(t, kind)
		o.Put("edge", xdstest.Web(1)...)
		r := serve(t, o.Address, xdstest.Config{"upstream.variant": upstream})
		neighbours := envoys(t, r.Address, "edge")
		waitAll(t, neighbours, "what the origin has", hasAll(xdstest.Web(1)...))
		for _, typ := range []string{"type.googleapis.com/acme.Unknown", "no type at all", "☃"} {
			for _, v := range variants {
				c := client(t, r.Address, fleet.ClientConfig{Node: node("odd-"+v.String(), "edge"), Variant: v, Behaviour: fleet.Raw,
					Subscribe: []fleet.Subscription{{Type: xds.TypeURL(typ), Names: []string{"a"}}, {Type: resource.ClusterType}}})
				waitFor(t, c, "a type that is known", has(xdstest.Cluster("web", 1)))
			}
		}
		o.Put("edge", xdstest.Web(2)...)
		waitAll(t, neighbours, "a change", hasAll(xdstest.Web(2)...))
		if _, ever := o.Streams(); ever != 1 {
			t.Errorf("the origin had %d streams, want 1", ever)
		}
	})
}

// A client that asks for more names than it may loses its stream, and those
// names are not asked for; clients with as many as they may go on.
func TestNamesPerStreamIsOneClientsLimit(t *testing.T) {
	o := origin(t, xdstest.Linear)
	want := names("la-", 20)
	for i, n := range want {
		o.Put("edge", xdstest.Endpoints(n, 100+i))
	}
	r := serve(t, o.Address, xdstest.Config{"downstream.limits.names_per_stream": 20})
	for _, v := range variants {
		good := client(t, r.Address, fleet.ClientConfig{Node: node("good-"+v.String(), "edge"), Variant: v, Behaviour: fleet.Raw,
			Subscribe: []fleet.Subscription{{Type: resource.EndpointType, Names: want}}})
		waitFor(t, good, "all that it may ask for", func(c *fleet.Client) bool { return c.Len(resource.EndpointType) == 20 })

		greedy := client(t, r.Address, fleet.ClientConfig{Node: node("greedy-"+v.String(), "edge"), Variant: v, Behaviour: fleet.Raw,
			Subscribe: []fleet.Subscription{{Type: resource.EndpointType, Names: want}}})
		waitFor(t, greedy, "all that it may ask for", func(c *fleet.Client) bool { return c.Len(resource.EndpointType) == 20 })
		before := r.Metric("refused_total", "reason", "names_per_stream")
		greedy.Subscribe(resource.EndpointType, "one-more-"+v.String())
		waitFor(t, greedy, "the end of its stream", func(c *fleet.Client) bool { return c.LastError() != nil })
		r.WaitMetric(before+1, "refused_total", "reason", "names_per_stream")
		greedy.Disconnect()

		changed := xdstest.Endpoints("la-0", 5000+int(v))
		o.Put("edge", changed)
		waitFor(t, good, "a change", has(changed))
		if n := good.Counters().Streams; n != 1 {
			t.Errorf("%s needed %d streams", good, n)
		}
	}
	asked := o.Requests(func(q xdstest.Request) bool {
		return slices.ContainsFunc(q.Names, func(n string) bool { return strings.HasPrefix(n, "one-more") })
	})
	if len(asked) > 0 {
		t.Errorf("the origin was asked for what the client was refused: %+v", asked)
	}
}
