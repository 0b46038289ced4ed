package expr

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

func node(t testing.TB, json string) *corev3.Node {
	t.Helper()
	n := new(corev3.Node)
	if err := protojson.Unmarshal([]byte(json), n); err != nil {
		t.Fatal(err)
	}
	return n
}

const edge = `{"id": "router~10.0.0.1~gw-1.edge", "cluster": "edge-eu", "locality": {"region": "eu", "zone": "eu-1"},
	"metadata": {"tenant": "a", "shard": 7, "canary": true, "labels": {"app": "x", "a-b": "y"}, "list": ["p", "q"]}}`

var peer = Peer{Address: "10.0.0.1:5", URISANs: []string{"spiffe://x/gw-1", "spiffe://x/gw-2"}, DNSSANs: []string{"gw"}, Subject: "CN=gw"}

func TestMatch(t *testing.T) {
	in := Input{Node: node(t, edge), Type: "type.googleapis.com/envoy.config.cluster.v3.Cluster", Peer: peer}
	for _, c := range []struct {
		text string
		want bool
		err  string
	}{
		{text: `true`, want: true},
		{text: `node.cluster.startsWith("edge-")`, want: true},
		{text: `node.cluster == "edge-us"`},
		{text: `node.locality.zone.matches("^eu-[0-9]$")`, want: true},
		{text: `node.locality.sub_zone == ""`, want: true},
		{text: `node.metadata.tenant == "a"`, want: true},
		{text: `node.metadata["labels"]["a-b"] == "y"`, want: true},
		{text: `node.metadata.canary`, want: true},
		{text: `node.metadata.shard == 7`, want: true},
		{text: `node.metadata.list.exists(x, x == "q")`, want: true},
		{text: `node.metadata.list == ["p", "q"] && node.metadata.labels == {"app": "x", "a-b": "y"}`, want: true},
		{text: `"%s".format([node.metadata.list]) == "[p, q]"`, want: true},
		{text: `[{"metadata": {"tenant": "b"}}].exists(node, node.metadata.tenant == "b")`, want: true}, // not the variable
		{text: `has(node.metadata) && dyn(node).metadata.tenant == .node.metadata.tenant`, want: true},
		{text: `has(node.metadata.none)`},
		{text: `has(node.metadata.labels.app)`, want: true},
		{text: `node.metadata.none == "a"`, err: "no such key"},
		{text: `node.metadata.tenant`, err: "must give bool"},
		{text: `node.metadata.tenant > 5`, err: "no such overload"},
		{text: `type.endsWith(".Cluster")`, want: true},
		{text: `"spiffe://x/gw-2" in peer.uri_sans && peer.dns_sans.size() == 1 && peer.subject == "CN=gw"`, want: true},
		{text: `peer.address.startsWith("10.")`, want: true},
		{text: `node.id.split("~")[0] == "router"`, want: true},
	} {
		p, err := NewMatch(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		got, err := p.Eval(in)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, %v", c.text, got, err)
		}
	}
}

// A node without metadata, and a missing node, behave like an empty one.
func TestEmptyNode(t *testing.T) {
	for _, n := range []*corev3.Node{nil, {}, {Id: "x"}} {
		p, err := NewMatch(`has(node.metadata.tenant)`)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.Eval(Input{Node: n}); got || err != nil {
			t.Errorf("%v: %v, %v", n, got, err)
		}
		if p, err = NewMatch(`node.metadata.tenant == "a"`); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Eval(Input{Node: n}); err == nil {
			t.Errorf("%v: metadata that is not there has a value", n)
		}
		if p, err = NewMatch(`node.locality.zone == "" && peer.uri_sans.size() == 0`); err != nil {
			t.Fatal(err)
		}
		if got, err := p.Eval(Input{Node: n}); !got || err != nil {
			t.Errorf("%v: %v, %v", n, got, err)
		}
	}
}

