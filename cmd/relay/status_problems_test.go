package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/admin/overview"
	"xdsrelay/internal/xdstest"
)

func TestProblemLine(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	then := now.Add(-2 * time.Minute)
	for _, c := range []struct {
		p    overview.Problem
		want string
	}{
		{overview.Problem{Text: "the relay is draining"}, "the relay is draining"},
		{overview.Problem{Text: "origin one is away: refused\x1b[31m", Since: &then}, "origin one is away: refused\\x1b[31m (for 2m00s)"},
		{overview.Problem{Text: "the relay refused a stream", Last: &then}, "the relay refused a stream (last 2m00s ago)"},
	} {
		if got := problemLine(&c.p, now); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// Problems with the same impact and next step share one line with both.
func TestProblemsAreGrouped(t *testing.T) {
	of := func(text, impact string) overview.Problem {
		return overview.Problem{Severity: overview.Error, Text: text, Impact: impact, Next: "Look."}
	}
	problems := []overview.Problem{of("origin 0 is silent", "No changes."), of("the store is off", "Nothing is stored.")}
	for i := range 190 {
		problems = append(problems, of(fmt.Sprintf("origin %d is silent", i+1), "No changes."))
	}
	warning := of("origin 200 is silent", "No changes.")
	warning.Severity = overview.Warning
	var out bytes.Buffer
	printProblems(&out, append(problems, warning), time.Now())
	if want := "! origin 0 is silent\n! origin 1 is silent\n! origin 2 is silent\n  and 188 more like this\n  No changes. Look.\n" +
		"! the store is off\n  Nothing is stored. Look.\n! origin 200 is silent\n  No changes. Look.\n"; out.String() != want {
		t.Errorf("%s", &out)
	}
}

// relay status prints a running relay's problems beside its table, with the impact.
func TestStatusPrintsProblems(t *testing.T) {
	o := operate(t, "")
	if code, out, errs := runRelay("status", "--admin", o.admin); code != 0 || strings.Contains(out, "!") || errs != "" {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if code, _, errs := runRelay("status", "--check", "--admin", o.admin); code != 0 || errs != "" {
		t.Errorf("--check without problems: %d %s", code, errs)
	}
	if err := os.WriteFile(filepath.Join(o.dir, "origin", "bad.yaml"), []byte("resources: [{]"), 0o600); err != nil {
		t.Fatal(err)
	}
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
	dir := files(t, map[string]string{"relay.yaml": "upstream: {origins: [" + origins + "]}\ndownstream: {address: '127.0.0.1:0', drain: 0s}\n" +
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
