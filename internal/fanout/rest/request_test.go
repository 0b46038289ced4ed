package rest

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// Whatever a poll is read as, it stays as it is when it is written and read
// again, in both spellings; it never has more values than were counted, and is
// the same on the wire each time: nodes are told apart by their bytes.
func FuzzRESTRequest(f *testing.F) {
	for _, seed := range restSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		wire, err := decodePoll(body, 1<<16)
		if err != nil {
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q is no JSON", body)
		}
		m := new(discoveryv3.DiscoveryRequest)
		xdstest.NoError(t, proto.Unmarshal(wire, m))
		if n := len(m.ResourceNames); n > countValues(body) {
			t.Fatalf("%d names, %d values were counted", n, countValues(body))
		}
		var r xds.Request
		if err := r.Scan(xds.SotW, wire, 0); err != nil && !strings.Contains(err.Error(), "longer than") {
			t.Fatalf("its wire form cannot be scanned: %v", err)
		}
		if m.ErrorDetail != nil {
			m.ErrorDetail.Details = nil // of types that are linked nowhere
		}
		for _, how := range []protojson.MarshalOptions{{}, {UseProtoNames: true}} {
			again := xdstest.Must(how.Marshal(m))(t)
			back, err := decodePoll(again, 1<<20)
			if err != nil {
				t.Fatalf("%s: %v", again, err)
			}
			if want, err := (proto.MarshalOptions{Deterministic: true}).Marshal(m); err != nil || !bytes.Equal(back, want) {
				t.Fatalf("%s: %x, want %x, %v", again, back, want, err)
			}
		}
	})
}

var restSeeds = []string{
	`{}`,
	`{"version_info": "1", "node": {"id": "n", "cluster": "c", "metadata": {"a": [1, null, {"b": "\u00e9"}]}}, "resource_names": ["a", "b"], "type_url": "t"}`,
	`{"versionInfo": "1", "node": {"userAgentBuildVersion": {"version": {"majorNumber": 1}}}, "resourceNames": [], "responseNonce": "x"}`,
	`{"error_detail": {"code": 3, "message": "no", "details": [{"@type": "acme.com/X", "y": {}}]}}`,
	`{"resource_locators": [{"name": "x", "dynamic_parameters": {"a": "b"}}]}`,
	`{"later": [{"x": "\"],"}], "node": {"later": null, "extensions": [{"name": "e"}]}}`,
	`{"resource_names": ["\ud83d\ude00", "\ud800"]}`,
	`{"resource_names": ["a",]}`,
	`[[[[[[[[`,
	`{"node": {"dynamic_parameters": {"x": {"params": {"a": "b"}}}}, "node": {}}`,
}

// The count is an upper bound of the values, also with brackets and commas in strings.
func TestP72_ValuesAreCounted(t *testing.T) {
	for text, want := range map[string]int{
		``:                         1,
		`{}`:                       2,
		`[1, 2, 3]`:                4,
		`{"a": [{}, {}], "b": 1}`:  7,
		`["a,b", "[{,", "\",[{"]`:  4,
		`["\\", "a", "\\\"[[["]`:   4,
		`["never ended, [[[[[`:     2,
		`["ends with a backslash\`: 2,
	} {
		if n := countValues([]byte(text)); n != want {
			t.Errorf("%s: %d values, want %d", text, n, want)
		}
	}
}

// Whatever an origin sends as a resource's body is given to polls as valid JSON,
// or refused with an error (P70).
func FuzzRESTDocument(f *testing.F) {
	urls := []xds.TypeURL{xds.ClusterType, xds.ListenerType, xds.EndpointType, xds.RouteType, xds.SecretType, xds.RuntimeType, "t/of.nobody"}
	seed := func(of uint8, m proto.Message) {
		b := xdstest.Must(proto.Marshal(m))(f)
		f.Add(of, b)
	}
	seed(0, &clusterv3.Cluster{Name: "c", AltStatName: "\u2028\"\\"})
	filter := xdstest.Must(anypb.New(&listenerv3.Listener{Name: "inner"}))(f)
	seed(1, &listenerv3.Listener{Name: "l", ListenerFilters: []*listenerv3.ListenerFilter{{Name: "f", ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: filter}}}})
	seed(1, &listenerv3.Listener{ListenerFilters: []*listenerv3.ListenerFilter{{ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: &anypb.Any{TypeUrl: "t/of.nobody", Value: []byte("x")}}}}})
	f.Add(uint8(0), protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "not \xff text"))
	f.Add(uint8(0), protowire.AppendString(protowire.AppendTag(nil, 60000, protowire.BytesType), "a field that nobody knows"))
	f.Add(uint8(5), []byte{0x12, 0x02, 0x0a, 0x00})                                                 // a struct without values
	f.Add(uint8(5), append([]byte{0x12, 0x12, 0x0a, 0x10, 0x0a, 0x01, 'k', 0x12, 0x0b, 0x11, 0, 0}, // a number that is none
		0, 0, 0, 0, 0xf8, 0x7f, 0, 0))
	f.Add(uint8(6), []byte("x"))
	f.Add(uint8(2), []byte{0xff})
	f.Fuzz(func(t *testing.T, of uint8, value []byte) {
		url := urls[int(of)%len(urls)]
		wire := xdstest.Must(proto.Marshal(&anypb.Any{TypeUrl: string(url), Value: value}))(t)
		r, err := xds.NewResource(xds.TypeOf(url), "name", wire)
		if err != nil {
			return
		}
		const head = `{"resources":[`
		b, whole, err := appendJSON([]byte(head), r)
		if err != nil {
			return
		}
		if b = append(b, "]}"...); !json.Valid(b) {
			t.Fatalf("of %s %x comes %q, whole: %v", url, value, b, whole)
		}
	})
}
