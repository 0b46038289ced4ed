package main

import (
	"slices"
	"strings"
	"testing"

	"xdsrelay/internal/xds"
)

// completed is what a shell is given to choose from, and whether it adds files.
func completed(t *testing.T, args ...string) (choices []string, files bool) {
	t.Helper()
	code, out, _ := runRelay(append([]string{"__complete"}, args...)...)
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	directive := lines[len(lines)-1]
	if code != 0 || directive != ":0" && directive != ":4" {
		t.Fatalf("%v: %d %q", args, code, out)
	}
	return lines[:len(lines)-1], directive == ":0"
}

func TestCompletionAsksTheRelay(t *testing.T) {
	o := operate(t, "")
	o.client("web-0", "edge", xds.Delta).take().answer("")
	// Names with control characters are not offered.
	o.client("web-\x1b[31m", "edge", xds.Delta).take().answer("")
	o.client("web-\nx", "edge", xds.Delta).take().answer("")
	o.until([]string{"status"}, "3 SYNCED")
	o.gives("v2", "a", "two", "b", "one")
	o.until([]string{"status", "-o", "json"}, `"v2"`)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"status", "--key", ""}, "edge"},
		{[]string{"status", "--key", "ed"}, "edge"},
		{[]string{"status", "--node", ""}, "web-0"},
		{[]string{"status", "--node", "web"}, "web-0"},
		{[]string{"status", "--state", ""}, "SYNCED UNCONFIRMED NOT_SENT STALE NACKED"},
		{[]string{"status", "--state", "STALE,"}, "STALE,SYNCED STALE,UNCONFIRMED STALE,NOT_SENT STALE,NACKED"},
		{[]string{"diff", "--node", "web"}, "web-0"},
		{[]string{"nacks", "--key", ""}, "edge"},
		{[]string{"dump", "--key", ""}, "edge"},
		{[]string{"dump", "--key", "edge", "--name", ""}, "a b"},
		{[]string{"dump", "--key", "edge", "--type", "CDS", "--name", "b"}, "b"},
		{[]string{"dump", "--key", "edge", "--type", "LDS", "--name", ""}, ""},
		{[]string{"dump", "--name", ""}, ""},
		{[]string{"wait", "--key", "edge", "--type", "CDS", "--version", ""}, "v2 v1"},
		{[]string{"wait", "--key", "edge", "--type", "LDS", "--version", ""}, ""},
		{[]string{"wait", "--version", ""}, ""},
	} {
		args := append([]string{c.args[0], "--admin", o.admin}, c.args[1:]...)
		if got, files := completed(t, args...); strings.Join(got, " ") != c.want || files {
			t.Errorf("%v: %q, files %v", c.args, got, files)
		}
	}
	// Without a relay there are no choices and no error.
	if got, files := completed(t, "status", "--admin", "127.0.0.1:1", "--key", ""); len(got) > 0 || files {
		t.Errorf("%q %v", got, files)
	}
}

// Only flags for files complete files.
func TestCompletionOffersFilesForFiles(t *testing.T) {
	for _, c := range []struct {
		args  []string
		has   string
		files bool
	}{
		{[]string{"status", "-o", ""}, "yaml", false},
		{[]string{"validate", "-o", ""}, "text", false},
		{[]string{"wait", "--type", ""}, "CDS", false},
		{[]string{"explain", "--type", ""}, "EDS", false},
		{[]string{"wait", "--percent", ""}, "", false},
		{[]string{"wait", "--timeout", ""}, "", false},
		{[]string{"status", "--admin", ""}, "", false},
		{[]string{"demo", "--clients", ""}, "", false},
		{[]string{"serve", "--upstream.v"}, "--upstream.variant", false},
		{[]string{"status", "--config", ""}, "", true},
		{[]string{"status", "--token-file", ""}, "", true},
		{[]string{"explain", "--node", ""}, "", true},
		{[]string{"explain", "--diff", ""}, "", true},
	} {
		if got, files := completed(t, c.args...); files != c.files || c.has != "" && !slices.Contains(got, c.has) || c.has == "" && len(got) > 0 {
			t.Errorf("%v: %q, files %v", c.args, got, files)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, out, _ := runRelay("completion", shell); code != 0 || !strings.Contains(out, "relay") {
			t.Errorf("%s: %d", shell, code)
		}
	}
}
