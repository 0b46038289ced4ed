package grpcadmin

import (
	"fmt"
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

func value(path, matcher string) string {
	return `{"node_metadatas":[{"path":[{"key":"` + strings.ReplaceAll(path, ".", `"},{"key":"`) + `"}],"value":` + matcher + `}]}`
}

func TestNodeMatchers(t *testing.T) {
	n := nodeNamed("Edge-1.eu", map[string]any{
		"ns": "Prod", "n": 4.5, "yes": true, "nothing": nil, "list": []any{"m", 2.0}, "app": map[string]any{"name": "web", "x": map[string]any{}},
	})
	wire := xdstest.Must(proto.Marshal(n))(t)
	var table xds.NodeTable
	node := xdstest.Must(table.Intern(wire))(t)
	for text, want := range map[string]bool{
		`{}`:                                true,
		`{"node_id":{"exact":"Edge-1.eu"}}`: true,
		`{"node_id":{"exact":"edge-1.eu"}}`: false,
		`{"node_id":{"exact":"edge-1.EU","ignore_case":true}}`:                               true,
		`{"node_id":{"prefix":"Edge-"}}`:                                                     true,
		`{"node_id":{"prefix":"edge-","ignore_case":true}}`:                                  true,
		`{"node_id":{"prefix":"dge"}}`:                                                       false,
		`{"node_id":{"suffix":".eu"}}`:                                                       true,
		`{"node_id":{"suffix":"Edge"}}`:                                                      false,
		`{"node_id":{"contains":"-1."}}`:                                                     true,
		`{"node_id":{"contains":"-2."}}`:                                                     false,
		`{"node_id":{"safe_regex":{"regex":"Edge-[0-9]\\.eu"}}}`:                             true,
		`{"node_id":{"safe_regex":{"regex":"Edge"}}}`:                                        false, // anchored
		`{"node_id":{"safe_regex":{"regex":"x|Edge-1.eu"}}}`:                                 true,
		`{"node_id":{"safe_regex":{"regex":"Edge-1.eu|x"}}}`:                                 true,
		`{"node_id":{"safe_regex":{"regex":"edge.*"},"ignore_case":true}}`:                   false,
		value("ns", `{"string_match":{"exact":"Prod"}}`):                                     true,
		value("ns", `{"string_match":{"exact":"Test"}}`):                                     false,
		value("n", `{"string_match":{"prefix":""}}`):                                         false,
		value("yes", `{"bool_match":true}`):                                                  true,
		value("yes", `{"bool_match":false}`):                                                 false,
		value("absent", `{"bool_match":false}`):                                              false,
		value("app.name", `{"string_match":{"exact":"web"}}`):                                true,
		value("app.x.y", `{"string_match":{"contains":""}}`):                                 false,
		value("ns.x.y", `{"string_match":{"contains":""}}`):                                  false,
		`{"node_id":{"exact":"other"},` + value("ns", `{"string_match":{"prefix":"P"}}`)[1:]: false, // both
		`{"node_id":{"prefix":"E"},` + value("ns", `{"string_match":{"prefix":"P"}}`)[1:]:    true,
		`{"node_metadatas":[{"path":[{"key":"ns"}],"value":{"string_match":{"prefix":""}}},{"path":[{"key":"z"}],"value":{"string_match":{"prefix":""}}}]}`: false, // all
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
		`{"node_id":{}}`:                           "node_matchers[0].node_id: must be exact, prefix, suffix, contains or safe_regex",
		`{"node_id":{"custom":{"name":"x"}}}`:      "node_matchers[0].node_id: custom: not supported",
		`{"node_id":{"safe_regex":{"regex":"("}}}`: "node_matchers[0].node_id: safe_regex: ",
		`{"node_id":{"safe_regex":{"regex":"` + strings.Repeat("x", 1025) + `"}}}`: "safe_regex: must have at most 1024 bytes",
		`{"node_metadatas":[{"value":{"bool_match":true}}]}`:                       "node_matchers[0].node_metadatas[0]: path: must have 1 to 16 keys",
		`{"node_metadatas":[{"path":[{}],"value":{"bool_match":true}}]}`:           "path: each segment must be a key",
		value("a", `{}`):                     "node_metadatas[0]: value: must be string_match",
		value("a", `{"string_match":{}}`):    "value: string_match: must be exact",
		value("a", `{"present_match":true}`): "value: must be string_match or bool_match",
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
	for i, m := range []proto.Message{
		new(matcherv3.NodeMatcher), new(matcherv3.StringMatcher), new(matcherv3.StructMatcher), new(matcherv3.ValueMatcher),
	} {
		m.ProtoReflect().SetUnknown(later)
		n := new(matcherv3.NodeMatcher)
		switch m := m.(type) {
		case *matcherv3.NodeMatcher:
			n = m
		case *matcherv3.StringMatcher:
			m.MatchPattern, n.NodeId = &matcherv3.StringMatcher_Exact{Exact: "x"}, m
		case *matcherv3.StructMatcher:
			n.NodeMetadatas = []*matcherv3.StructMatcher{m}
		case *matcherv3.ValueMatcher:
			m.MatchPattern = &matcherv3.ValueMatcher_BoolMatch{}
			n = matching(t, value("a", `{"bool_match":true}`))
			n.NodeMetadatas[0].Value = m
		}
		if _, err := newSelection([]*matcherv3.NodeMatcher{n}); err == nil || !strings.Contains(fmt.Sprint(err), "unknown field") {
			t.Errorf("%d: %v", i, err)
		}
	}
}
