package integration

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	rulesFile = "../docs/protocol.md"
	testsFile = "../docs/conformance.md"
)

// docs/protocol.md has the rules, and docs/conformance.md has a row with tests for each of them.
// Every named test exists, and every rule in a test's name is one of docs/protocol.md.
func TestEachRuleHasATest(t *testing.T) {
	var (
		row    = regexp.MustCompile(`(?m)^\| \[(P\d+)\]\(protocol\.md#(p\d+)\) \| (.+) \| (.*) \|$`)
		quoted = regexp.MustCompile("`([^`]+)`")
		id     = regexp.MustCompile(`(?:Test|And|_)(P\d+)`)
	)
	exists, titles := ruleTests(t), ruleTitles(t)
	rows := make(map[string]bool)
	for _, r := range row.FindAllStringSubmatch(document(t, testsFile), -1) {
		rule, anchor, title, tests := r[1], r[2], r[3], quoted.FindAllStringSubmatch(r[4], -1)
		if rows[rule] {
			t.Errorf("%s has %s twice", testsFile, rule)
		}
		rows[rule] = true
		if anchor != strings.ToLower(rule) {
			t.Errorf("%s: %s links to %s", testsFile, rule, anchor)
		}
		if title != titles[rule] {
			t.Errorf("%s: %s has the title %q, and in %s %q", testsFile, rule, title, rulesFile, titles[rule])
		}
		if len(tests) == 0 {
			t.Errorf("%s: %s has no test", testsFile, rule)
		}
		for _, name := range tests {
			if !exists[name[1]] {
				t.Errorf("%s: %s names %s, which does not exist", testsFile, rule, name[1])
			}
			if !regexp.MustCompile(rule + `(\D|$)`).MatchString(strings.ToUpper(name[1])) {
				t.Errorf("%s: %s names %s, which does not have its id", testsFile, rule, name[1])
			}
		}
	}
	for rule := range titles {
		if !rows[rule] {
			t.Errorf("%s has no row for %s", testsFile, rule)
		}
	}
	for name := range exists {
		if strings.Contains(name, "/scripts/") {
			continue
		}
		for _, m := range id.FindAllStringSubmatch(name, -1) {
			if titles[m[1]] == "" {
				t.Errorf("%s has the id %s, which %s does not have", name, m[1], rulesFile)
			}
		}
	}
}

// Every relative link in a document reaches a file, and a heading or an anchor in it.
func TestLinksReachTheirTargets(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]*)\)`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "../bin" || path != ".." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		for _, m := range link.FindAllStringSubmatch(withoutCode(document(t, path)), -1) {
			file, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, ":") {
				continue // another host
			}
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s, which does not exist", path, m[1])
			} else if anchor != "" && filepath.Ext(to) == ".md" && !anchors(t, to)[anchor] {
				t.Errorf("%s links to %s, and there is no such heading", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// anchors are those of a document that links can name: of headings, as GitHub makes them, and of
// HTML ids.
func anchors(t *testing.T, path string) map[string]bool {
	t.Helper()
	found := make(map[string]bool)
	text := withoutCode(document(t, path))
	for _, m := range regexp.MustCompile(`<a id="([^"]+)">`).FindAllStringSubmatch(text, -1) {
		found[m[1]] = true
	}
	var (
		html   = regexp.MustCompile(`<[^>]*>`)
		target = regexp.MustCompile(`\]\([^)]*\)`)
		other  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		heading := strings.ToLower(target.ReplaceAllString(html.ReplaceAllString(m[1], ""), ""))
		found[strings.ReplaceAll(other.ReplaceAllString(heading, ""), " ", "-")] = true
	}
	return found
}

// withoutCode is a document without its code blocks.
func withoutCode(text string) string {
	return regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(text, "")
}

// ruleTitles are the titles of all rules in docs/protocol.md, by id.
func ruleTitles(t *testing.T) map[string]string {
	t.Helper()
	titles := make(map[string]string)
	for _, h := range regexp.MustCompile(`(?m)^### <a id="(p\d+)"></a>(P\d+) (.+)$`).FindAllStringSubmatch(document(t, rulesFile), -1) {
		anchor, rule := h[1], h[2]
		if anchor != strings.ToLower(rule) {
			t.Errorf("%s: %s has the anchor %s", rulesFile, rule, anchor)
		}
		if titles[rule] != "" {
			t.Errorf("%s has %s twice", rulesFile, rule)
		}
		titles[rule] = h[3]
	}
	if len(titles) < 50 {
		t.Fatalf("%s has %d rules; the form of the headings must have changed", rulesFile, len(titles))
	}
	return titles
}

func document(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
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
