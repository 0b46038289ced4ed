package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/conformance.md has a row for each protocol rule. Each row names existing tests, and each
// rule in a test's name has a row.
func TestEachRuleHasATest(t *testing.T) {
	text, err := os.ReadFile("../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	var (
		row    = regexp.MustCompile(`(?m)^\| (P\d+) \| (.+) \| (.*) \|$`)
		quoted = regexp.MustCompile("`([^`]+)`")
		id     = regexp.MustCompile(`(?:Test|And|_)(P\d+)`)
	)
	exists := ruleTests(t)
	rules := make(map[string]bool)
	for _, r := range row.FindAllStringSubmatch(string(text), -1) {
		rule, tests := r[1], quoted.FindAllStringSubmatch(r[3], -1)
		rules[rule] = true
		if len(tests) == 0 {
			t.Errorf("docs/conformance.md: %s has no test", rule)
		}
		for _, name := range tests {
			if !exists[name[1]] {
				t.Errorf("docs/conformance.md: %s names %s, which does not exist", rule, name[1])
			}
			if !regexp.MustCompile(rule + `(\D|$)`).MatchString(strings.ToUpper(name[1])) {
				t.Errorf("docs/conformance.md: %s names %s, which does not bear its id", rule, name[1])
			}
		}
	}
	if len(rules) < 50 {
		t.Fatalf("docs/conformance.md has %d rows; the table's form must have changed", len(rules))
	}
	for name := range exists {
		if strings.Contains(name, "/scripts/") {
			continue
		}
		for _, m := range id.FindAllStringSubmatch(name, -1) {
			if !rules[m[1]] {
				t.Errorf("%s bears %s, which docs/conformance.md does not have", name, m[1])
			}
		}
	}
}

// ruleTests are all test functions as "folder.TestName", and all scripts by
// their paths.
func ruleTests(t *testing.T) map[string]bool {
	t.Helper()
	found := make(map[string]bool)
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, s := range sources(t) {
		if !s.test() {
			continue
		}
		text, err := os.ReadFile(filepath.Join("..", s.path))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			found[s.pkg+"."+m[1]] = true
		}
	}
	for _, pattern := range []string{"../internal/*/testdata/scripts/*", "../internal/*/*/testdata/scripts/*"} {
		scripts, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range scripts {
			found[filepath.ToSlash(strings.TrimPrefix(path, "../"))] = true
		}
	}
	return found
}
