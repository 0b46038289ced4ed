package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// P80: validate finds files of a directory that cannot be served, with their places.
func TestP80_ValidateReadsDirectories(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const cluster = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	clusters := func(name string) string {
		return "resources:\n- {\"@type\": " + cluster + ", name: " + name + "}\n"
	}
	put("relay.yaml", "upstream:\n  origins: [{address: \"file:xds\"}]\n")
	put("xds/a.yaml", clusters("web"))
	put("xds/b.yaml", clusters("api"))
	put("xds/notes.txt", "no file of the origin's")
	file := filepath.Join(dir, "relay.yaml")
	if code, out, errs := runRelay("validate", "--config", file); code != 0 {
		t.Fatalf("%d %s%s", code, out, errs)
	}
	put("xds/b.yaml", clusters("web"))
	put("xds/c.yaml", "resources:\n- {name: web\n")
	put("xds/d.yaml", clusters("late")+"# a comment\n- \"@type\": "+cluster+"\n  connect_timeout: 5\n")
	code, out, errs := runRelay("validate", "--config", file)
	if code != 1 || errs != "" {
		t.Fatalf("%d %s%s", code, out, errs)
	}
	// The file is the origin's, not the configuration.
	const key = "upstream.origins[0].address: "
	for _, want := range []string{
		filepath.Join(dir, "xds", "b.yaml") + ": " + key + `duplicate resource name: "web", also in a.yaml` + "\n",
		filepath.Join(dir, "xds", "c.yaml") + ": " + key + "unreadable: document 1: yaml: line 2: ",
		filepath.Join(dir, "xds", "d.yaml") + ": " + key + "unreadable: resources[1]: syntax error: unexpected token [redacted]\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}
