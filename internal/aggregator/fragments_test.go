package aggregator

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/xds"
)

// fragment compiles a file with one fragment of one rule.
func fragment(t testing.TB, match, result string) *Rules {
	t.Helper()
	r, _, err := compileFile(t, "fragments: [{rules: [{match: "+match+", result: "+result+"}]}]\n")
	if err != nil {
		t.Fatalf("%s -> %s: %v", match, result, err)
	}
	return r
}

const (
	cds = string(xds.ClusterType)
	eds = string(xds.EndpointType)
	lds = string(xds.ListenerType)
)

func TestFragmentMatches(t *testing.T) {
	const id, cluster = `{request_node_match: {id_match: {exact_match: gw-1}}}`, `{request_node_match: {cluster_match: {regex_match: "^edge-"}}}`
	const no = `{request_node_match: {id_match: {exact_match: other}}}`
	const labels = `{request_node_match: {node_metadata_match: {path: [{key: labels}, {key: app}], match: {string_match: {exact_match: x}}}}}`
	const (
		yes   = "match"
		none  = "no match"
		fails = "no match, since its match failed"
	)
	bare := `{"id": "gw-1"}`
	for _, c := range []struct{ match, node, want string }{
		{`{any_match: true}`, bare, yes},
		{`{anyMatch: true}`, bare, yes},
		{`{request_type_match: {types: [` + lds + `, ` + cds + `]}}`, bare, yes},
		{`{request_type_match: {types: [` + lds + `]}}`, bare, none},
		{`{request_type_match: {types: [CDS]}}`, bare, none},
		{id, edge, yes},
		{no, edge, none},
		{cluster, edge, yes},
		{cluster, bare, fails},
		{`{request_node_match: {id_match: {regex_match: "w-[0-9]"}}}`, edge, yes},
		{`{request_node_match: {cluster_match: {exact_match: ""}}}`, edge, none},
		{`{request_node_match: {cluster_match: {regex_match: ""}}}`, edge, none},
		{`{request_node_match: {locality_match: {region: {exact_match: eu}}}}`, edge, yes},
		{`{request_node_match: {locality_match: {region: {exact_match: eu}, zone: {regex_match: "-1$"}}}}`, edge, yes},
		{`{request_node_match: {locality_match: {region: {exact_match: eu}, zone: {exact_match: eu-2}}}}`, edge, none},
		{`{request_node_match: {locality_match: {sub_zone: {regex_match: ".*"}}}}`, edge, fails},
		{`{request_node_match: {locality_match: {zone: {exact_match: z}}}}`, bare, fails},
		{labels, edge, yes},
		{labels, bare, none},
		{labels, `{"id": "gw-1", "metadata": {"labels": "text"}}`, none},
		{labels, `{"id": "gw-1", "metadata": {"labels": {"app": 5}}}`, none},
		{labels, `{"id": "gw-1", "metadata": {"labels": {"app": "y"}}}`, none},
		{`{request_node_match: {node_metadata_match: {path: [{key: tenant}], match: {string_match: {regex_match: "^[ab]$"}}}}}`, edge, yes},
		{`{request_node_match: {node_metadata_match: {path: [{key: canary}], match: {bool_match: {value_match: true}}}}}`, edge, yes},
		{`{request_node_match: {node_metadata_match: {path: [{key: canary}], match: {bool_match: {value_match: false}}}}}`, edge, none},
		{`{request_node_match: {node_metadata_match: {path: [{key: tenant}], match: {bool_match: {value_match: false}}}}}`, edge, none},
		{`{request_node_match: {nodeMetadataMatch: {path: [{key: canary}], match: {boolMatch: {valueMatch: true}}}}}`, edge, yes},
		{`{and_match: {rules: [` + id + `, ` + cluster + `]}}`, edge, yes},
		{`{and_match: {rules: [` + id + `, ` + no + `]}}`, edge, none},
		{`{and_match: {rules: [` + no + `, ` + cluster + `]}}`, bare, none}, // the first decides
		{`{and_match: {rules: [` + id + `, ` + cluster + `]}}`, bare, fails},
		{`{or_match: {rules: [` + no + `, ` + cluster + `]}}`, edge, yes},
		{`{or_match: {rules: [` + no + `, ` + no + `]}}`, edge, none},
		{`{or_match: {rules: [` + id + `, ` + cluster + `]}}`, bare, yes},
		{`{or_match: {rules: [` + cluster + `, ` + id + `]}}`, bare, fails},
		{`{not_match: ` + no + `}`, edge, yes},
		{`{not_match: ` + id + `}`, edge, none},
		{`{not_match: ` + cluster + `}`, bare, fails},
		{`{not_match: ` + labels + `}`, bare, yes},
		{`{not_match: {not_match: {and_match: {rules: [` + id + `, {or_match: {rules: [` + no + `, ` + labels + `]}}]}}}}`, edge, yes},
		// as the schema was before
		{`{request_node_match: {field: 1, exact_match: edge-eu}}`, edge, yes},
		{`{request_node_match: {exact_match: gw-1}}`, edge, yes},
		{`{request_node_match: {field: NODE_LOCALITY_ZONE, regex_match: "^eu"}}`, edge, yes},
		{`{request_node_match: {field: 2, exact_match: us}}`, edge, none},
	} {
		r := fragment(t, c.match, "{string_fragment: it}")
		x, err := r.Explain(node(t, c.node), expr.Peer{}, xds.ClusterType)
		if err != nil {
			t.Fatal(err)
		}
		if got := x.Rules[0]; got.Result != c.want || (got.Error != "") != (c.want == fails) || (x.Key == "it") != (c.want == yes) {
			t.Errorf("%s of %s: %s, want %s (%s)", c.match, c.node, got.Result, c.want, got.Error)
		}
		key(r, node(t, c.node), xds.ClusterType)
		if got := r.Stats()[0]; (got.Errors == 1) != (c.want == fails) || (got.Matches == 1) != (c.want == yes) {
			t.Errorf("%s of %s: counted %+v", c.match, c.node, got)
		}
	}
}

