package xds

import (
	"errors"
	"testing"
	"time"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

// widget is a type that is not in the type table.
const widget TypeURL = "type.googleapis.com/acme.Widget"

// wire encodes a message. fields alternates numbers and values. A value is a string or bytes, or an
// int for a varint.
func wire(fields ...any) []byte {
	var b []byte
	for i := 0; i < len(fields); i += 2 {
		num := protowire.Number(fields[i].(int))
		switch v := fields[i+1].(type) {
		case int:
			b = protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), uint64(v))
		case string:
			b = protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), v)
		case []byte:
			b = protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
		}
	}
	return b
}

func anyWire(url TypeURL, value []byte) []byte { return wire(1, string(url), 2, value) }

// newRes returns a resource of type url with this name. content makes its body unique.
func newRes(t testing.TB, url TypeURL, name, content string) *Resource {
	t.Helper()
	value := wire(1, name)
	if content != "" {
		value = wire(1, name, 99, content)
	}
	r, err := NewResource(TypeOf(url), name, anyWire(url, value))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// takeOnly parses a response with one resource and returns that resource.
func takeOnly(t testing.TB, v Variant, url TypeURL, resource []byte) *Resource {
	t.Helper()
	r, err := ParseResponse(v, wire(4, string(url), 2, resource))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Resources) != 1 || !r.Resources[0].HasBody() {
		t.Fatalf("%d resources", len(r.Resources))
	}
	return r.Resources[0].Take(TypeOf(url), nil)
}

func unmarshal(t testing.TB, b []byte, m proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func fieldsOf(t testing.TB, msg []byte, num protowire.Number) (out [][]byte) {
	t.Helper()
	if err := eachField(msg, func(n protowire.Number, _ protowire.Type, val, _ []byte) error {
		if n == num {
			out = append(out, val)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// resourceMessage returns the Resource that a delta client receives for r.
func resourceMessage(t testing.TB, r *Resource) *discoveryv3.Resource {
	t.Helper()
	m := new(discoveryv3.DeltaDiscoveryResponse)
	unmarshal(t, (&ResponseBody{ResourceFormat: ResourceFormat{Variant: Delta}, Type: r.TypeURL(), Resources: []*Resource{r}}).Encode(), m)
	return m.Resources[0]
}

func someNode() *corev3.Node {
	return &corev3.Node{
		Id: "n1", Cluster: "edge", UserAgentName: "envoy", ClientFeatures: []string{"f1", "f2"},
		Locality: &corev3.Locality{Zone: "z"},
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"k": structpb.NewStringValue("v")}},
	}
}

func params(kv ...string) map[string]*xdscorev3.ContextParams {
	out := map[string]*xdscorev3.ContextParams{}
	for i := 0; i < len(kv); i += 2 {
		out[kv[i]] = &xdscorev3.ContextParams{Params: map[string]string{"p": kv[i+1]}}
	}
	return out
}

// parsedResource returns r as parsed from the response of a delta origin.
func parsedResource(t testing.TB, typ TypeURL, r *discoveryv3.Resource) *ParsedResource {
	t.Helper()
	wire, err := proto.Marshal(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(typ), Nonce: "n", Resources: []*discoveryv3.Resource{r}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseResponse(Delta, wire)
	if err != nil {
		t.Fatal(err)
	}
	return &got.Resources[0]
}

// resourceWithAliases returns a resource with these aliases.
func resourceWithAliases(t testing.TB, typ TypeURL, name, content string, aliases ...string) *Resource {
	t.Helper()
	body := &anypb.Any{TypeUrl: string(typ), Value: wire(1, name, 2, content)}
	return parsedResource(t, typ, &discoveryv3.Resource{Name: name, Aliases: aliases, Resource: body}).Take(TypeOf(typ), nil)
}

// noon is the time at which the tests begin.
var noon = time.Unix(1e9, 250e6)

// timed returns a load assignment with a TTL, received at now.
func timed(t testing.TB, name, content string, ttl time.Duration, now time.Time) *Resource {
	t.Helper()
	return newRes(t, EndpointType, name, content).RenewTTL(ttl, now)
}

// wrappedResource returns an encoded Resource, as both variants can carry it.
func wrappedResource(t testing.TB, name string, ttl *durationpb.Duration) []byte {
	t.Helper()
	m := &discoveryv3.Resource{Name: name, Version: "7", Ttl: ttl}
	if name != "beat" {
		m.Resource = &anypb.Any{TypeUrl: string(widget), Value: wire(1, name)}
	}
	return marshal(t, m)
}
