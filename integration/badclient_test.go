package integration

import (
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// methods are the methods of the aggregated service.
var methods = map[fleet.Variant]string{fleet.SotW: xdstest.SotWMethod, fleet.Delta: xdstest.DeltaMethod}

// ask is a first request, in either variant.
func ask(v fleet.Variant, n *corev3.Node, typ string, names ...string) proto.Message {
	return xdstest.NewRequest(v == fleet.Delta, n, typ, names...)
}

// names returns n different names.
func names(prefix string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprint(prefix, i))
	}
	return out
}

// Whatever one client sends, it receives a clear status and a counter has the reason. Other clients
// under the same key go on (P16). Each reason belongs to the rules beside it.
func TestP16_BadClientsDisturbNoOthers(t *testing.T) {
	t.Parallel()
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
			b, _ := proto.Marshal(ask(v, n, resource.ClusterType)) // the message is made here and valid
			return []any{xdstest.Raw(b[:len(b)-3])}
		}, codes.InvalidArgument, "request_invalid"},
		{"garbage later", func(v fleet.Variant) []any { return []any{ask(v, n, resource.ClusterType), xdstest.Raw("\x0a\xff")} },
			codes.InvalidArgument, "request_invalid"},
		{"node of garbage", func(v fleet.Variant) []any {
			if v == fleet.SotW { // the node is field 2; field 1 is the version
				return []any{xdstest.Raw("\x12\x02\x0a\x7f\x22\x01t")}
			}
			return []any{xdstest.Raw("\x0a\x02\x0a\x7f\x12\x01t")} // field 1; the type is field 2
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
		"aggregation.rules": []any{
			map[string]any{"match": `node.metadata.tenant == "no node has one"`, "key": "node.id"},
			map[string]any{"match": `node.cluster == "edge"`, "key": "node.cluster"},
		},
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
	r.WaitMetric(1, "rule_errors_total")
	for _, c := range neighbours {
		if s := c.Counters().Streams; s != 1 {
			t.Errorf("%s needed %d streams", c, s)
		}
	}
	if _, ever := o.Streams(); ever != 1 {
		t.Errorf("the origin had %d streams, want 1", ever)
	}
	// The names of refused clients are not kept.
	xdstest.Eventually(t, "the names of refused clients", xdstest.Holds(func() bool { return !r.wants("edge", "EDS", 2) }))
}
