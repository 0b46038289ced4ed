package aggregator

import (
	"encoding/json"
	"strings"
	"testing"

	"xdsrelay/internal/expr"
	"xdsrelay/internal/xds"
)

func TestExplain(t *testing.T) {
	r := compile(t, `
  rules:
    - {match: node.metadata.none == "x", key: node.id}
    - {types: [EDS], key: node.id}
    - {match: 'node.cluster == "edge-us" || peer.subject == "x"', key: node.id}
    - {match: node.metadata.tenant == "a", key: [node.cluster, node.metadata.labels.app]}
    - key: node.id
`)
	x, err := r.Explain(node(t, edge), expr.Peer{Subject: "CN=gw"}, xds.ClusterType)
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.Rules {
		x.Rules[i].Place.File = "f"
	}
	got, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"type":"` + cds + `","key":"edge-eu/x","elements":["edge-eu","x"],"rules":[
{"rule":"aggregation.rules[0]","place":{"file":"f","line":5,"column":7},"match":"node.metadata.none == \"x\"","result":"no match, since its match failed","error":"no such key: none","values":[{"expr":"node.metadata.none","error":"no such key: none"}]},
{"rule":"aggregation.rules[1]","place":{"file":"f","line":6,"column":7},"types":["` + eds + `"],"match":"true","result":"not for this type"},
{"rule":"aggregation.rules[2]","place":{"file":"f","line":7,"column":7},"match":"node.cluster == \"edge-us\" || peer.subject == \"x\"","result":"no match","values":[{"expr":"node.cluster","value":"edge-eu"},{"expr":"peer.subject","value":"CN=gw"}]},
{"rule":"aggregation.rules[3]","place":{"file":"f","line":8,"column":7},"match":"node.metadata.tenant == \"a\"","result":"match","values":[{"expr":"node.metadata.tenant","value":"a"},{"expr":"node.cluster","value":"edge-eu"},{"expr":"node.metadata.labels.app","value":"x"}],"key":[{"expr":"node.cluster","value":"edge-eu"},{"expr":"node.metadata.labels.app","value":"x"}]},
{"rule":"aggregation.rules[4]","place":{"file":"f","line":9,"column":7},"match":"true","result":"not tried"}]}`
	if want = strings.ReplaceAll(want, "\n", ""); string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, s := range r.Stats() {
		if s.Matches+s.Errors != 0 {
			t.Errorf("explaining counts: %+v", s)
		}
	}
}

func TestExplainRefusals(t *testing.T) {
	r := compile(t, "  rules: [{match: node.id == \"x\", key: [node.cluster, node.locality.zone]}]\n")
	x, err := r.Explain(node(t, `{"id": "x", "cluster": "c"}`), expr.Peer{}, "")
	if err != nil {
		t.Fatal(err)
	}
	if k := x.Rules[0].Key; x.Key != "" || x.Reason != "key_failed" || x.Refused == "" || len(k) != 2 || k[0].Value != "c" || k[1].Error != "the value is empty" {
		t.Errorf("%+v", x)
	}
	if x, err = r.Explain(node(t, edge), expr.Peer{}, ""); err != nil || x.Reason != "unmatched" || x.Rules[0].Result != "no match" {
		t.Errorf("%+v, %v", x, err)
	}
	r = compile(t, "  unmatched: node\n  rules: [{match: 'false', key: node.id}]\n")
	if x, err = r.Explain(node(t, edge), expr.Peer{}, ""); err != nil || !x.Own || x.Elements[1] != "gw-1" || x.Refused != "" {
		t.Errorf("%+v, %v", x, err)
	}
}

func TestExplainFragments(t *testing.T) {
	r := compose(t,
		`[{match: {request_node_match: {locality_match: {sub_zone: {exact_match: a}}}}, result: {string_fragment: x}}, {match: {not_match: {request_type_match: {types: [`+eds+`]}}}, result: {request_node_fragment: {cluster_action: {regex_action: {pattern: "-.*", replace: ""}}}}}]`,
		`[{match: {any_match: true}, result: {request_node_fragment: {node_metadata_action: {path: [{key: labels}, {key: none}], action: {exact: true}}}}}]`,
		`[{match: {any_match: true}, result: {string_fragment: y}}]`)
	x, err := r.Explain(node(t, edge), expr.Peer{}, xds.ClusterType)
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.Rules {
		x.Rules[i].Place.File, x.Rules[i].Place.Line, x.Rules[i].Place.Column = "", 0, 0
	}
	got, err := json.Marshal(x.Rules)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"rule":"fragments[0].rules[0]","place":{"file":""},"match":"(node.locality.sub_zone == \"a\")","result":"no match, since its match failed","error":"node.locality.sub_zone: the node has no such field","values":[{"expr":"node.locality.sub_zone","error":"the node has no such field"}]},
{"rule":"fragments[0].rules[1]","place":{"file":""},"match":"!(type in [\"` + eds + `\"])","result":"match","values":[{"expr":"type","value":"` + cds + `"},{"expr":"node.cluster","value":"edge-eu"}],"key":[{"expr":"node.cluster.replace(/-.*/, \"\")","value":"edge"}]},
{"rule":"fragments[1].rules[0]","place":{"file":""},"match":"true","result":"match, but its key failed","values":[{"expr":"node.metadata[\"labels\"][\"none\"]","error":"the node has no such field"}],"key":[{"expr":"node.metadata[\"labels\"][\"none\"]","error":"node.metadata[\"labels\"][\"none\"]: the node has no such field"}]},
{"rule":"fragments[2].rules[0]","place":{"file":""},"match":"true","result":"not tried"}]`
	if want = strings.ReplaceAll(want, "\n", ""); string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if x.Reason != "key_failed" {
		t.Errorf("%+v", x)
	}
}
