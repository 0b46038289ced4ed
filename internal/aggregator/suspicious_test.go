package aggregator

import (
	"strings"
	"testing"

	"xdsrelay/internal/expr"
)

// Rules that cannot be meant have a warning, and usual ones have none.
func TestSuspiciousRules(t *testing.T) {
	for rules, want := range map[string]string{
		`[{key: node.cluster}, {match: node.id == "a", key: ['"a"', node.cluster]}]`:                                                "rules[1]: is never tried, because aggregation.rules[0] takes all nodes",
		`[{match: 'true', types: [EDS, CDS], key: '"x"'}, {types: [EDS], key: ['"a"', node.cluster]}, {key: ['"b"', '"c"', type]}]`: "rules[1]: is never tried",
		`[{types: [EDS], key: [node.cluster, '"e"']}, {key: node.cluster}]`:                                                         "",
		`[{match: 'false', key: '"x"'}, {key: [node.cluster, type]}]`:                                                               "rules[0]: matches no node",
		`[{match: type == "EDS", key: '"x"'}, {key: ['"y"', node.cluster]}]`:                                                        `rules[0]: compares type with "EDS", but type is a URL: write "` + eds + `", or types: [EDS]`,
		`[{match: '"cluster" != type', key: '"x"'}, {key: ['"y"', node.cluster]}]`:                                                  `rules[0]: compares type with "cluster", which is no type URL`,
		`[{match: type == "` + eds + `", key: '"x"'}, {key: ['"y"', node.cluster]}]`:                                                "",
		`[{types: [EDS], key: node.cluster}, {types: [CDS], key: node.cluster}]`:                                                    "rules[1]: and all other rules have types: the relay refuses",
		`[{types: [type.googleapis.com/envoy.api.v2.Cluster], key: '"x"'}, {key: ['"y"', node.cluster]}]`:                           "rules[0]: has the type type.googleapis.com/envoy.api.v2.Cluster of the xDS v2 API",
		`[{key: ['"a"', node.id]}]`: "rules[0]: key[1] is node.id",
		`[{key: '"all"'}]`:          "rules[0]: has a constant key",
		`[{types: [EDS], key: '"all"'}, {key: ['"a"', node.cluster]}]`:                       "",
		`[{key: 'node.cluster + "-" + node.locality.zone'}]`:                                 "rules[0]: key[0] joins values with +",
		`[{key: ['"a"', string(node.metadata.n)]}]`:                                          "rules[0]: key[1] has string(node.metadata.n): a number such as 12345678 becomes 1.2345678e+07, as a text with these characters does; write string(int(node.metadata.n)) for",
		`[{key: ['"a"', string(int(node.metadata.n))]}]`:                                     "",
		`[{key: '"edge-" + node.cluster'}]`:                                                  "",
		`[{match: node.id == "a", key: [node.cluster, type]}, {key: [type, node.cluster]}]`:  "rules[1]: can give the same key as aggregation.rules[0]",
		`[{match: node.id == "a", key: ['"a"', type]}, {key: ['"b"', node.cluster]}]`:        "",
		`[{match: node.id == "a", key: [node.cluster, type]}, {key: [node.cluster,  type]}]`: "",
	} {
		var got []string
		for _, w := range compile(t, "  rules: "+rules+"\n").Warnings() {
			got = append(got, strings.TrimPrefix(w.Key, "aggregation.")+": "+w.Reason)
		}
		if text := strings.Join(got, "\n"); len(got) > 1 || (text == "") != (want == "") || !strings.HasPrefix(text, want) {
			t.Errorf("%s:\n%s\nwant %s", rules, text, want)
		}
	}
	if w := compile(t, "  unmatched: node\n  rules: [{types: [EDS], key: node.cluster}]\n").Warnings(); len(w) > 0 {
		t.Error(w)
	}
}

func TestNeedsCertificate(t *testing.T) {
	r := compile(t, "  rules: [{key: node.cluster}, {match: peer.subject != \"\", key: ['peer.uri_sans[0]', node.cluster]}]\n")
	if where, names, ok := r.NeedsCertificate(); !ok || where.Key != "aggregation.rules[1]" || strings.Join(names, " ") != "peer.subject peer.uri_sans" {
		t.Error(where, names, ok)
	}
	if _, _, ok := compile(t, "  rules: [{key: [peer.address]}]\n").NeedsCertificate(); ok {
		t.Error("an address needs a certificate")
	}
}

// A key that two rules give to different nodes is found, unless their expressions are the same.
func TestSharedKeys(t *testing.T) {
	r := compile(t, `
  rules:
    - {match: has(node.metadata.NAMESPACE), key: [node.metadata.NAMESPACE, node.metadata.app]}
    - {match: node.id == "same", key: [node.cluster, node.locality.zone]}
    - key: [node.cluster, node.locality.zone]
`)
	give := func(text string) {
		t.Helper()
		if _, err := r.Key(node(t, text), expr.Peer{}, ""); err != nil {
			t.Fatal(err)
		}
	}
	give(`{"cluster": "edge-web", "locality": {"zone": "eu-1"}}`)
	give(`{"id": "same", "cluster": "edge-web", "locality": {"zone": "eu-1"}}`)
	give(`{"metadata": {"NAMESPACE": "edge-web", "app": "eu-2"}}`)
	if got := r.Shared(); got != nil {
		t.Fatalf("%+v", got)
	}
	give(`{"metadata": {"NAMESPACE": "edge-web", "app": "eu-1"}}`)
	give(`{"metadata": {"NAMESPACE": "edge-web", "app": "eu-1", "x": 1}}`)
	got := r.Shared()
	if len(got) != 1 || got[0].Key.String() != "edge-web/eu-1" || got[0].Rules != [2]string{"aggregation.rules[2]", "aggregation.rules[0]"} || got[0].Since.IsZero() {
		t.Errorf("%+v", got)
	}
}
