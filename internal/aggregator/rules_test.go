package aggregator

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/xds"
)

// load reads a configuration with this aggregation section.
func load(t testing.TB, aggregation string) (*config.Config, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "relay.yaml")
	text := "upstream: {origins: [{address: \"a:1\"}]}\naggregation:\n" + aggregation
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg, file
}

func compile(t testing.TB, aggregation string) *Rules {
	t.Helper()
	cfg, _ := load(t, aggregation)
	r, err := Compile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// compileFile compiles a rules file of either kind.
func compileFile(t testing.TB, text string) (*Rules, string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _ := load(t, "  file: "+file+"\n")
	r, err := Compile(cfg)
	return r, file, err
}

var table xds.NodeTable

func node(t testing.TB, json string) *xds.Node {
	t.Helper()
	m := new(corev3.Node)
	if err := protojson.Unmarshal([]byte(json), m); err != nil {
		t.Fatal(err)
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	n, err := table.Intern(raw)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// key is the key as text, or the error.
func key(r *Rules, n *xds.Node, typ xds.TypeURL) string {
	k, err := r.Key(n, expr.Peer{}, typ)
	if err != nil {
		return err.Error()
	}
	return k.String()
}

const edge = `{"id": "gw-1", "cluster": "edge-eu", "locality": {"region": "eu", "zone": "eu-1"},
	"metadata": {"tenant": "a", "shard": 7, "canary": true, "labels": {"app": "x"}}}`

func TestFirstRuleThatMatchesGivesTheKey(t *testing.T) {
	r := compile(t, `
  rules:
    - match: node.cluster.startsWith("edge-")
      types: [EDS, type.googleapis.com/my.Type]
      key: [node.cluster, node.locality.zone]
    - match: node.metadata.canary
      key: '"canary"'
    - match: node.cluster == "batch"
      key: [node.metadata.tenant, string(node.metadata.shard)]
    - types: [LDS]
      key: node.id
`)
	for _, c := range []struct {
		node string
		typ  xds.TypeURL
		want string
	}{
		{edge, xds.EndpointType, "edge-eu/eu-1"},
		{edge, "type.googleapis.com/my.Type", "edge-eu/eu-1"},
		{edge, xds.ClusterType, "canary"},
		{`{"id": "x", "cluster": "batch", "metadata": {"tenant": "a", "shard": 7, "canary": false}}`, xds.EndpointType, "a/7"},
		// no metadata: the second rule's match is an error, and so no match
		{`{"id": "x", "cluster": "web"}`, xds.ListenerType, "x"},
	} {
		if got := key(r, node(t, c.node), c.typ); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.node, c.typ, got, c.want)
		}
	}
}

func TestDefaultRule(t *testing.T) {
	if got := key(compile(t, "  rules: []\n"), node(t, edge), xds.ClusterType); got != "edge-eu" {
		t.Error(got)
	}
}

// The error for a node without a key has the rules that were tried.
func TestP5_UnmatchedListsTheRulesTried(t *testing.T) {
	r := compile(t, `
  rules:
    - {match: node.cluster == "a", key: node.id}
    - {types: [EDS], key: node.id}
    - {match: node.metadata.tenant == "x", key: node.id}
`)
	_, err := r.Key(node(t, `{"id": "n", "cluster": "b"}`), expr.Peer{}, xds.ClusterType)
	var e *Error
	if !errors.As(err, &e) || e.Reason != Unmatched || e.Reason.String() != "unmatched" {
		t.Fatalf("%v", err)
	}
	want := "no aggregation rule matches this node; tried: aggregation.rules[0]: no match; " +
		"aggregation.rules[1]: not for this type; aggregation.rules[2]: no match, since its match failed: no such key: tenant"
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	if got := r.Stats()[2]; got.Errors != 1 || got.Matches != 0 || got.Rule != "aggregation.rules[2]" || got.Place.Line != 7 {
		t.Errorf("the error in match is not counted: %+v", got)
	}
}

// A rule counts as failing until an hour after the last client for which its match failed. A client
// with a cached key counts too.
func TestRulesWithErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := compile(t, "  rules: [{match: node.metadata.tenant == \"x\", key: node.id}, {key: node.id}]\n")
		n := node(t, `{"id": "fails"}`)
		failing := func(want int) {
			t.Helper()
			if got := r.WithErrors(); got != want {
				t.Errorf("%d rules with errors, want %d", got, want)
			}
		}
		ask := func(n *xds.Node) {
			if _, err := r.Key(n, expr.Peer{}, xds.ClusterType); err != nil {
				t.Fatal(err)
			}
		}
		failing(0)
		ask(n)
		failing(1)
		time.Sleep(30 * time.Minute)
		ask(n)
		time.Sleep(time.Hour - time.Nanosecond)
		ask(node(t, `{"id": "other", "metadata": {"tenant": "y"}}`))
		failing(1)
		time.Sleep(time.Nanosecond)
		failing(0)
		ask(n)
		failing(1)
		if s := r.Stats()[0]; s.Errors != 1 {
			t.Errorf("%d errors: a cached key counts again", s.Errors)
		}
	})
}

