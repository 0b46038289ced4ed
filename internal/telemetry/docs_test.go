package telemetry

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// docs/metrics.md explains every metric, docs/operations.md every reason and state, and no others.
func TestOperatorsAreToldOfEachMetricAndReason(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	runbook, reference := read("operations.md"), read("metrics.md")
	m := newMetrics(t, Options{})
	m.Origin("first")
	m.CertificateExpires("admin.tls", time.Now())
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
	for r := range reasons {
		if !reasonRows[r.String()] {
			t.Errorf("the reason %s has no row", r)
		}
		delete(reasonRows, r.String())
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
