package telemetry

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// docs/operations.md explains every metric and reason, and no others.
func TestOperatorsAreToldOfEachMetricAndReason(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	m := newMetrics(t, Options{})
	m.Origin("first")
	m.CertificateExpires("admin.tls", time.Now())
	families := scrape(t, m)
	_, tables, found := strings.Cut(doc, "\n## What clients are refused for\n") // other fields are before
	if !found {
		t.Fatal("no table of reasons")
	}
	rows := make(map[string]bool)
	for _, r := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(tables, -1) {
		if rows[r[1]] {
			t.Errorf("%s has two rows", r[1])
		}
		rows[r[1]] = true
	}
	for name := range families {
		if strings.HasPrefix(name, DefaultPrefix) && !rows[name] {
			t.Errorf("the metric %s has no row", name)
		}
	}
	known := make(map[string]bool)
	for r := range reasons {
		known[r.String()] = true
		if !rows[r.String()] {
			t.Errorf("the reason %s has no row", r)
		}
	}
	for s := range clientStates {
		if !strings.Contains(doc, "| `"+s.String()+"` |") {
			t.Errorf("the state %s has no row", s)
		}
	}
	for row := range rows {
		if families[row] == nil && !known[row] {
			t.Errorf("%s has a row, and is neither a metric nor a reason", row)
		}
	}
	for _, name := range regexp.MustCompile(DefaultPrefix+`_[a-z_]+`).FindAllString(doc, -1) {
		if families[name] == nil {
			t.Errorf("%s is no metric", name)
		}
	}
}
