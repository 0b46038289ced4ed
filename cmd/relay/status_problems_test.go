package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"
)

// relay status prints a running relay's problems beside its table, with the impact.
func TestStatusPrintsProblems(t *testing.T) {
	o := operate(t, "")
	if code, out, errs := runRelay("status", "--admin", o.admin); code != 0 || strings.Contains(out, "!") || errs != "" {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, _, errs := runRelay("status", "--check", "--admin", o.admin); code != 0 || errs != "" {
		t.Errorf("--check without problems: %d %s", code, errs)
	}
	xdstest.WriteFile(t, filepath.Join(o.dir, "origin", "bad.yaml"), "resources: [{]")
	for deadline := time.After(20 * time.Second); ; {
		code, out, errs := runRelay("status", "--admin", o.admin)
		if code == 0 && strings.Contains(out, "\n! origin ") && strings.Contains(out, "bad.yaml") && strings.Contains(out, "\n  The previous content") && errs == "" {
			if code, out, errs := runRelay("status", "--no-headers", "--admin", o.admin); code != 0 || out != "" || !strings.HasPrefix(errs, "! origin ") {
				t.Errorf("--no-headers: %d %q %q", code, out, errs)
			}
			for _, more := range []string{"--summary", "--state=SYNCED"} {
				if code, checked, _ := runRelay("status", "--check", more, "--admin", o.admin); code != 1 || !strings.Contains(checked, "bad.yaml") {
					t.Errorf("--check %s: %d %s", more, code, checked)
				}
			}
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%d %q %q", code, out, errs)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// The problems of five origins with the same impact and next step are shown as one.
func TestStatusGroupsProblems(t *testing.T) {
	origins := ""
	for i := range 5 {
		origins += fmt.Sprintf("{address: 'file:none-%d'}, ", i)
	}
	dir := xdstest.Files(t, map[string]string{"relay.yaml": "upstream: {origins: [" + origins + "]}\ndownstream: {address: '127.0.0.1:0', drain: 0s}\n" +
		"log: {level: error}\nadmin: {address: '127.0.0.1:0'}\n"})
	at := running(t, filepath.Join(dir, "relay.yaml"))
	for _, args := range [][]string{{"status"}, {"status", "--summary"}} {
		xdstest.Eventually(t, "the problems of all origins", func() error {
			code, out, _ := runRelay(append(args, "--admin", at)...)
			if code != 0 || strings.Count(out, "has never been reached") != 3 || strings.Count(out, "\n  and 2 more like this\n  The relay refuses new clients") != 1 {
				return fmt.Errorf("%d %s", code, out)
			}
			return nil
		})
	}
}
