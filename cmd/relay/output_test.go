package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// The output of each command has the fields of its schema in docs/schemas, and no others.
func TestOutputsConformToSchemas(t *testing.T) {
	member := operateCluster(t, "relay-1")[0]
	o := operate(t, "")
	good, bad := o.client("good", "edge", xds.SotW), o.client("bad", "edge", xds.Delta)
	good.take().answer("")
	bad.take().answer("")
	o.until([]string{"status"}, "2 SYNCED")
	o.gives("v2", "a", "two", "b", "one")
	good.take()
	bad.take().answer("cluster a: no")
	o.until([]string{"status"}, "1 STALE, 1 NACKED")
	xdstest.WriteFile(t, filepath.Join(o.dir, "origin", "bad.yaml"), "resources: [{]")
	o.until([]string{"origins", "-o", "json"}, "bad.yaml")
	in := func(name string) string { return filepath.Join(o.dir, name) }
	for name, text := range map[string]string{
		"node.json":   `{"id": "n", "cluster": "edge"}`,
		"other.json":  `{"id": "o", "cluster": "edge"}`,
		"new.yaml":    "upstream: {first_answer_timeout: 1s, origins: [{address: 'file:origin'}]}\naggregation: {rules: [{match: 'node.id == \"good\"', key: node.id}]}\n",
		"faulty.yaml": "upstream: {origins: [{address: 'file:none'}]}\nlog: {level: loud}\n",
	} {
		xdstest.WriteFile(t, in(name), text)
	}
	seen := map[string]bool{}
	for _, c := range []struct {
		schema string
		args   []string
		code   int
		has    string // the output shows that it is not a trivial one
	}{
		{"status", []string{"status"}, 0, "last_nack"},
		{"status-summary", []string{"status", "--summary"}, 0, "user_agents"},
		{"keys", []string{"keys"}, 0, "NACKED"},
		{"members", []string{"members"}, 0, "keys_owned"},
		{"nacks", []string{"nacks"}, 0, "cluster a: no"},
		{"nacks", []string{"nacks", "--diff"}, 0, "+alt_stat_name: two"},
		{"origins", []string{"origins"}, 0, "bad.yaml"},
		{"rules", []string{"rules"}, 0, "aggregation.rules"},
		{"reload", []string{"reload"}, 0, "unchanged"},
		{"diff", []string{"diff", "bad"}, 0, "+alt_stat_name: two"},
		{"dump", []string{"dump", "--key", "edge"}, 0, "alt_stat_name"},
		{"wait", []string{"wait", "--key", "edge", "--type", "CDS", "--version", "v2", "--every", "10ms"}, 3, "nacking_client"},
		{"explain-diff", []string{"explain", "--diff", in("new.yaml")}, 0, "good"},
		{"explain-compare", []string{"explain", "--compare", in("node.json"), in("other.json"), "--config", in("new.yaml")}, 1, "no aggregation rule"},
		{"explain", []string{"explain", "--config", in("new.yaml"), "--node", in("node.json")}, 1, "no aggregation rule"},
		{"validate", []string{"validate", "--config", in("faulty.yaml")}, 1, "log.level"},
		{"version", []string{"version"}, 0, "linux"},
	} {
		seen[c.schema] = true
		args := append(c.args, "-o", "json")
		switch {
		case c.schema == "members":
			args = append(args, "--admin", member.admin)
		case !strings.Contains("explain validate version", c.schema):
			args = append(args, "--admin", o.admin)
		}
		code, out, errs := runRelay(args...)
		if code != c.code || !strings.Contains(out, c.has) {
			t.Errorf("%v: %d\n%s%s", c.args, code, out, errs)
		}
		text, err := os.ReadFile("../../docs/schemas/" + c.schema + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var schema map[string]any
		var v any
		if err := json.Unmarshal(text, &schema); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Fatalf("%v: %v\n%s", c.args, err, out)
		}
		if err := conforms("", schema, v); err != nil {
			t.Errorf("%v: %v\n%s", c.args, err, out)
		}
	}
	for name := range outputs {
		if !seen[name] {
			t.Errorf("no output is compared with the schema of %s", name)
		}
	}
}
