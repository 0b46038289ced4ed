package admin

import (
	"strings"
	"testing"

	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/xds"
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
	if got := ask("id: " + strings.Repeat("n", MaxBody)); got.StatusCode != 413 {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
	if got := r.do("POST", "/explain", "id: n", "Content-Type", "text/plain"); got.StatusCode != 415 || !strings.Contains(string(got.body), "application/json or application/yaml") {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
}
