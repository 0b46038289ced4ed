package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The list is that of the protocol's rules.
func TestRulesAreAllThere(t *testing.T) {
	rules, err := parseRules(rulesText)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, span := range [][2]int{{1, 6}, {10, 28}, {30, 39}, {50, 65}, {70, 72}, {80, 80}} {
		for n := span[0]; n <= span[1]; n++ {
			want = append(want, fmt.Sprint("P", n))
		}
	}
	var got []string
	for _, r := range rules {
		got = append(got, r.id)
		if r.section == "" {
			t.Errorf("%s is in no section", r.id)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the rules are %v, want %v", got, want)
	}
}

func TestParseRules(t *testing.T) {
	rules, err := parseRules("# note\n\n= One\nP1 all What.\nP2 down=sotw,ads  What | else.\n= Two\nP3 none No.")
	if err != nil || len(rules) != 3 {
		t.Fatal(rules, err)
	}
	if r := rules[1]; r.id != "P2" || r.section != "One" || r.text != "What | else." || len(r.where) != 2 ||
		r.where[0] != (place{"sotw", "sotw", "ads"}) || r.where[1] != (place{"delta", "sotw", "ads"}) {
		t.Errorf("%+v", r)
	}
	if len(rules[0].where) != 8 || len(rules[2].where) != 0 || rules[2].section != "Two" {
		t.Errorf("%+v", rules)
	}
	for text, fault := range map[string]string{
		"P1 all":                 "rules.txt:1: no rule",
		"\nP1 up What.":          `rules.txt:2: "up" says not where`,
		"P1 all a.\nP1 all b.":   "rules.txt:2: P1 is there twice",
		"P1 all a.\nno rule, no": "rules.txt:2: no rule",
	} {
		if _, err := parseRules(text); err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%q: %v, want %s", text, err, fault)
		}
	}
}

