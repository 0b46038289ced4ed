package telemetry

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"
)

// docs/metrics.md explains every metric, docs/operations.md every reason and state, and no others.
func TestDocsExplainEachMetricAndReason(t *testing.T) {
	read := func(name string) string {
		text := xdstest.Must(os.ReadFile("../../docs/" + name))(t)
		return string(text)
	}
	runbook, reference := read("operations.md"), read("metrics.md")
	m := newMetrics(t, Options{})
	m.Origin("first")
	m.CertificateExpires("admin.tls", time.Now(), time.Hour)
	m.CertificateReloadFailed("admin.tls", false)
	m.ReadRulesWithErrors(func() int { return 0 })
	m.ReadLogDropped(func() int64 { return 0 })
	families := scrape(t, m)
	_, reasonTable, found := strings.Cut(runbook, "\n## Why clients are refused\n")
	if !found {
		t.Fatal("no table of reasons")
	}
	reasonTable, _, _ = strings.Cut(reasonTable, "\n## ")
	rowsOf := func(table, pattern string) map[string]bool {
		rows := make(map[string]bool)
		for _, r := range regexp.MustCompile("(?m)^\\| `("+pattern+")` \\|").FindAllStringSubmatch(table, -1) {
			if rows[r[1]] {
				t.Errorf("%s has two rows", r[1])
			}
			rows[r[1]] = true
		}
		return rows
	}
	metricRows := rowsOf(reference, DefaultPrefix+"_[a-z_]+")
	for name := range families {
		if strings.HasPrefix(name, DefaultPrefix) && !metricRows[name] {
			t.Errorf("the metric %s has no row", name)
		}
	}
	reasonRows := rowsOf(reasonTable, "[a-z_]+")
	for _, r := range reasons {
		if !reasonRows[string(r)] {
			t.Errorf("the reason %s has no row", r)
		}
		delete(reasonRows, string(r))
	}
	for row := range reasonRows {
		t.Errorf("%s has a row, and is no reason", row)
	}
	for s := range clientStates {
		if !strings.Contains(runbook, "| `"+s.String()+"` |") {
			t.Errorf("the state %s has no row", s)
		}
	}
	for _, name := range regexp.MustCompile(DefaultPrefix+`_[a-z_]+`).FindAllString(runbook+reference, -1) {
		if families[name] == nil {
			t.Errorf("%s is no metric", name)
		}
	}
}

// texts are all string literals of the program.
func texts(t *testing.T) (out []string) {
	for _, root := range []string{"../../cmd", "../../internal"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			code, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			var s scanner.Scanner
			files := token.NewFileSet()
			s.Init(files.AddFile(path, -1, len(code)), code, nil, 0)
			for _, tok, lit := s.Scan(); tok != token.EOF; _, tok, lit = s.Scan() {
				if tok != token.STRING {
					continue
				}
				text, err := strconv.Unquote(lit)
				if err != nil {
					return err
				}
				out = append(out, text)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// Each log message in the table of docs/metrics.md begins a text of the program. So does each that
// docs/operations.md quotes after "log" or "logged", and a text has each pattern that it looks for in the log.
func TestQuotedLogMessagesExist(t *testing.T) {
	program := texts(t)
	exists := func(where, quoted string, is func(text, part string) bool) {
		first, _, _ := strings.Cut(quoted, "…")
		for _, text := range program {
			if is(text, first) {
				return
			}
		}
		t.Errorf("%s quotes %q, which the program does not log", where, quoted)
	}
	read := func(name string) string {
		text := xdstest.Must(os.ReadFile("../../docs/" + name))(t)
		return string(text)
	}
	_, table, found := strings.Cut(read("metrics.md"), "\n| message | level | means |\n")
	if !found {
		t.Fatal("no table of log messages")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	quotes := regexp.MustCompile("`([^`]+)`")
	n := 0
	for _, row := range strings.Split(table, "\n")[1:] {
		for _, m := range quotes.FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			exists("metrics.md", m[1], strings.HasPrefix)
			n++
		}
	}
	runbook := read("operations.md")
	for _, m := range regexp.MustCompile("(?:logs|logged\\s+as|log\\s+(?:then\\s+)?has|line|of its log\\.)\\s+`([a-z][^`]+ [^`]+)`").FindAllStringSubmatch(runbook, -1) {
		exists("operations.md", strings.Join(strings.Fields(m[1]), " "), strings.HasPrefix)
		n++
	}
	for _, m := range regexp.MustCompile(`kubectl logs POD \| grep '([^']+)'`).FindAllStringSubmatch(runbook, -1) {
		exists("operations.md", m[1], strings.Contains)
		n++
	}
	if n < 30 {
		t.Errorf("only %d messages were found", n)
	}
}
