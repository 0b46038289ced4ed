package main

import (
	"path/filepath"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"xdsrelay/internal/xdstest"
)

// An origin answers nodes of two clusters differently. explain --compare shows that by type and name.
func TestExplainCompare(t *testing.T) {
	origin := xdstest.StartOrigin(t, xdstest.OriginOptions{})
	cluster := func(name, alt string) *clusterv3.Cluster {
		return &clusterv3.Cluster{Name: name, AltStatName: alt, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}}
	}
	for node, alt := range map[string]string{"east": "near", "west": "far", "north": "near"} {
		origin.Put(node, cluster("a", ""), cluster("b", alt), &endpointv3.ClusterLoadAssignment{ClusterName: "a"},
			&endpointv3.ClusterLoadAssignment{ClusterName: "b", NamedEndpoints: map[string]*endpointv3.Endpoint{alt: {}}}, xdstest.Listener("l", "r", 1), xdstest.Routes("r", "a", 1))
	}
	upstream := "origins: [{address: '" + origin.Address + "'}], first_answer_timeout: 10s"
	dir := xdstest.Files(t, map[string]string{
		"relay.yaml": "upstream: {" + upstream + "}\naggregation: {rules: [{key: ['\"x\"', '\"all\"']}]}\n",
		"gone.yaml":  "upstream: {origins: [{address: '" + xdstest.FreeAddress(t) + "'}], first_answer_timeout: 10ms}\n",
		"mine.yaml":  "upstream: {node: 'Node{id: \"relay\"}', " + upstream + "}\n",
		"token.yaml": "upstream: {origins: [{address: '" + origin.Address + "', token: representative}]}\n" +
			"downstream: {tokens: {issuer: i, audiences: [a], jwks_file: none}}\n",
		"a.json": `{"id": "a", "cluster": "east"}`,
		"b.json": `{"id": "b", "cluster": "west"}`,
		"c.json": `{"id": "c", "cluster": "north"}`,
	})
	compare := func(config string, nodes ...string) (int, string) {
		args := []string{"explain", "--config", filepath.Join(dir, config), "--compare"}
		for _, n := range nodes {
			args = append(args, filepath.Join(dir, n))
		}
		code, out, errs := runRelay(args...)
		return code, strings.ReplaceAll(out+errs, dir, "DIR")
	}
	code, out := compare("relay.yaml", "a.json", "b.json")
	for _, want := range []string{
		"DIR/a.json: node a, key x/all\n", "CDS: 1 equal, 1 differ\n--- b for DIR/a.json\n+++ b for DIR/b.json\n",
		"+alt_stat_name: far\n", "EDS: 1 equal, 1 differ\n", "LDS: 1 equal, 0 differ\n", "the rule is too coarse",
	} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%d %s\nwant %s", code, out, want)
		}
	}
	code, out = compare("relay.yaml", "a.json", "c.json")
	if code != 0 || !strings.Contains(out, "CDS: 2 equal, 0 differ\n") || !strings.Contains(out, "EDS: 2 equal, 0 differ\n") || !strings.Contains(out, "Nothing differs: the nodes can share their key.") {
		t.Errorf("%d %s", code, out)
	}
	if code, out := compare("gone.yaml", "a.json", "b.json"); code != 1 || !strings.HasSuffix(out, "The answers are not complete.\n") {
		t.Errorf("%d %s", code, out)
	}
	if code, out := compare("mine.yaml", "a.json", "b.json"); code != 1 || !strings.Contains(out, "the origin would see the same node for both") {
		t.Errorf("%d %s", code, out)
	}
	if code, out := compare("token.yaml", "a.json", "b.json"); code != 1 || !strings.Contains(out, "token: representative") {
		t.Errorf("%d %s", code, out)
	}
	if code, out := compare("relay.yaml", "a.json"); code != 1 || !strings.Contains(out, "--compare: takes the files of two nodes") {
		t.Errorf("%d %s", code, out)
	}
}