func TestFragmentResults(t *testing.T) {
	const failed = "the aggregation rule that matches this node gives no key; tried: fragments[0].rules[0]: match, but its key failed: "
	for _, c := range []struct{ result, want string }{
		{`{string_fragment: all}`, "all"},
		{`{request_node_fragment: {id_action: {exact: true}}}`, "gw-1"},
		{`{request_node_fragment: {cluster_action: {exact: true}}}`, "edge-eu"},
		{`{request_node_fragment: {cluster_action: {regex_action: {pattern: "^(.*)-.*$", replace: "$1"}}}}`, "edge"},
		{`{request_node_fragment: {cluster_action: {regex_action: {pattern: "^*-(.*)-*$", replace: "$1"}}}}`, "edgeeu"},
		{`{request_node_fragment: {cluster_action: {regex_action: {pattern: "nothing", replace: "x"}}}}`, "edge-eu"},
		{`{request_node_fragment: {cluster_action: {regex_action: {pattern: ".*", replace: ""}}}}`,
			failed + `node.cluster.replace(/.*/, ""): the value is empty`},
		{`{request_node_fragment: {locality_action: {zone_action: {exact: true}}}}`, `"@loc::eu-1:"`},
		{`{request_node_fragment: {locality_action: {region_action: {exact: true}, zone_action: {regex_action: {pattern: "-", replace: ":"}}}}}`, `"@loc:eu:eu@:1:"`},
		{`{request_node_fragment: {locality_action: {subzone_action: {exact: true}}}}`, failed + "node.locality.sub_zone: the node has no such field"},
		{`{request_node_fragment: {node_metadata_action: {path: [{key: labels}, {key: app}], action: {exact: true}}}}`, "x"},
		{`{request_node_fragment: {node_metadata_action: {path: [{key: tenant}], action: {regex_action: {pattern: a, replace: b}}}}}`, "b"},
		{`{request_node_fragment: {node_metadata_action: {path: [{key: none}], action: {exact: true}}}}`, failed + `node.metadata["none"]: the node has no such field`},
		{`{request_node_fragment: {node_metadata_action: {path: [{key: shard}], action: {exact: true}}}}`, failed + `node.metadata["shard"]: must be a string in the node, as in xds-relay`},
		{`{request_node_fragment: {node_metadata_action: {path: [{key: tenant}, {key: more}], action: {exact: true}}}}`, failed + `node.metadata["tenant"]["more"]: the node has no such field`},
		{`{and_result: {result_predicates: [{string_fragment: p}, {request_node_fragment: {id_action: {exact: true}}}]}}`, `@and:p:gw-1`},
		{`{and_result: {result_predicates: [{string_fragment: p}, {resource_names_fragment: {element: 0, action: {exact: true}}}]}}`, `@and:p`},
		{`{and_result: {result_predicates: [{string_fragment: p}, {and_result: {result_predicates: [{string_fragment: q}, {string_fragment: r}]}}]}}`, `@and:p:@@and@:q@:r`},
		{`{and_result: {result_predicates: [{string_fragment: p}, {request_node_fragment: {locality_action: {subzone_action: {exact: true}}}}]}}`,
			failed + "node.locality.sub_zone: the node has no such field"},
		{`{resource_names_fragment: {element: 0, action: {exact: true}}}`, failed + "the matching rules add nothing to the key"},
		{`{string_fragment: "@and:p:gw-1"}`, `@@and:p:gw-1`},
		// as the schema was before
		{`{request_node_fragment: {field: 1, action: {exact: true}}}`, "edge-eu"},
		{`{request_node_fragment: {field: NODE_LOCALITY_REGION, action: {exact: true}}}`, "eu"},
		{`{request_node_fragment: {action: {regex_action: {pattern: "^(.*)-*$", replace: "$1"}}}}`, "gw-1"},
	} {
		want := c.want
		if strings.HasPrefix(want, `"@`) {
			want = strings.Trim(want, `"`)
		}
		if got := key(fragment(t, "{any_match: true}", c.result), node(t, edge), xds.ClusterType); got != want {
			t.Errorf("%s:\n got %s\nwant %s", c.result, got, want)
		}
	}
}

