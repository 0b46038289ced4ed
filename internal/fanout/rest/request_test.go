package rest

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

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