// lay lays a small module out.
func lay(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestGather(t *testing.T) {
	root := lay(t, map[string]string{
		"a/a_test.go":                     "package a\nfunc TestP1_P2_Both() {}\nfunc TestP3_Late() {}\nfunc TestOther() {}\nfunc TestScripts() {}\n",
		"a/testdata/scripts/p2-steps.txt": "",
		"a/testdata/scripts/p9-new.txt":   "",
		"other/go.mod":                    "module other",
		"other/o_test.go":                 "package o\nfunc TestP1_Elsewhere() {}\n",
	})
	files, err := sources(root)
	if err != nil {
		t.Fatal(err)
	}
	const pkg = "xdsrelay/a"
	proofs, missing := gather([]result{
		{pkg, "TestP1_P2_Both/sotw-delta/ads", "pass"},
		{pkg, "TestP1_P2_Both/delta-delta/per-type", "fail"},
		{pkg, "TestP1_P2_Both/delta-sotw/else", "pass"},
		{pkg, "TestP1_P2_Both", "fail"},
		{pkg, "TestScripts/p2-steps/delta", "pass"},
		{pkg, "TestScripts/p2-steps", "pass"},
		{pkg, "TestOther", "pass"},
	}, files)
	var got []string
	for _, p := range proofs {
		got = append(got, fmt.Sprint(p.rule, " ", p.file, " ", p.name, p.scope(), " ", len(p.failed)))
	}
	want := []string{
		"P1 a/a_test.go TestP1_P2_Both (sotw-delta/ads) 2",
		"P2 a/a_test.go TestP1_P2_Both (sotw-delta/ads) 2",
		"P2 a/testdata/scripts/p2-steps.txt TestScripts/p2-steps (incremental) 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("proofs are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if want := []string{"a/a_test.go: TestP3_Late was not run", "a/testdata/scripts/p9-new.txt: p9-new was not run"}; !slices.Equal(missing, want) {
		t.Errorf("missing are %q, want %q", missing, want)
	}
}

// The check fails on a rule without a test, a gap, a failure, a skipped test
// that was all there was, and an id of no rule.
func TestFaults(t *testing.T) {
	rules, err := parseRules("= S\nP1 down=sotw,ads What.\nP2 none Proven.\nP3 none Nobody.\nP4 none Skipped.\nP5 none Failed.")
	if err != nil {
		t.Fatal(err)
	}
	b := &book{rules: rules, proofs: []*proof{
		{rule: "P1", file: "f", name: "n", passed: true, places: map[place]bool{{"sotw", "sotw", "ads"}: true}},
		{rule: "P2", file: "f", name: "n", passed: true},
		{rule: "P4", file: "f", name: "n", skipped: []string{"n"}},
		{rule: "P5", file: "f", name: "n", passed: true, failed: []string{"n/sub"}},
		{rule: "P99", file: "f", name: "n", passed: true},
	}}
	want := []string{
		"P1 has no test in delta-sotw/ads",
		"P3 has no test that passed: Nobody.",
		"P4 has no test that passed: Skipped.",
		"P5: n/sub failed (f)",
		"f: n bears the id of no rule: P99",
	}
	if got := b.faults(); !slices.Equal(got, want) {
		t.Errorf("faults are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestPage(t *testing.T) {
	rules, err := parseRules("= S\nP1 down=sotw What | else.\nP2 ads Order.")
	if err != nil {
		t.Fatal(err)
	}
	b := &book{rules: rules, mutants: map[string]int{"P2": 3}, proofs: []*proof{
		{rule: "P1", file: "a/b_test.go", name: "TestP1_X", passed: true,
			places: map[place]bool{{"sotw", "sotw", "ads"}: true, {"sotw", "sotw", "per-type"}: true, {"delta", "sotw", "per-type"}: true,
				{"delta", "delta", "ads"}: true}}, // where P1 is nothing to be seen of
		{rule: "P2", file: "a/b_test.go", name: "TestP2_Y", passed: true, variants: map[string]bool{"sotw": true, "delta": true}},
	}}
	b.keep()
	got := b.page()
	for _, want := range []string{
		"\n## S\n",
		"| P1 | What \\| else. | ADS, per type | – | per type | – | [1](#p1) |  |\n",
		"| P2 | Order. |  |  |  |  | [1](#p2) | [3](../integration/mutants/p2.txt) |\n",
		"\n### P1\n\n- [b_test.go](../a/b_test.go) TestP1_X (sotw-sotw/ads, sotw-sotw/per-type, delta-sotw/per-type)\n",
		"- [b_test.go](../a/b_test.go) TestP2_Y (SotW, incremental)\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page has no %q:\n%s", want, got)
		}
	}
}

func TestFirstDifference(t *testing.T) {
	for _, c := range []struct{ there, now, want string }{
		{"a\nb", "a\nb", ""},
		{"a\nb", "a\nc", "line 2 is"},
		{"a", "a\nb", "line 2 is missing"},
		{"a\nb", "a", "line 2 is too many"},
	} {
		if got := firstDifference(c.there, c.now); !strings.HasPrefix(got, c.want) || got != "" && c.want == "" {
			t.Errorf("%q and %q: %q, want %q", c.there, c.now, got, c.want)
		}
	}
}

// What go test would show is shown, and results are kept.
func TestFollow(t *testing.T) {
	const events = `{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"fine\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB/x","Output":"wrong\n"}
{"Action":"fail","Package":"p","Test":"TestB/x"}
{"Action":"output","Package":"p","Test":"TestC","Output":"in the midst\n"}
{"Action":"skip","Package":"p","Test":"TestD"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"FAIL p 1s\n"}
{"Action":"fail","Package":"p"}
no event
`
	var out strings.Builder
	results, err := follow(strings.NewReader(events), &out)
	if err != nil {
		t.Fatal(err)
	}
	if want := "wrong\nFAIL p 1s\nin the midst\nno event\n"; out.String() != want {
		t.Errorf("shown is %q, want %q", out.String(), want)
	}
	want := []result{{"p", "TestA", "pass"}, {"p", "TestB/x", "fail"}, {"p", "TestD", "skip"}}
	if !slices.Equal(results, want) {
		t.Errorf("results are %v, want %v", results, want)
	}
	file := filepath.Join(t.TempDir(), "r.json")
	if err := save(file, results); err != nil {
		t.Fatal(err)
	}
	if again, err := load([]string{file}); err != nil || !slices.Equal(again, want) {
		t.Errorf("read again: %v, %v", again, err)
	}
}

// record runs go test, tells its exit code, and forgets the record before.
func TestRecord(t *testing.T) {
	root := lay(t, map[string]string{
		"go.mod":      "module small\n\ngo 1.21\n",
		"a_test.go":   "package small\nimport \"testing\"\nfunc TestP1_X(t *testing.T) { t.Run(\"sotw\", func(t *testing.T) {}) }\nfunc TestP2_Y(t *testing.T) { t.Fatal(\"so\") }\n",
		"record.json": "of another run",
	})
	t.Chdir(root)
	var out strings.Builder
	code, err := record("record.json", []string{"./..."}, &out)
	if err != nil || code != 1 || !strings.Contains(out.String(), "so\n") {
		t.Fatalf("exit %d, %v, shown is %q", code, err, out.String())
	}
	results, err := load([]string{"record.json"})
	want := []result{{"small", "TestP1_X/sotw", "pass"}, {"small", "TestP1_X", "pass"}, {"small", "TestP2_Y", "fail"}}
	if err != nil || !slices.Equal(results, want) {
		t.Errorf("results are %v, %v, want %v", results, err, want)
	}
}

// A stale page, and results that are not there, are said so.
func TestConformance(t *testing.T) {
	root := lay(t, map[string]string{"docs/conformance.md": "old", "r.json": ""})
	record := filepath.Join(root, "r.json")
	err := conformance(root, "check", []string{record})
	if err == nil || !strings.Contains(err.Error(), "conformance.md is stale") || !strings.Contains(err.Error(), "P1 has no test that passed") {
		t.Errorf("%v", err)
	}
	if err := conformance(root, "check", []string{record + "x"}); err == nil || !strings.Contains(err.Error(), "`make test`") {
		t.Errorf("%v", err)
	}
	if err := conformance(root, "write", []string{record}); err == nil || strings.Contains(err.Error(), "conformance.md is stale") {
		t.Errorf("%v", err)
	}
	if err := conformance(root, "check", []string{record}); err == nil || strings.Contains(err.Error(), "conformance.md is stale") {
		t.Errorf("just written: %v", err)
	}
}