// compose is a file of the fragments that are given, each a list of rules.
func compose(t testing.TB, fragments ...string) *Rules {
	t.Helper()
	r, _, err := compileFile(t, "fragments:\n- rules: "+strings.Join(fragments, "\n- rules: ")+"\n")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestFragmentsCompose(t *testing.T) {
	const byType = `[{match: {request_type_match: {types: [` + lds + `]}}, result: {string_fragment: lds}}, {match: {request_type_match: {types: [` + cds + `]}}, result: {string_fragment: cds}}]`
	const names = `[{match: {request_type_match: {types: [` + eds + `]}}, result: {resource_names_fragment: {element: 0, action: {exact: true}}}}]`
	const cluster = `[{match: {any_match: true}, result: {request_node_fragment: {cluster_action: {exact: true}}}}]`
	const canary = `[{match: {request_node_match: {node_metadata_match: {path: [{key: canary}], match: {bool_match: {value_match: true}}}}}, result: {string_fragment: canary}}, {match: {any_match: true}, result: {string_fragment: all}}]`
	bare := `{"id": "n", "cluster": "c"}`
	for _, c := range []struct {
		r    *Rules
		node string
		typ  xds.TypeURL
		want string
	}{
		{compose(t, cluster, byType), edge, xds.ClusterType, "edge-eu/cds"},
		{compose(t, cluster, byType), edge, xds.ListenerType, "edge-eu/lds"},
		{compose(t, cluster, byType), edge, xds.EndpointType, "edge-eu"},
		{compose(t, byType, cluster), edge, xds.EndpointType, "@/edge-eu"},
		{compose(t, cluster, names), edge, xds.EndpointType, "edge-eu"},
		{compose(t, names, cluster), edge, xds.EndpointType, "@/edge-eu"},
		// all that match append
		{compose(t, canary, cluster), edge, xds.ClusterType, "@all:canary:all/edge-eu"},
		{compose(t, canary, cluster), bare, xds.ClusterType, "all/c"},
		{compose(t, byType), edge, xds.EndpointType, "no aggregation rule matches this node; tried: fragments[0].rules[0]: no match; fragments[0].rules[1]: no match"},
		{compose(t, names), edge, xds.EndpointType, "the aggregation rule that matches this node gives no key; tried: fragments[0].rules[0]: match, but its key failed: the matching rules add nothing to the key"},
	} {
		if got := key(c.r, node(t, c.node), c.typ); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
	if r := compose(t, cluster, byType); !r.UsesType() || r.UsesPeer() {
		t.Error("a fragment made of types does not depend on the type")
	}
	if r := compose(t, cluster, canary); r.UsesType() {
		t.Error("depends on the type though no rule does")
	}
}

func TestFragmentsUnmatchedNode(t *testing.T) {
	_, file, err := compileFile(t, "fragments: [{rules: [{match: {request_node_match: {id_match: {exact_match: x}}}, result: {string_fragment: s}}]}]\n")
	if err != nil {
		t.Fatal(err)
	}
	r := compile(t, "  file: "+file+"\n  unmatched: node\n")
	if got := key(r, node(t, edge), ""); !strings.HasPrefix(got, `""/gw-1/`) {
		t.Error(got)
	}
}

// Nodes that differ in a value that a file uses have different keys, also if xds-relay would join
// both to the same text.
func TestFragmentKeysNeverCollide(t *testing.T) {
	exact := func(field string) string {
		return `{match: {any_match: true}, result: {request_node_fragment: {` + field + `: {exact: true}}}}`
	}
	and := `{match: {any_match: true}, result: {and_result: {result_predicates: [{request_node_fragment: {id_action: {exact: true}}}, {request_node_fragment: {cluster_action: {exact: true}}}]}}}`
	onlyIf := func(id, rule string) string {
		return strings.Replace(rule, "{any_match: true}", "{request_node_match: {id_match: {regex_match: \""+id+"\"}}}", 1)
	}
	loc := func(parts string) string {
		return `{match: {any_match: true}, result: {request_node_fragment: {locality_action: {` + parts + `}}}}`
	}
	n := func(id, cluster, region, zone, sub string) string {
		return `{"id": "` + id + `", "cluster": "` + cluster + `", "locality": {"region": "` + region + `", "zone": "` + zone + `", "sub_zone": "` + sub + `"}}`
	}
	for name, c := range map[string]struct {
		r    *Rules
		a, b string
	}{
		"separator":      {compose(t, "["+exact("id_action")+"]", "["+exact("cluster_action")+"]"), n("a_b", "c", "", "", ""), n("a", "b_c", "", "", "")},
		"concatenation":  {compose(t, "["+and+"]"), n("ab", "c", "", "", ""), n("a", "bc", "", "", "")},
		"concatenation:": {compose(t, "["+and+"]"), n("a:b", "c", "", "", ""), n("a", "b:c", "", "", "")},
		"escapes":        {compose(t, "["+and+"]"), n("a@", ":c", "", "", ""), n("a@:", "c", "", "", "")},
		"locality":       {compose(t, "["+loc("region_action: {exact: true}, zone_action: {exact: true}")+"]"), n("i", "c", "a|b", "c", ""), n("i", "c", "a", "b|c", "")},
		"locality by rule": {compose(t, "["+onlyIf("^1", loc("region_action: {exact: true}, zone_action: {exact: true}"))+", "+onlyIf("^2", loc("region_action: {exact: true}, subzone_action: {exact: true}"))+"]"),
			n("1", "c", "a", "b", "-"), n("2", "c", "a", "-", "b")},
		"fragments that do not match": {compose(t, "["+onlyIf("^1", exact("cluster_action"))+"]", "["+onlyIf("^2", exact("cluster_action"))+"]"), n("1", "c", "", "", ""), n("2", "c", "", "", "")},
		"several rules of one fragment": {compose(t, "["+onlyIf("^1", exact("cluster_action"))+", "+exact("cluster_action")+"]", "["+onlyIf("^2", exact("cluster_action"))+"]"),
			n("1", "c", "", "", ""), n("2", "c", "", "", "")},
		"a tuple and a text": {compose(t, "["+onlyIf("^x", and)+", "+onlyIf("^@", exact("id_action"))+"]"), n("x", "y", "", "", ""), n("@and:x:y", "c", "", "", "")},
		"a text and nothing": {compose(t, "["+onlyIf("^@", exact("id_action"))+"]", "["+exact("cluster_action")+"]"), n("@", "c", "", "", ""), n("x", "c", "", "", "")},
	} {
		ka, errA := c.r.Key(node(t, c.a), expr.Peer{}, "")
		kb, errB := c.r.Key(node(t, c.b), expr.Peer{}, "")
		if errA != nil || errB != nil {
			t.Fatalf("%s: %v, %v", name, errA, errB)
		}
		if ka == kb {
			t.Errorf("%s: both are %s", name, ka)
		}
	}
	// Rules of one fragment with the same text give their nodes the same key.
	r := compose(t, `[`+onlyIf("^1", `{match: {any_match: true}, result: {string_fragment: s}}`)+`, `+onlyIf("^2", `{match: {any_match: true}, result: {string_fragment: s}}`)+`]`)
	if a, b := key(r, node(t, n("1", "", "", "", "")), ""), key(r, node(t, n("2", "", "", "", "")), ""); a != "s" || b != "s" {
		t.Errorf("%s, %s", a, b)
	}
}

func TestFragmentFaults(t *testing.T) {
	const ok = "result: {string_fragment: s}"
	for name, c := range map[string]struct{ text, want string }{
		"no fragments":  {"fragments: []\n", ":1:12: fragments: must have at least 1 elements, but has 0"},
		"no rules":      {"fragments:\n- rules: []\n", ":2:10: fragments[0].rules: must have at least 1 elements, but has 0"},
		"unknown":       {"fragments: [{rules: [{mach: {}, " + ok + "}]}]\n", ":1:23: fragments[0].rules[0].mach: unknown key; did you mean match?"},
		"no match":      {"fragments: [{rules: [{" + ok + "}]}]\n", ":1:22: fragments[0].rules[0].match: is missing"},
		"no result":     {"fragments: [{rules: [{match: {any_match: true}}]}]\n", ":1:22: fragments[0].rules[0].result: is missing"},
		"empty match":   {"fragments: [{rules: [{match: {}, " + ok + "}]}]\n", ":1:30: fragments[0].rules[0].match: must have exactly one of [and_match any_match not_match or_match request_node_match request_type_match], but has []"},
		"two matches":   {"fragments: [{rules: [{match: {any_match: true, not_match: {any_match: true}}, " + ok + "}]}]\n", ":1:30: fragments[0].rules[0].match: must have exactly one of [and_match any_match not_match or_match request_node_match request_type_match], but has [any_match not_match]"},
		"any false":     {"fragments: [{rules: [{match: {any_match: false}, " + ok + "}]}]\n", ":1:42: fragments[0].rules[0].match.any_match: must be true"},
		"and of one":    {"fragments: [{rules: [{match: {and_match: {rules: [{any_match: true}]}}, " + ok + "}]}]\n", ":1:50: fragments[0].rules[0].match.and_match.rules: must have at least 2 elements, but has 1"},
		"types of none": {"fragments: [{rules: [{match: {request_type_match: {types: []}}, " + ok + "}]}]\n", ":1:59: fragments[0].rules[0].match.request_type_match.types: must have at least 1 elements, but has 0"},
		"regex":         {"fragments:\n- rules:\n  - match: {request_node_match: {id_match: {regex_match: \"(\"}}}\n    " + ok + "\n", ":3:58: fragments[0].rules[0].match.request_node_match.id_match.regex_match: error parsing regexp: missing closing ): `(`"},
		"no pattern":    {"fragments: [{rules: [{match: {any_match: true}, result: {request_node_fragment: {id_action: {regex_action: {replace: x}}}}}]}]\n", ":1:108: fragments[0].rules[0].result.request_node_fragment.id_action.regex_action.pattern: is missing"},
		"not exact":     {"fragments: [{rules: [{match: {any_match: true}, result: {request_node_fragment: {id_action: {exact: false}}}}]}]\n", ":1:101: fragments[0].rules[0].result.request_node_fragment.id_action.exact: must be true"},
		"empty result":  {"fragments: [{rules: [{match: {any_match: true}, result: {}}]}]\n", ":1:57: fragments[0].rules[0].result: must have exactly one of [and_result request_node_fragment resource_names_fragment string_fragment], but has []"},
		"no path":       {"fragments: [{rules: [{match: {request_node_match: {node_metadata_match: {match: {bool_match: {}}}}}, " + ok + "}]}]\n", ":1:73: fragments[0].rules[0].match.request_node_match.node_metadata_match.path: must have at least 1 elements, but has 0"},
		"no value":      {"fragments: [{rules: [{match: {request_node_match: {node_metadata_match: {path: [{key: a}]}}}, " + ok + "}]}]\n", ":1:73: fragments[0].rules[0].match.request_node_match.node_metadata_match.match: is missing"},
		"no locality":   {"fragments: [{rules: [{match: {any_match: true}, result: {request_node_fragment: {locality_action: {}}}}]}]\n", ":1:99: fragments[0].rules[0].result.request_node_fragment.locality_action: must have at least one of region_action, zone_action, subzone_action; the relay would refuse every node"},
		"field":         {"fragments: [{rules: [{match: {request_node_match: {field: 9, exact_match: x}}, " + ok + "}]}]\n", `:1:59: fragments[0].rules[0].match.request_node_match.field: must be a NodeFieldType, 0 to 4 or NODE_ID … NODE_LOCALITY_SUBZONE, but is "9"`},
		"element":       {"fragments: [{rules: [{match: {any_match: true}, result: {resource_names_fragment: {element: -1, action: {exact: true}}}}]}]\n", ":1:93: fragments[0].rules[0].result.resource_names_fragment.element: must not be negative, but is -1"},
		"wrong type":    {"fragments: [{rules: [{match: {request_node_match: {id_match: {exact_match: 5}}}, " + ok + "}]}]\n", ":1:76: fragments[0].rules[0].match.request_node_match.id_match.exact_match: must be a string, but is the integer 5; put it in quotes"},
		"and rules":     {"fragments: [{rules: [{match: {any_match: true}, " + ok + "}]}]\nrules: []\n", ":2:1: rules: unknown key"},
	} {
		_, file, err := compileFile(t, c.text)
		if err == nil || err.Error() != file+c.want {
			t.Errorf("%s:\n got %v\nwant %s", name, err, file+c.want)
		}
	}
}

func TestFragmentWarnings(t *testing.T) {
	types := func(urls ...string) string {
		return "{request_type_match: {types: [" + strings.Join(urls, ", ") + "]}}"
	}
	id := func(v string) string { return "{request_node_match: {id_match: {exact_match: " + v + "}}}" }
	meta := func(v string) string {
		return "{request_node_match: {node_metadata_match: {path: [{key: k}], match: {string_match: {exact_match: " + v + "}}}}}"
	}
	truth := func(v string) string {
		return "{request_node_match: {node_metadata_match: {path: [{key: k}], match: {bool_match: {value_match: " + v + "}}}}}"
	}
	regex := "{request_node_match: {cluster_match: {regex_match: a}}}"
	and := func(a, b string) string { return "{and_match: {rules: [" + a + ", " + b + "]}}" }
	or := func(a, b string) string { return "{or_match: {rules: [" + a + ", " + b + "]}}" }
	not := func(a string) string { return "{not_match: " + a + "}" }
	for _, c := range []struct {
		a, b string
		both bool
	}{
		{types(cds, lds), types(eds), false},
		{types(cds, lds), types(eds, lds), true},
		{types(cds), "{any_match: true}", true},
		{types(cds), not(types(cds, eds)), false},
		{types(cds, lds), not(types(cds)), true},
		{id("a"), id("b"), false},
		{id("a"), id("a"), true},
		{id("a"), regex, true},
		{regex, not(regex), false},
		{and(regex, id("a")), and(regex, id("b")), false},
		{and(types(cds, lds), regex), types(eds), false},
		{and(types(cds, lds), types(lds)), types(cds), false},
		{or(types(cds), types(lds)), types(eds), false},
		{or(types(cds), id("a")), types(eds), true},
		{or(id("a"), regex), not(id("a")), true},
		{not(or(id("a"), regex)), id("a"), false},
		{not(and(id("a"), regex)), id("a"), true},
		{meta("x"), meta("y"), false},
		{meta(`"true"`), truth("true"), false},
		{truth("true"), truth("false"), false},
		{truth("true"), not(truth("true")), false},
	} {
		r := compose(t, "[{match: "+c.a+", result: {string_fragment: x}}, {match: "+c.b+", result: {string_fragment: y}}]")
		if got := len(r.Warnings()) > 0; got != c.both {
			t.Errorf("%s, %s: %v", c.a, c.b, r.Warnings())
		}
	}
	r, file, err := compileFile(t, `fragments:
- rules:
  - match: {any_match: true}
    result: {string_fragment: ""}
- rules:
  - match: {request_type_match: {types: [`+cds+`]}}
    result: {resource_names_fragment: {element: 0, action: {exact: true}}}
  - match: {request_type_match: {types: [type.googleapis.com/envoy.api.v2.Cluster]}}
    result: {resource_names_fragment: {element: 1, action: {exact: true}}}
  - match: {any_match: true}
    result: {string_fragment: x}
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		":4:31: fragments[0].rules[0].result.string_fragment: is empty and adds nothing to the key",
		":7:39: fragments[1].rules[0].result.resource_names_fragment: adds nothing to the key (2 in this file): the requested names are the client's subscription",
		":8:5: fragments[1].rules[1]: has only types of the xDS v2 API, which no client requests; use the v3 types",
		":10:5: fragments[1]: rules[0] and rules[2] can both match a node; all matching rules add to the key, as in xds-relay",
	}
	var got []string
	for _, w := range r.Warnings() {
		got = append(got, strings.TrimPrefix(w.Error(), file))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"- key: node.id\n", "rules: [{match: 'node.cluster == \"a\"', key: [node.id, type]}]\n", "", "[", "fragments: &a [*a]\n",
		"fragments: [{rules: [{match: {any_match: true}, result: {string_fragment: s}}]}]\n",
		"fragments: [{rules: [{match: {and_match: {rules: [{any_match: true}, {not_match: {request_type_match: {types: [x]}}}]}}, result: {and_result: {result_predicates: [{string_fragment: s}, {resource_names_fragment: {action: {exact: true}}}]}}}]}]\n",
		"fragments:\n- rules:\n  - match: {request_node_match: {node_metadata_match: {path: [{key: a}], match: {bool_match: {value_match: true}}}}}\n    result: {request_node_fragment: {locality_action: {zone_action: {regex_action: {pattern: a, replace: $1}}}}}\n",
		"fragments: [{rules: [{match: {or_match: {rules: [{request_node_match: {field: 1, regex_match: a}}, {request_node_match: {locality_match: {zone: {exact_match: z}}}}]}}, result: {request_node_fragment: {field: NODE_ID, action: {exact: true}}}}]}]\n",
		"fragments: [null]\n", "? fragments\n", "fragments: [{rules: [{match: {notMatch: {}}, result: {}}]}]",
	} {
		f.Add([]byte(s))
	}
	nodes := []*xds.Node{node(f, edge), node(f, `{}`)}
	f.Fuzz(func(t *testing.T, src []byte) {
		set, err := parse("f.yaml", src)
		if err != nil {
			var faults config.Faults
			if !errors.As(err, &faults) || len(faults) == 0 || faults[0].Line < 1 {
				t.Errorf("not a list of faults: %v", err)
			}
			return
		}
		for _, n := range nodes {
			m, err := n.Decode()
			if err != nil {
				t.Fatal(err)
			}
			in := expr.Input{Node: m, Type: cds}
			v := set.evaluate(in)
			if (v.elements != nil) && (v.failed || v.elements[len(v.elements)-1] == "" || v.elements[0] == "") {
				t.Errorf("evaluation %+v", v)
			}
			if got := len(set.explain(in, v)); got != len(set.rules()) {
				t.Errorf("explains %d of %d rules", got, len(set.rules()))
			}
		}
	})
}