// The text of a gRPC status is bounded. A list is shortened by at least two rules.
func TestP5_LongListsAreCut(t *testing.T) {
	for n, want := range map[int]string{500: "; and 480 more", 22: "; and 2 more", 21: "; aggregation.rules[20]: no match"} {
		rules := "  rules:\n" + strings.Repeat("    - {match: 'node.cluster == \"a\"', key: node.id}\n", n)
		if got := key(compile(t, rules), node(t, edge), xds.ClusterType); len(got) > 4096 || !strings.HasSuffix(got, want) {
			t.Error(got)
		}
	}
}

// An error or an empty value in a key refuses the node, whatever later rules and unmatched are.
func TestP5_KeyThatFailsRefuses(t *testing.T) {
	for _, unmatched := range []string{"reject", "node"} {
		for _, c := range []struct{ rule, want string }{
			{`node.locality.sub_zone`, "key[0]: the value is empty"},
			{`[node.cluster, node.locality.sub_zone]`, "key[1]: the value is empty"},
			{`node.metadata.none`, "key[0]: no such key: none"},
			{`[node.id, node.metadata.shard]`, "key[1]: must give string, but gives double; use string()"},
		} {
			r := compile(t, "  unmatched: "+unmatched+"\n  rules:\n    - key: "+c.rule+"\n    - key: node.id\n")
			_, err := r.Key(node(t, edge), expr.Peer{}, xds.ClusterType)
			var e *Error
			if !errors.As(err, &e) || e.Reason != Failed || e.Reason.String() != "key_failed" {
				t.Fatalf("%s: %v", c.rule, err)
			}
			want := "the aggregation rule that matches this node gives no key; tried: aggregation.rules[0]: match, but its key failed: " + c.want
			if err.Error() != want {
				t.Errorf("got  %s\nwant %s", err, want)
			}
		}
	}
}

