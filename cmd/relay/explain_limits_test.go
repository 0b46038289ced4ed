package main

import (
	"path/filepath"
	"strings"
	"testing"

	"xdsrelay/internal/xdstest"
)

// explain --diff says which listeners would admit other clients, which have no counterpart, and
// that rules may be too large for a request.
func TestExplainDiffListsItsLimits(t *testing.T) {
	const quiet = "log: {level: error}\nupstream: {origins: [{address: 'file:.'}]}\nadmin: {address: '127.0.0.1:0'}\n"
	const one = "downstream: {drain: 0s, address: '127.0.0.1:0', identity: 'node.id != \"b\"', secrets: deny}\n"
	large := "- key: node.id\n" + strings.Repeat("# a comment that is as long as a line may be\n", 30_000)
	dir := xdstest.Files(t, map[string]string{
		"relay.yaml":    quiet + one,
		"identity.yaml": quiet + strings.Replace(one, `"b"`, `"c"`, 1),
		"secrets.yaml":  quiet + "downstream:\n  listeners:\n  - {address: '127.0.0.2:0'}\n  - {address: '127.0.0.1:0', identity: 'node.id != \"b\"', secrets: allow}\n",
		"moved.yaml":    quiet + "downstream: {address: '127.0.0.2:0', secrets: allow}\n",
		"large.yaml":    quiet + one + "aggregation: {file: rules.yaml}\n",
		"rules.yaml":    large,
	})
	at := running(t, filepath.Join(dir, "relay.yaml"))
	const keep = "all 0 clients keep their keys\n"
	const others = keep + "identity or secrets differ at 127.0.0.1:0: the relay would also end the clients that the new values refuse; they are not counted\n"
	const moved = "the relay has no listener at 127.0.0.2:0 until a restart: its identity and secrets were not compared\n"
	for name, want := range map[string]string{"relay.yaml": keep, "identity.yaml": others, "secrets.yaml": others + moved, "moved.yaml": keep + moved} {
		if code, out, errs := runRelay("explain", "--diff", filepath.Join(dir, name), "--admin", at); code != 0 || out != want {
			t.Errorf("%s: %d, %q %s, want %q", name, code, out, errs, want)
		}
	}
	if code, out, errs := runRelay("explain", "--diff", filepath.Join(dir, "moved.yaml"), "--admin", at, "-o", "json"); code != 0 || !strings.Contains(out, "\"elsewhere\": [\n    \"127.0.0.2:0\"\n  ]") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	code, out, errs := runRelay("explain", "--diff", filepath.Join(dir, "large.yaml"), "--admin", at)
	if code != 1 || !strings.Contains(errs, "aggregation.file: the rules have ") || !strings.Contains(errs, "a running relay takes at most 1048576 bytes for a comparison; the configuration file of the relay has no such limit") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
}
