package grpcadmin

import (
	"strings"
	"testing"

	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// matching reads matchers from JSON.
func matching(t *testing.T, text string) *matcherv3.NodeMatcher {
	t.Helper()
	m := new(matcherv3.NodeMatcher)
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

func TestNodeMatchers(t *testing.T) {
	n := nodeNamed("Edge-1.eu", nil)
	wire := xdstest.Must(proto.Marshal(n))(t)
	var table xds.NodeTable
	node := xdstest.Must(table.Intern(wire))(t)
	for text, want := range map[string]bool{
		`{}`:                                true,
		`{"node_id":{"exact":"Edge-1.eu"}}`: true,
		`{"node_id":{"exact":"edge-1.eu"}}`: false,
		`{"node_id":{"exact":"edge-1.EU","ignore_case":true}}`:             true,
		`{"node_id":{"prefix":"Edge-"}}`:                                   true,
		`{"node_id":{"prefix":"edge-","ignore_case":true}}`:                true,
		`{"node_id":{"prefix":"dge"}}`:                                     false,
		`{"node_id":{"suffix":".eu"}}`:                                     true,
		`{"node_id":{"suffix":"Edge"}}`:                                    false,
		`{"node_id":{"contains":"-1."}}`:                                   true,
		`{"node_id":{"contains":"-2."}}`:                                   false,
		`{"node_id":{"safe_regex":{"regex":"Edge-[0-9]\\.eu"}}}`:           true,
		`{"node_id":{"safe_regex":{"regex":"Edge"}}}`:                      false, // anchored
		`{"node_id":{"safe_regex":{"regex":"x|Edge-1.eu"}}}`:               true,
		`{"node_id":{"safe_regex":{"regex":"Edge-1.eu|x"}}}`:               true,
		`{"node_id":{"safe_regex":{"regex":"edge.*"},"ignore_case":true}}`: false,
	} {
		s, err := newSelection([]*matcherv3.NodeMatcher{matching(t, text)})
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if s.has(node) != want {
			t.Errorf("%s: %t", text, !want)
		}
	}
	// One of several.
	s, err := newSelection([]*matcherv3.NodeMatcher{matching(t, `{"node_id":{"exact":"x"}}`), matching(t, `{"node_id":{"prefix":"E"}}`)})
	if err != nil || !s.has(node) {
		t.Errorf("the second holds: %v", err)
	}
	if s, err = newSelection(nil); err != nil || !s.has(node) {
		t.Errorf("none: %v", err)
	}
}

// Unknown and unbounded matchers are refused with their place.
func TestNodeMatchersAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"node_id":{}}`: "node_matchers[0].node_id: must be exact, prefix, suffix, contains or safe_regex",
		`{"node_metadatas":[{"path":[{"key":"a"}],"value":{"bool_match":true}}]}`:  "node_matchers[0].node_metadatas: not supported",
		`{"node_id":{"custom":{"name":"x"}}}`:                                      "node_matchers[0].node_id: custom: not supported",
		`{"node_id":{"safe_regex":{"regex":"("}}}`:                                 "node_matchers[0].node_id: safe_regex: ",
		`{"node_id":{"safe_regex":{"regex":"` + strings.Repeat("x", 1025) + `"}}}`: "safe_regex: must have at most 1024 bytes",
	} {
		if _, err := newSelection([]*matcherv3.NodeMatcher{matching(t, text)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := newSelection(make([]*matcherv3.NodeMatcher, maxMatchers+1)); err == nil {
		t.Error("as many as one likes")
	}
	// A field of a later version of the protos.
	later := protowire.AppendBytes(protowire.AppendTag(nil, 1000, protowire.BytesType), nil)
	in, id := new(matcherv3.NodeMatcher), matching(t, `{"node_id":{"exact":"x"}}`)
	in.ProtoReflect().SetUnknown(later)
	id.NodeId.ProtoReflect().SetUnknown(later)
	for _, n := range []*matcherv3.NodeMatcher{in, id} {
		if _, err := newSelection([]*matcherv3.NodeMatcher{n}); err == nil || !strings.Contains(err.Error(), "unknown field") {
			t.Errorf("%v: %v", n, err)
		}
	}
}
