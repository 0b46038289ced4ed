package upstreamtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Named is the interest in names of a type.
func Named(typ xds.TypeURL, names ...string) snapshot.TypeInterest {
	return snapshot.TypeInterest{Type: typ, Names: xds.NewNameSet(names...)}
}

// All is the interest in the wildcard of a type.
func All(typ xds.TypeURL) snapshot.TypeInterest {
	return snapshot.TypeInterest{Type: typ, Wildcard: true}
}

// EachVariant runs a test once for SotW and once for delta.
func EachVariant(t *testing.T, test func(t *testing.T, v xds.Variant)) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		t.Run(v.String(), func(t *testing.T) { test(t, v) })
	}
}

// Ask returns a request for names in the format of Show, without nonce.
func Ask(v xds.Variant, label string, names ...string) string {
	wildcard := slices.Equal(names, []string{"*"}) // an empty list
	switch {
	case v == xds.Delta && wildcard:
		return label
	case v == xds.Delta:
		return fmt.Sprint(label, " +", names)
	case wildcard:
		names = nil
	}
	return fmt.Sprint(label, " ", names)
}

// Show prints a request in one line: type, names, versions, nonce, NACK, a missing node.
func Show(t *testing.T, v xds.Variant, msg []byte) string {
	t.Helper()
	var m interface {
		GetNode() *corev3.Node
		GetTypeUrl() string
		GetResponseNonce() string
		GetErrorDetail() *statuspb.Status
	}
	var out []string
	if v == xds.Delta {
		d := new(discoveryv3.DeltaDiscoveryRequest)
		MustUnmarshal(t, msg, d)
		m = d
		if len(d.ResourceNamesSubscribe) > 0 {
			out = append(out, fmt.Sprint("+", d.ResourceNamesSubscribe))
		}
		if len(d.ResourceNamesUnsubscribe) > 0 {
			out = append(out, fmt.Sprint("-", d.ResourceNamesUnsubscribe))
		}
		for _, n := range slices.Sorted(maps.Keys(d.InitialResourceVersions)) {
			out = append(out, n+"="+d.InitialResourceVersions[n])
		}
	} else {
		d := new(discoveryv3.DiscoveryRequest)
		MustUnmarshal(t, msg, d)
		m = d
		out = append(out, fmt.Sprint(d.ResourceNames))
		if d.VersionInfo != "" {
			out = append(out, "version "+d.VersionInfo)
		}
	}
	label := xds.TypeOf(xds.TypeURL(m.GetTypeUrl())).Label()
	out = append([]string{label}, out...)
	if m.GetResponseNonce() != "" {
		out = append(out, "nonce "+m.GetResponseNonce())
	}
	if m.GetErrorDetail() != nil {
		out = append(out, "NACK")
		if m.GetErrorDetail().Code != int32(codes.InvalidArgument) || m.GetErrorDetail().Message == "" {
			t.Fatalf("error_detail %v has no message", m.GetErrorDetail())
		}
	}
	if m.GetNode() == nil {
		out = append(out, "without node")
	}
	return strings.Join(out, " ")
}

// MustUnmarshal fails the test if b is not a valid message.
func MustUnmarshal(t *testing.T, b []byte, m proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
}

// Response is the content of an origin's response, for either variant.
type Response struct {
	Type      xds.TypeURL
	Version   string
	Resources []Resource
	Removed   []string
	Errors    map[string]codes.Code
}

// Resource is a resource of a Response. Its versions differ in Content.
type Resource struct {
	Name, Content string
	Version       string // delta, or SotW in a wrapper
	Wrap          bool   // SotW: in a discovery.v3.Resource
	Heartbeat     bool   // no body
	Aliases       []string
	TTL           time.Duration
	Uncached      bool // do_not_cache
	Any           *anypb.Any
}

// Body is the resource's message.
func (x Resource) Body(t *testing.T, typ xds.TypeURL) *anypb.Any {
	if x.Any != nil {
		return x.Any
	}
	var m proto.Message
	switch typ {
	case xds.ClusterType:
		m = &clusterv3.Cluster{Name: x.Name, AltStatName: x.Content}
	case xds.EndpointType:
		m = &endpointv3.ClusterLoadAssignment{ClusterName: x.Name, Endpoints: []*endpointv3.LocalityLbEndpoints{{Priority: uint32(len(x.Content))}}}
	default:
		a, err := anypb.New(wrapperspb.String(x.Name))
		if err != nil {
			t.Fatal(err)
		}
		a.TypeUrl = string(typ)
		return a
	}
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Encode returns the response message of v.
func (p Response) Encode(t *testing.T, v xds.Variant, nonce string) []byte {
	t.Helper()
	var m proto.Message
	var sotw []*anypb.Any
	var delta []*discoveryv3.Resource
	for _, x := range p.Resources {
		w := &discoveryv3.Resource{Name: x.Name, Version: x.Version, Aliases: x.Aliases}
		if x.TTL > 0 {
			w.Ttl = durationpb.New(x.TTL)
		}
		if x.Uncached {
			w.CacheControl = &discoveryv3.Resource_CacheControl{DoNotCache: true}
		}
		if !x.Heartbeat {
			w.Resource = x.Body(t, p.Type)
		}
		delta = append(delta, w)
		a := w.Resource
		if x.Wrap || x.Heartbeat || x.TTL > 0 || x.Uncached {
			a, _ = anypb.New(w)
		}
		sotw = append(sotw, a)
	}
	var failed []*discoveryv3.ResourceError
	for _, name := range slices.Sorted(maps.Keys(p.Errors)) {
		failed = append(failed, &discoveryv3.ResourceError{
			ResourceName: &discoveryv3.ResourceName{Name: name}, ErrorDetail: &statuspb.Status{Code: int32(p.Errors[name])}})
	}
	if v == xds.Delta {
		m = &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(p.Type), SystemVersionInfo: p.Version, Nonce: nonce, Resources: delta, RemovedResources: p.Removed, ResourceErrors: failed}
	} else {
		m = &discoveryv3.DiscoveryResponse{TypeUrl: string(p.Type), VersionInfo: p.Version, Nonce: nonce, Resources: sotw, ResourceErrors: failed}
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Clusters returns a resource for each name.
func Clusters(names ...string) []Resource {
	var out []Resource
	for _, n := range names {
		out = append(out, Resource{Name: n, Version: "v" + n})
	}
	return out
}

// ResourceOf is a resource as a delta origin sends it.
func ResourceOf(t *testing.T, typ xds.TypeURL, x Resource) *xds.Resource {
	t.Helper()
	r, err := xds.ParseResponse(xds.Delta, Response{Type: typ, Resources: []Resource{x}}.Encode(t, xds.Delta, "1"))
	if err != nil {
		t.Fatal(err)
	}
	return r.Resources[0].Take(xds.TypeOf(typ), nil)
}

// Unknown is a type that the relay does not know.
const Unknown = xds.TypeURL("type.googleapis.com/google.protobuf.StringValue")

// Widget is a resource of an unknown type.
func Widget(t interface{ Fatal(...any) }, name, content string) *xds.Resource {
	field := func(b []byte, num protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
	}
	value := field(field(nil, 1, name), 2, content)
	r, err := xds.NewResource(xds.TypeOf(Unknown), name, field(field(nil, 1, string(Unknown)), 2, string(value)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}