func TestKey(t *testing.T) {
	in := Input{Node: node(t, edge), Type: "T", Peer: peer}
	for _, c := range []struct{ text, want, err string }{
		{text: `node.cluster`, want: "edge-eu"},
		{text: `node.metadata.tenant`, want: "a"},
		{text: `string(node.metadata.shard)`, want: "7"},
		{text: `node.metadata.shard`, err: "must give string, but gives double; use string()"},
		{text: `node.metadata.none`, err: "no such key"},
		{text: `node.locality.sub_zone`, want: ""},
		{text: `peer.uri_sans[0]`, want: "spiffe://x/gw-1"},
		{text: `peer.uri_sans[5]`, err: "index out of bounds"},
		{text: `node.id.split("~")[2].lowerAscii()`, want: "gw-1.edge"},
		{text: `has(node.metadata.none) ? node.metadata.none : "default"`, want: "default"},
		{text: `type`, want: "T"},
	} {
		p, err := NewKey(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		got, err := p.Eval(in)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v", c.text, got, err)
		}
	}
}

func TestErrorsHavePlaces(t *testing.T) {
	match := func(s string) error { _, err := NewMatch(s); return err }
	identity := func(s string) error { _, err := NewIdentity(s); return err }
	key := func(s string) error { _, err := NewKey(s); return err }
	upstream := func(s string) error { _, err := NewNode(s); return err }
	for _, c := range []struct {
		compile      func(string) error
		text         string
		line, column int
		message      string
	}{
		{match, `node.clutser == "a"`, 1, 5, "undefined field 'clutser'"},
		{match, "true &&\n  nobody.cluster == \"a\"", 2, 3, "undeclared reference to 'nobody'"},
		{match, `node.cluster ==`, 1, 16, "Syntax error: a value is missing before the end"},
		{match, `node.cluster == && true`, 1, 17, "Syntax error: a value is missing before &&"},
		{match, `node.cluster == "x" and true`, 1, 21, "Syntax error: an operator such as && is missing before and"},
		{match, `node.cluster = "x"`, 1, 14, "Syntax error: write == to compare"},
		{match, `node.cluser == "x"`, 1, 5, "undefined field 'cluser'; did you mean cluster?"},
		{match, `node.locality.zon == "x"`, 1, 14, "undefined field 'zon'; did you mean zone?"},
		{match, `node.id.startWith("x")`, 1, 18, "undeclared reference to 'startWith'; did you mean startsWith?"},
		{match, `node.xyzzy == "x"`, 1, 5, "undefined field 'xyzzy'"},
		{match, `node.cluster`, 1, 1, "must give bool, but gives string"},
		{match, ``, 1, 1, "Syntax error"},
		{match, `node.cluster.matches("[")`, 1, 22, "error parsing regexp: missing closing ]: `[`"},
		{match, `"b".matches(node.id) && matches(node.id, "a(?!b)")`, 1, 42, "invalid or unsupported Perl syntax: `(?!`"},
		{match, `has(node.metadata.LABELS["a.b/c"]) && true`, 1, 25, `has() takes a field, not an index: write "a.b/c" in node.metadata.LABELS`},
		{match, `has(node)`, 1, 5, "has() takes a field, such as has(node.metadata.app)"},
		{key, `node.locality`, 1, 1, "must give string, but gives envoy.config.core.v3.Locality"},
		{key, `"é" + nope`, 1, 7, "undeclared reference to 'nope'"},
		{key, `eu-1`, 1, 1, `undeclared reference to 'eu'; a text has quotes of its own: "'eu-1'"`},
		{key, `cluster`, 1, 1, "undeclared reference to 'cluster'; the field is node.cluster"},
		{identity, `type == "x"`, 1, 6, ""},
		{identity, `peer.name == "x"`, 1, 5, "undefined field 'name'"},
		{upstream, `node.id`, 1, 1, "must give a Node, but gives string"},
		{upstream, `peer`, 1, 1, "undeclared reference to 'peer'"},
		{upstream, `Node{idd: "x"}`, 1, 9, "undefined field 'idd'"},
	} {
		err := c.compile(c.text)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if is := e.Issues[0]; is.Line != c.line || is.Column != c.column || !strings.Contains(is.Message, c.message) {
			t.Errorf("%s: %+v", c.text, is)
		}
	}
}

