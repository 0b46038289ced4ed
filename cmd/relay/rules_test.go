package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// An operator sees that a rule is too coarse or matches nobody, and asks for the key of a client.
func TestRulesAndDifferences(t *testing.T) {
	o := &operated{TB: t}
	o.configured(`log: {level: error}
downstream: {address: '127.0.0.1:0', drain: 0s}
upstream: {origins: [{address: 'file:origin'}]}
admin: {address: '127.0.0.1:0'}
aggregation:
  rules:
    - {match: has(node.metadata.LABEL.app), key: ['"app"', node.metadata.LABEL.app]}
    - {match: node.id.startsWith("edge-"), types: [CDS], key: ['"edge"', '"all"']}
    - key: [node.cluster, node.locality.zone]
`)
	o.start()
	for i := range 3 {
		o.client(fmt.Sprint("edge-", i), fmt.Sprint("cluster-", i%2), xds.Delta).take().answer("")
	}
	o.client("web", "web", xds.Delta)
	o.until([]string{"rules"}, "aggregation.rules[2] failed for node web")
	_, out := o.run("rules", "-o", "wide")
	for _, want := range []string{
		"aggregation.rules[0] DIR/relay.yaml:7 0 0 4 has(node.metadata.LABEL.app) \"app\", node.metadata.LABEL.app",
		"aggregation.rules[1] DIR/relay.yaml:8 3 1 0 node.id.startsWith(\"edge-\") for CDS \"edge\", \"all\"",
		"aggregation.rules[2] DIR/relay.yaml:9 0 0 1 true node.cluster, node.locality.zone",
		"! aggregation.rules[2] failed for node web,",
		"key[1]: the value is empty",
		"! aggregation.rules[0] (DIR/relay.yaml:7:7) gives no key to any node of 3 clients.",
		"! aggregation.rules[0] reads node.metadata.LABEL.app, which is in no node of 3 clients.",
	} {
		if got := strings.ReplaceAll(strings.Join(strings.Fields(out), " "), o.dir, "DIR"); !strings.Contains(got, want) {
			t.Errorf("%s\nwant %s", out, want)
		}
	}
	if _, out := o.run("keys", "-o", "wide"); !strings.Contains(out, "DIFFERS") || !strings.Contains(out, "cluster: 2 values") {
		t.Error(out)
	}
	if _, out := o.run("keys"); strings.Contains(out, "DIFFERS") {
		t.Error(out)
	}
	if code, out := o.run("explain", "edge-1", "--type", "CDS"); code != 0 || !strings.Contains(out, "node     edge-1\ncluster  cluster-1\n\ntype     CDS\nkey      edge/all\n") {
		t.Errorf("%d %s", code, out)
	}
	if code, out, errs := runRelay("explain", "nobody", "--admin", o.admin); code != 1 || !strings.Contains(errs, `no client has the node id "nobody"`) {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, _, errs := runRelay("explain", "edge-1", "--node", "-", "--admin", o.admin); code != 1 || !strings.Contains(errs, "NODE cannot be used with --node") {
		t.Errorf("%d %s", code, errs)
	}
}

// explain has the node that the program of a bootstrap sends, and the node that the origin sees.
func TestExplainOfBootstraps(t *testing.T) {
	dir := xdstest.Files(t, map[string]string{"relay.yaml": `upstream:
  origins: [{address: 'file:.'}]
  node: 'Node{cluster: node.metadata.tenant}'
aggregation:
  rules:
    - {match: node.user_agent_name.startsWith("gRPC"), key: ['"grpc"', node.cluster]}
    - {match: node.user_agent_name == "envoy", key: ['"envoy"', node.cluster]}
`, "tenant.yaml": "id: a\ncluster: edge\nuser_agent_name: envoy\nmetadata: {tenant: t}\n"})
	clients, err := filepath.Glob("../../config/clients/*")
	if err != nil || len(clients) == 0 {
		t.Fatal(err)
	}
	explain := func(file string) (int, string) {
		code, out, errs := runRelay("explain", "--config", filepath.Join(dir, "relay.yaml"), "--node", file)
		return code, out + errs
	}
	for _, file := range clients {
		program := "envoy"
		if strings.HasPrefix(filepath.Base(file), "grpc") {
			program = "gRPC"
		}
		code, out := explain(file)
		if code != 1 || !strings.Contains(out, "\nagent    "+program+" (assumed") || !strings.Contains(out, "\nkey      "+strings.ToLower(program)+"/") ||
			!strings.Contains(out, "\norigin   upstream.node fails, and the relay refuses the client: no such key: tenant\n") {
			t.Errorf("%s: %d %s", file, code, out)
		}
	}
	code, out := explain(filepath.Join(dir, "tenant.yaml"))
	if code != 0 || !strings.Contains(out, `{"cluster":"t"}`) || !strings.Contains(out, "\nwarning  upstream.node sets no id") || strings.Contains(out, "assumed") {
		t.Errorf("%d %s", code, out)
	}
	xdstest.WriteFile(t, filepath.Join(dir, "null.json"), `{"node": null}`)
	if code, out := explain(filepath.Join(dir, "null.json")); code != 1 || !strings.Contains(out, "node: is null; must be a node") {
		t.Errorf("%d %s", code, out)
	}
}