func TestUnmatchedNodeGetsAKeyOfItsOwn(t *testing.T) {
	r := compile(t, "  unmatched: node\n  rules: [{match: node.cluster == \"shared\", key: node.metadata.k}]\n")
	get := func(json string) xds.Key {
		t.Helper()
		k, err := r.Key(node(t, json), expr.Peer{}, xds.ClusterType)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	a := get(`{"id": "n", "cluster": "a"}`)
	if a == get(`{"id": "n", "cluster": "b"}`) || a == get(`{"id": "m", "cluster": "a"}`) || get(`{"cluster": "a"}`) == get(`{"cluster": "b"}`) {
		t.Error("two nodes have one key")
	}
	if a != get(`{"id": "n", "cluster": "a", "dynamic_parameters": {"x": {}}}`) {
		t.Error("a node's dynamic parameters change its key")
	}
	if got := a.Elements(); len(got) != 3 || got[0] != "" || got[1] != "n" {
		t.Errorf("%q", got)
	}
	// No rule can give a node's own key: its first element is empty, and an element of a rule never
	// is.
	if _, err := r.Key(node(t, `{"cluster": "shared", "metadata": {"k": ""}}`), expr.Peer{}, ""); err == nil {
		t.Error("a rule gave an empty element")
	}
	// A map encoded in another order is the same node.
	m := &corev3.Node{Id: "n"}
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	entry := func(k string) []byte { // metadata {fields {key: k, value: null}}
		return []byte{0x0a, 7, 0x0a, 1, k[0], 0x12, 2, 0x08, 0}
	}
	one := append(slices.Clone(raw), append([]byte{0x1a, 18}, append(entry("p"), entry("q")...)...)...)
	two := append(slices.Clone(raw), append([]byte{0x1a, 18}, append(entry("q"), entry("p")...)...)...)
	n1, err1 := table.Intern(one)
	n2, err2 := table.Intern(two)
	if err1 != nil || err2 != nil || n1 == n2 {
		t.Fatal(err1, err2)
	}
	k1, err1 := r.Key(n1, expr.Peer{}, "")
	k2, err2 := r.Key(n2, expr.Peer{}, "")
	if err1 != nil || err2 != nil || k1 != k2 || k1 == a {
		t.Errorf("%v %v, %v %v", k1, err1, k2, err2)
	}
}

func TestKeysAreBounded(t *testing.T) {
	for _, rules := range []string{"  rules: [{key: node.id}]\n", "  unmatched: node\n  rules: [{match: 'false', key: node.id}]\n"} {
		of := func(size int) error {
			id := node(t, fmt.Sprintf(`{"id": %q, "cluster": "c"}`, strings.Repeat("x", size)))
			_, err := compile(t, rules).Key(id, expr.Peer{}, "")
			return err
		}
		if err := of(maxKey); err != nil {
			t.Errorf("%.200s", err)
		}
		var e *Error
		if err := of(maxKey + 1); !errors.As(err, &e) || e.Reason != Failed || !strings.Contains(err.Error(), "4097") || len(err.Error()) > 200 {
			t.Errorf("%.200s", err)
		}
	}
}

// The cache keeps no node alive, and has no entries of collected nodes.
func TestRememberingHoldsNoNode(t *testing.T) {
	r := compile(t, "  rules: [{key: node.id}]\n")
	var own xds.NodeTable
	for i := range 50 {
		n, err := own.Intern(fmt.Appendf(nil, "\x0a\x02%02d", i))
		if err != nil {
			t.Fatal(err)
		}
		if got := key(r, n, ""); got != fmt.Sprintf("%02d", i) {
			t.Fatal(got)
		}
	}
	for range 100 {
		if own.Len()+r.keys.Len() == 0 {
			return
		}
		runtime.GC()
		runtime.Gosched() // the cleanup of a node runs after it
	}
	t.Errorf("%d nodes and %d keys are held", own.Len(), r.keys.Len())
}

// A key is computed once for the same input.
func TestKeysAreRemembered(t *testing.T) {
	peers := []expr.Peer{{Address: "a"}, {Address: "b"}, {URISANs: []string{"a"}}, {DNSSANs: []string{"a"}}, {Subject: "a"}}
	// The cache does not keep nodes alive; a new node is computed again.
	nodes := []*xds.Node{node(t, edge), node(t, `{"id": "n", "cluster": "c", "metadata": {"tenant": "t"}}`)}
	types := []xds.TypeURL{xds.ClusterType, xds.EndpointType, "type.googleapis.com/x"}
	for _, c := range []struct {
		name, rules      string
		perType, perPeer bool
		want             uint64
	}{
		{name: "node only", rules: "  rules: [{key: node.id}]\n", want: 2},
		{name: "types", rules: "  rules: [{types: [CDS], key: node.id}, {key: node.id}]\n", perType: true, want: 2 * 3},
		{name: "type in match", rules: "  rules: [{match: type == \"x\", key: node.id}, {key: node.id}]\n", perType: true, want: 2 * 3},
		{name: "type in key", rules: "  rules: [{key: [node.id, type]}]\n", perType: true, want: 2 * 3},
		{name: "peer in match", rules: "  rules: [{match: peer.subject == \"x\", key: node.id}, {key: node.id}]\n", perPeer: true, want: 2 * 5},
		{name: "peer in key", rules: "  rules: [{key: [node.id, 'peer.address + \"!\"']}]\n", perPeer: true, want: 2 * 5},
	} {
		r := compile(t, c.rules)
		for range 3 {
			for _, n := range nodes {
				for _, typ := range types {
					for _, p := range peers {
						if _, err := r.Key(n, p, typ); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		}
		var computed uint64
		for _, s := range r.Stats() {
			computed += s.Matches
		}
		if computed != c.want || r.UsesType() != c.perType || r.UsesPeer() != c.perPeer {
			t.Errorf("%s: computed %d keys, want %d; type %v, peer %v", c.name, computed, c.want, r.UsesType(), r.UsesPeer())
		}
	}
}

func TestPeersDigest(t *testing.T) {
	for _, c := range [][2]expr.Peer{
		{{Address: "a", Subject: "b"}, {Address: "ab"}},
		{{URISANs: []string{"a", "b"}}, {URISANs: []string{"a"}, DNSSANs: []string{"b"}}},
		{{URISANs: []string{"ab"}}, {URISANs: []string{"a", "b"}}},
		{{URISANs: []string{""}}, {}},
	} {
		if digest(c[0]) == digest(c[1]) {
			t.Errorf("%+v is %+v", c[0], c[1])
		}
	}
	if digest(expr.Peer{URISANs: []string{}}) != digest(expr.Peer{}) {
		t.Error("no names are two things")
	}
}

func TestFaultsPointIntoTheFile(t *testing.T) {
	cfg, file := load(t, `
  rules:
    - match: node.clutser == "a"
      types: [EDS, XDS]
      key: node.id
    - match: |
        node.cluster == "a" &&
          nope
      key: [node.id, "node.cluster + 1"]
    - key: node.locality
`)
	_, err := Compile(cfg)
	want := []string{
		file + ":5:18: aggregation.rules[0].match: undefined field 'clutser'; did you mean cluster?",
		file + `:6:20: aggregation.rules[0].types[1]: "XDS" is not a resource type; must be a type URL, or one of CDS EDS LDS SRDS RDS VHDS SDS RTDS ECDS`,
		file + ":10:11: aggregation.rules[1].match: undeclared reference to 'nope'; did you mean node?",
		file + ":11:36: aggregation.rules[1].key[1]: found no matching overload for '_+_' applied to '(string, int)'",
		file + ":12:12: aggregation.rules[2].key[0]: must give string, but gives envoy.config.core.v3.Locality",
	}
	if err == nil || err.Error() != strings.Join(want, "\n") {
		t.Errorf("got\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
}

func TestRulesFile(t *testing.T) {
	for name, text := range map[string]string{
		"list":  "- {match: node.cluster == \"x\", key: node.id}\n- key: [node.cluster, node.id]\n",
		"rules": "rules:\n- {match: node.cluster == \"x\", key: node.id}\n- key: [node.cluster, node.id]\n",
	} {
		r, _, err := compileFile(t, text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := key(r, node(t, edge), ""); got != "edge-eu/gw-1" {
			t.Errorf("%s: %s", name, got)
		}
	}
	for name, c := range map[string]struct{ text, want string }{
		"empty":        {"", ":1:1: has no rules; must be a list of rules, or an xds-relay KeyerConfiguration (fragments:)"},
		"no rules":     {"rules: []\n", ":1:1: has no rules; must be a list of rules, or an xds-relay KeyerConfiguration (fragments:)"},
		"unknown":      {"- {kye: node.id}\n", ":1:4: rules[0].kye: unknown key; did you mean key?"},
		"no key":       {"- {match: 'true'}\n", ":1:3: rules[0].key: is missing; must be an expression or a list of expressions"},
		"expression":   {"- key: node.id\n- key: [node.id, nope]\n", ":2:18: rules[1].key[1]: undeclared reference to 'nope'; a text has quotes of its own: \"'nope'\""},
		"syntax":       {"- [\n", ":1: a value is missing, or a [ or { is not closed (did not find expected node content)"},
		"another kind": {"listeners: []\n", ":1:1: listeners: unknown key"},
		"a text":       {"hello\n", ":1:1: must be a mapping, but is the string \"hello\""},
	} {
		_, file, err := compileFile(t, c.text)
		if err == nil || err.Error() != file+c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg, file := load(t, "  file: none.yaml\n")
	if _, err := Compile(cfg); err == nil || !strings.HasPrefix(err.Error(), file+":3:9: aggregation.file: open ") {
		t.Errorf("%v", err)
	}
}

func TestConcurrentUse(t *testing.T) {
	r := compile(t, "  rules: [{key: [node.cluster, node.metadata.tenant]}]\n")
	n := node(t, edge)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if got := key(r, n, xds.ClusterType); got != "edge-eu/a" {
					t.Error(got)
					return
				}
			}
		})
	}
	wg.Wait()
}

// All rules of a node share the variables and one goroutine. A rule costs about 14 allocations.
func TestWorkOfManyRules(t *testing.T) {
	r, n := manyRules(t, `node.cluster.matches("^team-%d-[a-z]+$")`), node(t, edge)
	if got := testing.AllocsPerRun(10, func() { r.answer(n, expr.Peer{}, xds.ClusterType) }) / rulesOfMany; got > 17 {
		t.Errorf("%v allocations for each rule", got)
	}
}

const rulesOfMany = 200

// manyRules are rules with these matches, of which none matches edge.
func manyRules(t testing.TB, match string) *Rules {
	var text strings.Builder
	for i := range rulesOfMany {
		fmt.Fprintf(&text, "- {match: '"+match+"', key: node.id}\n", i)
	}
	r, _, err := compileFile(t, text.String())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The time for a node that comes for the first time, with 200 rules.
func BenchmarkManyRules(b *testing.B) {
	for name, match := range map[string]string{"equal": `node.cluster == "team-%d"`, "matches": `node.cluster.matches("^team-%d-[a-z]+$")`} {
		b.Run(name, func(b *testing.B) {
			r, n := manyRules(b, match), node(b, edge)
			b.ReportAllocs()
			for b.Loop() {
				r.answer(n, expr.Peer{}, xds.ClusterType)
			}
		})
	}
}

func BenchmarkKey(b *testing.B) {
	r := compile(b, "  rules: [{key: [node.cluster, node.metadata.tenant]}]\n")
	n := node(b, edge)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Key(n, expr.Peer{}, xds.ClusterType); err != nil {
			b.Fatal(err)
		}
	}
}