func TestNode(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`Node{id: "relay", cluster: node.cluster}`, `{"id": "relay", "cluster": "edge-eu"}`},
		{`envoy.config.core.v3.Node{id: node.metadata.tenant, metadata: {"a": {"b": [1.0, "x"]}}, locality: Locality{zone: "z"}}`,
			`{"id": "a", "metadata": {"a": {"b": [1, "x"]}}, "locality": {"zone": "z"}}`},
		{`node`, edge},
	} {
		p, err := NewNode(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		got, err := p.Eval(node(t, edge))
		if err != nil || !proto.Equal(got, node(t, c.want)) {
			t.Errorf("%s: %v, %v", c.text, got, err)
		}
	}
	p, err := NewNode(`node.metadata.labels`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Eval(node(t, edge)); err == nil || !strings.Contains(err.Error(), "must give a Node") {
		t.Errorf("a map for a node: %v", err)
	}
}

func TestCostLimit(t *testing.T) {
	p, err := NewMatch(`node.metadata.list.all(a, node.metadata.list.all(b, node.metadata.list.all(c, a + b + c != "")))`)
	if err != nil {
		t.Fatal(err)
	}
	names := `"x"` + strings.Repeat(`, "x"`, 49)
	big := node(t, `{"metadata": {"list": [`+names+`]}}`)
	if _, err := p.Eval(Input{Node: big}); err == nil || !strings.Contains(err.Error(), "cost limit") {
		t.Errorf("a node that costs many steps: %v", err)
	}
	if got, err := p.Eval(Input{Node: node(t, edge)}); !got || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

// A node of a megabyte costs little, whatever an expression does with it: the bounds hold before a
// function allocates its result.
func TestLargeNodes(t *testing.T) {
	dashes, words := strings.Repeat("-", 450<<10), `"x"`+strings.Repeat(`, "x"`, 100_000)
	big := node(t, `{"id": "`+dashes+`", "cluster": "`+dashes+`", "metadata": {"list": [`+words+`], "long": ["`+dashes+`"]}}`)
	half := strings.Repeat("-", MaxOperand)
	small := node(t, `{"id": "`+half+`", "cluster": "`+half+`", "metadata": {"list": [`+words+`]}}`)
	for _, c := range []struct{ text, err string }{
		{`node.id.replace("-", node.cluster)`, "longer"},
		{`node.id.replace("-", node.cluster, 100)`, "longer"},
		{`node.id.replace("", node.cluster)`, "longer"},
		{`node.metadata.list.join(node.cluster)`, "longer"},
		{`node.metadata.list.join(",")`, "longer"},
		{`node.metadata.long.join(",")`, "longer"},
		{`node.metadata.long[0].lowerAscii()`, "longer"},
		{`node.metadata.long.map(x, x.replace("-", "--"))[0]`, "longer"},
		{`node.metadata.list.map(x, node.id)[0]`, ""},
		{`string(node.id.indexOf(node.cluster + "x"))`, ""},
		{`string(node.id.lastIndexOf("x" + node.cluster))`, ""},
		{`string(node.id.split("").size())`, ""},
		{`node.id.split("").join(node.cluster)`, "longer"},
		{`string(node.id.matches(node.cluster))`, "longer"},
		{`string(matches(node.metadata.list[0], node.cluster))`, "longer"},
		{`string(node.metadata.list[0].matches("[a-z]` + strings.Repeat("|[a-z]", MaxPattern) + `"))`, ""},
		{`"%s%s".format([node.id, node.cluster])`, ""},
		{`node.id + node.cluster`, ""},
		{`(has(node.metadata.none) ? node.cluster : node.id).reverse()`, ""},
		{`string({"a": node.id}["a"].size())`, ""},
		{`"%s".format([node.metadata.list])`, "cost limit"},
		{`string(node.metadata.list.map(x, "%s".format([node.metadata.list])).size())`, "cost limit"},
		{`string(node.metadata.list.map(x, strings.quote(node.id)).size())`, "cost limit"},
		{`string(node.metadata.list.exists(x, node.metadata != node.metadata))`, "cost limit"},
		{`string(node.metadata.list.exists(x, [node] != [node]))`, "cost limit"},
		{`string(node.metadata.list.exists(x, x == node.metadata.none))`, "cost limit"},
		{`string(node.metadata.list.exists(x, node.id.contains(node.cluster)))`, "cost limit"},
		{`string(node.metadata.list.exists(x, "y" in node.metadata.list))`, "cost limit"},
		{`string(node.metadata.list.map(x, Node{id: x, metadata: node.metadata}).size())`, "cost limit"},
	} {
		p, err := NewKey(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		for name, n := range map[string]*corev3.Node{"large": big, "of the bound": small} {
			var err error
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err = p.Eval(Input{Node: n})
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
				t.Errorf("%s of a node that is %s allocates %d MiB", c.text, name, took>>20)
			}
			if name == "large" && c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%s: %v", c.text, err)
			}
		}
	}
}

// A list of a thousand elements, as that of an Envoy's extensions, is within the limit.
func TestLoopsWithinTheCostLimit(t *testing.T) {
	n := &corev3.Node{}
	for range 1000 {
		n.Extensions = append(n.Extensions, &corev3.Extension{Name: "envoy.filters.http.router", Category: "envoy.filters.http"})
	}
	p, err := NewMatch(`node.extensions.exists(e, e.name == "envoy.filters.http.wasm" && e.category == "envoy.filters.http")`)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.Eval(Input{Node: n}); got || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

// Reading a part of the metadata does not copy the whole.
func TestMetadataIsNotCopied(t *testing.T) {
	p, err := NewKey(`node.metadata.tenant`)
	if err != nil {
		t.Fatal(err)
	}
	big := node(t, edge)
	for i := range 1000 {
		big.Metadata.Fields[strings.Repeat("k", i+1)] = structpb.NewStringValue("v")
	}
	allocs := func(n *corev3.Node) float64 {
		return testing.AllocsPerRun(10, func() {
			if got, err := p.Eval(Input{Node: n}); got != "a" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	if small, large := allocs(node(t, edge)), allocs(big); large > small+5 {
		t.Errorf("%v allocations for 1000 more fields, %v without them", large, small)
	}
}

func TestReplaceAndJoin(t *testing.T) {
	for text, want := range map[string]string{
		`"a-b-c".replace("-", "+")`:    "a+b+c",
		`"a-b-c".replace("-", "+", 1)`: "a+b-c",
		`"a-b-c".replace("-", "+", 0)`: "a-b-c",
		`"ab".replace("", "-")`:        "-a-b-",
		`["a", "b"].join()`:            "ab",
		`["a", "b"].join("-")`:         "a-b",
		`[].join("-")`:                 "",
	} {
		p, err := NewKey(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got, err := p.Eval(Input{}); got != want || err != nil {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}

func TestUses(t *testing.T) {
	for _, c := range []struct {
		text          string
		typ, peerUsed bool
	}{
		{`node.cluster == "type peer"`, false, false},
		{`type == "x"`, true, false},
		{`peer.uri_sans.exists(u, u == node.id)`, false, true},
		{`["a"].exists(peer, .peer.address == "a")`, false, true},
		{`has(node.metadata.type)`, false, false},
	} {
		p, err := NewMatch(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if p.UsesType() != c.typ || p.UsesPeer() != c.peerUsed {
			t.Errorf("%s: type %v, peer %v", c.text, p.UsesType(), p.UsesPeer())
		}
	}
}

func TestValues(t *testing.T) {
	in := Input{Node: node(t, edge), Type: "T", Peer: peer}
	for _, c := range []struct {
		text string
		want []string
	}{
		{`node.cluster.startsWith("edge-") && node.locality.zone == node.cluster`, []string{`node.cluster = "edge-eu"`, `node.locality.zone = "eu-1"`}},
		{`false && node.metadata["labels"].app == type`, []string{`node.metadata["labels"].app = "x"`, `type = "T"`}},
		{`peer.uri_sans.exists(u, u == node.id)`, []string{`peer.uri_sans = ["spiffe://x/gw-1","spiffe://x/gw-2"]`, `node.id = "router~10.0.0.1~gw-1.edge"`}},
		{`has(node.metadata.none) || node.metadata.none == node.metadata.shard`,
			[]string{`has(node.metadata.none) = false`, `node.metadata.none = no such key: none`, `node.metadata.shard = 7`}},
		{`["a"].exists(node, node == peer.subject)`, []string{`peer.subject = "CN=gw"`}},
		{`node.locality.region in [peer.subject, {"k": type}["k"]]`, []string{`node.locality.region = "eu"`, `peer.subject = "CN=gw"`, `type = "T"`}},
	} {
		p, err := NewMatch(c.text)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, v := range p.Values(in) {
			got = append(got, v.Expr+" = "+v.String())
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.text, got, c.want)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	p, err := NewKey(`node.metadata.tenant + "/" + peer.uri_sans[1]`)
	if err != nil {
		t.Fatal(err)
	}
	in := Input{Node: node(t, edge), Peer: peer}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if got, err := p.Eval(in); got != "a/spiffe://x/gw-2" || err != nil {
					t.Errorf("%q, %v", got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A literal pattern is compiled once, with its expression: an evaluation allocates no more than that of
// a comparison. Expressions that are evaluated together share the variables and one goroutine.
func TestWorkOfAnEvaluation(t *testing.T) {
	in := Input{Node: node(t, edge)}
	var evaluations [2]func(in Input)
	for i, text := range []string{`node.cluster == "edge-us"`, `node.cluster.matches("^edge-(us|ap)-[a-z]{1,20}$")`} {
		p, err := NewMatch(text)
		if err != nil {
			t.Fatal(err)
		}
		evaluations[i] = func(in Input) {
			if got, err := p.Eval(in); got || err != nil {
				t.Errorf("%s: %v, %v", text, got, err)
			}
		}
	}
	equal, matches := evaluations[0], evaluations[1]
	started := func() uint64 {
		s := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	const runs, n = 10, 100
	before := started()
	together := testing.AllocsPerRun(runs, func() {
		in.Together(func(in Input) {
			for range n {
				matches(in)
			}
		})
	}) / n
	if got := started() - before; got >= runs*n {
		t.Errorf("%d goroutines for %d nodes", got, runs)
	}
	alone := testing.AllocsPerRun(runs, func() { matches(in) })
	if want := testing.AllocsPerRun(runs, func() { equal(in) }) + 2; alone > want {
		t.Errorf("%v allocations with a pattern, %v without", alone, want-2)
	}
	if together > alone-4 {
		t.Errorf("%v allocations of one expression of many, %v of one alone", together, alone)
	}
}

func BenchmarkKey(b *testing.B) {
	p, err := NewKey(`node.metadata.tenant + node.cluster`)
	if err != nil {
		b.Fatal(err)
	}
	in := Input{Node: node(b, edge)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Eval(in); err != nil {
			b.Fatal(err)
		}
	}
}

// Proven returns the values that only a certificate proves.
func TestProven(t *testing.T) {
	for text, want := range map[string]string{
		`node.id in peer.uri_sans`: "peer.uri_sans",
		`peer.dns_sans.exists(n, n == node.id) || peer.subject == node.id`:     "peer.dns_sans peer.subject",
		`peer.address == node.id && node.metadata.uri_sans == "a"`:             "",
		`has(peer.uri_sans) && .peer.subject == "CN=a"`:                        "peer.subject",
		`[{"uri_sans": 1}].exists(peer, peer.uri_sans == 1)`:                   "",
		`[peer].exists(p, node.id in p.uri_sans)`:                              "peer.uri_sans",
		`peer.token.sub == node.id && peer.token.sub != ""`:                    "peer.token",
		`has(peer.token.sub) && has(peer.token["kubernetes.io"].pod)`:          "",
		`has(peer.token.sub) && peer.token["a"] == node.id`:                    "peer.token",
		`size(peer.uri_sans) == 0 || peer.uri_sans[0].startsWith("spiffe://")`: "peer.uri_sans",
	} {
		p, err := NewIdentity(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(p.Proven(), " "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// A token's claims are read as JSON: kubernetes.io is a claim of Kubernetes' tokens.
func TestClaimsOfAToken(t *testing.T) {
	in := Input{Peer: Peer{Token: map[string]any{
		"sub": "system:serviceaccount:edge:gateway", "aud": []any{"relay"}, "n": 3.0,
		"kubernetes.io": map[string]any{"namespace": "edge", "pod": map[string]any{"name": "gw-1"}},
	}}}
	for text, want := range map[string]bool{
		`peer.token.sub == "system:serviceaccount:edge:gateway"`: true,
		`peer.token["kubernetes.io"].pod.name == "gw-1"`:         true,
		`"relay" in peer.token.aud`:                              true,
		`peer.token.n == 3`:                                      true,
		`has(peer.token.other)`:                                  false,
		`"role" in peer.token`:                                   false,
	} {
		p, err := NewIdentity(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := p.Eval(in); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		if got, err := p.Eval(Input{}); err == nil && got {
			t.Errorf("%s holds without a token", text)
		}
	}
}

// The errors of CEL quote operands. An error shows no claim, but what the expression itself has.
func TestErrorsQuoteNoClaim(t *testing.T) {
	in := Input{Peer: Peer{Token: map[string]any{"sub": "pod", "role": "hunter2(", "groups": []any{"hunter2"}, "n": 1234.5}}}
	for text, want := range map[string]string{
		`{"a": true}[peer.token.role]`:              "quotes a claim",
		`{1.5: true}[peer.token.n]`:                 "quotes a claim",
		`{"a": true}[peer.token.groups[0]]`:         "quotes a claim",
		`timestamp(peer.token.role) > timestamp(0)`: "quotes a claim",
		`node.id.matches(peer.token.role)`:          "quotes a claim",
		`peer.token["kubernetes.io"].pod == "a"`:    "no such key: kubernetes.io",
		`int(peer.token.role) > 3`:                  "type conversion error",
	} {
		p, err := NewIdentity(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = p.Eval(in); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "1234") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	p, err := NewIdentity(`dyn(peer) == node.id`)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(p.Values(in)); strings.Contains(got, "hunter2") {
		t.Errorf("the values of dyn(peer) have claims: %s", got)
	}
}

// What an expression is made of, for warnings about rules.
func TestInspection(t *testing.T) {
	for text, want := range map[string]string{
		`string(node.metadata.n) + string(int(node.metadata.m)) + string(1)`: `concatenates, reads [node.metadata.n node.metadata.m], paths [n] [m], texts [node.metadata.n]`,
		`"edge"`:                       "constant edge",
		`"edge-" + node.cluster`:       "reads [node.cluster]",
		`node.cluster + "-" + node.id`: "concatenates, reads [node.cluster node.id]",
		`node.metadata["a/b"].c`:       `reads [node.metadata["a/b"].c], paths [a/b c]`,
		`has(node.metadata.x) ? node.metadata.x[0] : type`:         `reads [has(node.metadata.x) node.metadata.x[0] type], paths [x]`,
		`type in ["CDS", "EDS"] ? "a" : "LDS" != type ? "b" : "c"`: `reads [type], types [CDS EDS LDS]`,
	} {
		p, err := NewKey(text)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		if c, ok := p.Constant().(string); ok {
			got = append(got, "constant "+c)
		}
		if p.Concatenates() {
			got = append(got, "concatenates")
		}
		if r := p.Reads(); r != nil {
			got = append(got, fmt.Sprint("reads ", r))
		}
		if r := p.MetadataPaths(); r != nil {
			paths := "paths"
			for _, path := range r {
				paths += fmt.Sprint(" ", path.Fields)
			}
			got = append(got, paths)
		}
		if r := p.ComparedTypes(); r != nil {
			got = append(got, fmt.Sprint("types ", r))
		}
		if r := p.TextsOfMetadata(); r != nil {
			got = append(got, fmt.Sprint("texts ", r))
		}
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
