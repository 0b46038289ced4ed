package aggregator

import (
	"fmt"
	"strings"
	"testing"

	"xdsrelay/internal/xds"
)

func TestParseNode(t *testing.T) {
	const tabs = "{\n\t\"id\": \"a\",\n\t\"cluster\": \"b\"\n}"
	for text, want := range map[string]string{
		`{"id": "a", "cluster": "b"}`:                            "a b",
		"id: a\ncluster: b\n":                                    "a b",
		"# a comment\n---\nid: a\n...\n":                         "a ",
		`{"node": {"id": "a"}, "static_resources": {}}`:          "a ",
		"admin: {}\nnode:\n  id: a\ndynamic_resources: {}\n":     "a ",
		"admin: &x {}\nnode: {id: a}\nother: *x\n":               "a ",
		"id: a\n---\naddress: 10.0.0.1\n":                        "a  10.0.0.1",
		tabs + "\n---\n" + `{"address": "x", "uri_sans": ["u"]}`: "a b x u",
		"---\n---\nid: a\n---\n---\n":                            "a ",
		"":                                                       "error: must have a node, but is empty",
		"# nothing":                                              "error: must have a node, but is empty",
		"[]":                                                     "error: ",
		"text":                                                   "error: ",
		"id: [":                                                  "error: line 1: ",
		"id: a\nclutser: b\n":                                    `error: must be a node, or a bootstrap with a node: unknown field "clutser"`,
		`{"id": "n1", "clutser": "edge"}`:                        `error: must be a node, or a bootstrap with a node: (line 1:14): unknown field "clutser"`,
		"node:\n  metadata: {a: &a [x], b: [*a, *a]}\n":          "error: line 2: YAML aliases are not supported; write out the value of *a",
		"node: {id: a, clutser: b}\n":                            `error: unknown field "clutser"`,
		"id: a\n---\nuri_san: [a]\n":                             "error: peer: line 3: unknown field uri_san; the fields are address, uri_sans, dns_sans, subject and token",
		"id: a\n---\nuri_sans: 1\n":                              "error: peer: line 3: ",
		"id: a\n---\naddress: &a x\nsubject: *a\n":               "error: peer: line 4: YAML aliases",
		"id: a\n---\naddress: b\n---\nid: c\n":                   "error: line 5: must have at most two documents",
		"id: a\nmetadata: " + strings.Repeat("{a: ", 20_000) + "\n": "error: ",
	} {
		in, err := ParseNode([]byte(text), new(xds.NodeTable))
		n, peer := in.Node, in.Peer
		got := fmt.Sprintf("error: %v", err)
		if err == nil {
			got = strings.TrimRight(strings.Join(append([]string{n.ID, n.Cluster, peer.Address}, peer.URISANs...), " "), " ")
			want = strings.TrimRight(want, " ")
			if got == want {
				continue
			}
		}
		if err == nil || !strings.HasPrefix(strings.ReplaceAll(got, "\u00a0", " "), want) {
			t.Errorf("%.60q: %.200s, want %s", text, got, want)
		}
	}
}

// A bootstrap's program adds to its node. The parts that the result depends on are known as such.
func TestParseBootstrap(t *testing.T) {
	for text, want := range map[string]string{
		"node: {id: a}\nadmin: {}\n":                                    "envoy envoy [cluster user_agent_build_version client_features extensions]",
		`{"node": {"id": "a", "cluster": "c", "user_agent_name": "x"}}`: "envoy x [user_agent_build_version client_features extensions]",
		`{"xds_servers": [], "node": {"id": "a"}}`:                      "gRPC gRPC [the rest of user_agent_name user_agent_version client_features]",
		"xds_servers: []\nnode: {id: a}\n":                              "gRPC gRPC [the rest of user_agent_name user_agent_version client_features]",
		`{"id": "a"}`:                                                   "  []",
		`{"node": null}`:                                                "node: is null; must be a node",
		"node:\nadmin: {}\n":                                            "line 1: node: is null; must be a node",
	} {
		in, err := ParseNode([]byte(text), new(xds.NodeTable))
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprintf("%s %s %v", in.Program, in.Node.UserAgent, in.Unknown())
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func FuzzParseNode(f *testing.F) {
	for _, text := range []string{`{"id": "a"}`, "node: {id: a}\n---\naddress: b\n", "a: &a [*a]", "---\n", "id: !!binary x"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(_ *testing.T, text []byte) {
		_, _ = ParseNode(text, new(xds.NodeTable)) // no panic; an error for what is no node
		_, _ = ParsePeer(text)
	})
}
