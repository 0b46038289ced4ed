package admin

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

func (r *serverFixture) explainTo(path, body string) explained {
	r.Helper()
	var out explained
	got := r.do("POST", path, body, "Content-Type", "application/json")
	r.check(got, 200, &out)
	return out
}

func TestExplain(t *testing.T) {
	r := serve(t, nil)
	const node = `{"id": "n", "cluster": "edge-eu", "locality": {"zone": "z/1"}, "metadata": {"a": [1, "on"]}}`

	got := r.explainTo("/explain?type=eds", node)
	if got.Node != "n" || got.Cluster != "edge-eu" || len(got.Types) != 1 {
		t.Fatalf("%+v", got)
	}
	x := got.Types[0]
	if x.Type != string(xds.EndpointType) || x.Key != `edge-eu/"z/1"` || len(x.Rules) != 3 || x.Rules[0].Result != "match" {
		t.Errorf("%+v", x)
	}

	// These rules depend on the type, so all types are shown.
	got = r.explainTo("/explain", node)
	if len(got.Types) != len(xds.Types()) {
		t.Fatalf("%d types", len(got.Types))
	}
	for _, x := range got.Types {
		if want := "edge-eu"; x.Key != want && x.Type != string(xds.EndpointType) {
			t.Errorf("%s has key %s", x.Type, x.Key)
		}
	}

	got = r.explainTo("/explain?type=CDS", `{"node": `+node+`, "peer": {"uri_sans": ["spiffe://a"]}}`)
	if got.Types[0].Key != "proven" {
		t.Errorf("with a peer: %+v", got.Types[0])
	}

	// A refusal is an answer with status 200.
	got = r.explainTo("/explain?type=CDS", `{"id": "n"}`)
	if got.Types[0].Refused == "" || got.Types[0].Key != "" {
		t.Errorf("%+v", got.Types[0])
	}
}

func TestExplainWithoutTypes(t *testing.T) {
	byID := compile(t, `{upstream: {origins: [{address: "127.0.0.1:1"}]}, aggregation: {rules: [{key: node.id}]}}`)
	r := serve(t, func(o *Options) { o.Rules = func() Rules { return byID } })
	if got := r.explainTo("/explain", `{"id": "n"}`); len(got.Types) != 1 || got.Types[0].Type != "" || got.Types[0].Key != "n" {
		t.Errorf("%+v", got)
	}
	var y struct{ Types []aggregator.Explanation }
	got := r.do("POST", "/explain?format=yaml", `{"id": "n"}`, "Content-Type", "application/json")
	r.check(got, 200, &y)
	if y.Types[0].Key != "n" || y.Types[0].Rules[0].Place.Line != 1 {
		t.Errorf("%s", got.body)
	}
}

func TestExplainOfNoNode(t *testing.T) {
	r := serve(t, nil)
	for body, says := range map[string]string{
		``:                                 "JSON object",
		`[]`:                               "JSON object",
		`{"id": 1}`:                        "node: ",
		`{"name": "n"}`:                    `unknown field \"name\"`,
		`{"id": "n"} x`:                    "JSON object",
		`{"node": {"id": "n"}, "per": {}}`: `body: unknown field \"per\"`,
		`{"node": {"id": "n"}, "peer": {"uri": 1}}`: "peer: ",
		`{"node": []}`: "node: ",
	} {
		got := r.do("POST", "/explain", body, "Content-Type", "application/json")
		r.check(got, 400, nil)
		if s := strings.ReplaceAll(string(got.body), "\u00a0", " "); !strings.Contains(s, says) {
			t.Errorf("%s: %s, want %s", body, s, says)
		}
	}
	got := r.do("POST", "/explain?type=nothing", `{"id": "n"}`, "Content-Type", "application/json")
	r.check(got, 400, nil)
}

// As YAML, the body is what relay explain reads from files.
func TestExplainYAML(t *testing.T) {
	r := serve(t, nil)
	ask := func(body string) reply {
		return r.do("POST", "/explain?type=CDS", body, "Content-Type", "application/yaml; charset=utf-8")
	}
	var got explained
	r.check(ask("admin: {}\nnode: {id: n, cluster: edge-eu}\n---\nuri_sans: [spiffe://a]\n"), 200, &got)
	if got.Node != "n" || got.Types[0].Key != "proven" {
		t.Errorf("%+v", got)
	}
	if got := ask("id: [\n"); got.StatusCode != 400 || !strings.Contains(string(got.body), "body: line ") {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
	if got := r.do("POST", "/explain", "id: n", "Content-Type", "text/plain"); got.StatusCode != 415 || !strings.Contains(string(got.body), "application/json or application/yaml") {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
}

type diffPage struct {
	Checked int
	list[move]
}

func (r *serverFixture) diffBy(path, body string) (p diffPage) {
	r.Helper()
	r.check(r.do(http.MethodPost, path, body, "Content-Type", "application/json"), http.StatusOK, &p)
	return p
}

// nodes adds n clients, each with its number as cluster.
func (r *serverFixture) nodes(n int) {
	r.Helper()
	for i := range n {
		raw := xdstest.Must(proto.Marshal(&corev3.Node{Id: fmt.Sprint("n", i), Cluster: fmt.Sprint(i % 3)}))(r)
		node := xdstest.Must(new(xds.NodeTable).Intern(raw))(r)
		r.shown.nodes = append(r.shown.nodes, node)
	}
}

// The clients that would move are shown page by page, with their keys and nothing else of their
// nodes.
func TestDiff(t *testing.T) {
	r := serve(t, nil)
	r.nodes(9)
	const rules = `{"rules": "- {match: 'node.cluster == \"0\"', key: '\"old\"'}\n- {match: 'node.cluster == \"1\"', key: '\"new\"'}\n"}`
	got := r.diffBy("/explain/diff", rules)
	if got.Checked != 9 || len(got.Items) != 6 || got.Next != "" {
		t.Fatalf("%+v", got)
	}
	first, second := got.Items[0], got.Items[1]
	if first.Node != "n1" || first.Stream != 2 || fmt.Sprint(first.Types) != fmt.Sprint([]change{{string(xds.ClusterType), "old", "new", ""}}) {
		t.Errorf("%+v", first)
	}
	if x := second.Types[0]; second.Node != "n2" || x.To != "" || !strings.Contains(x.Refused, "no aggregation rule matches this node") {
		t.Errorf("%+v", second)
	}
	checked, seen := 0, []string{}
	for token := ""; ; {
		p := r.diffBy("/explain/diff?limit=2&page_token="+token, rules)
		checked += p.Checked
		for _, m := range p.Items {
			seen = append(seen, m.Node)
		}
		if len(p.Items) > 2 {
			t.Errorf("%d on a page", len(p.Items))
		}
		if token = p.Next; token == "" {
			break
		}
	}
	if checked != 9 || fmt.Sprint(seen) != "[n1 n2 n4 n5 n7 n8]" {
		t.Errorf("%d, %v", checked, seen)
	}
	if p := r.diffBy("/explain/diff", `{"rules": "- {match: 'false', key: node.id}", "unmatched": "node"}`); len(p.Items) != 9 || !strings.HasPrefix(p.Items[0].Types[0].To, `""/n0/`) {
		t.Errorf("%+v", p)
	}
}

// A page that is too large to be indented has all fields, too.
func TestDiffOfManyClients(t *testing.T) {
	r := serve(t, func(o *Options) {
		o.Admitted = func(string) (string, string, bool) { return "false", "", true }
	})
	r.nodes(500)
	var got struct {
		Checked   int
		Admission []string
		Items     []move
	}
	r.check(r.do(http.MethodPost, "/explain/diff", `{"rules": "- key: '\"new\"'", "listeners": [{"address": "a:1"}, {"address": "b:1"}]}`, "Content-Type", "application/json"), http.StatusOK, &got)
	if got.Checked != 500 || len(got.Items) != 500 || len(got.Admission) != 2 {
		t.Errorf("%d clients checked, %d move, admission %v", got.Checked, len(got.Items), got.Admission)
	}
}

func TestDiffRefuses(t *testing.T) {
	r := serve(t, nil)
	for body, want := range map[string]string{
		``:                                    "body: must be a JSON object with rules, unmatched and listeners",
		`{"rulez": ""}`:                       `unknown field \"rulez\"`,
		`{"rules": ""}`:                       "has no rules",
		`{"rules": "- key: nope"}`:            "rules:1:8: rules[0].key[0]: undeclared reference to 'nope'",
		`{"rules": "- {}", "unmatched": "x"}`: `unmatched: must be reject or node, but is \"x\"`,
	} {
		got := r.do(http.MethodPost, "/explain/diff", body, "Content-Type", "application/json")
		if got.StatusCode != http.StatusBadRequest || !strings.Contains(string(got.body), want) {
			t.Errorf("%s: %s %s, want %s", body, got.Status, got.body, want)
		}
	}
	r.want(http.StatusMethodNotAllowed, http.MethodGet, "/explain/diff", nil)
	r.check(r.do(http.MethodPost, "/explain/diff", "{}"), http.StatusUnsupportedMediaType, nil)
	r.check(r.do(http.MethodPost, "/explain/diff?page_token=eA", `{"rules": "- key: node.id"}`, "Content-Type", "application/json"), http.StatusBadRequest, nil)
}
