package promql

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

var promql = parser.NewParser(parser.Options{})

// alerts are the alerting rules by name.
func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(filepath.Join(root, "deploy/monitoring/alerts.yaml"), false, model.LegacyValidation, promql, slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	out := make(map[string]rulefmt.Rule)
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if _, twice := out[r.Alert]; twice || r.Alert == "" {
				t.Errorf("%q is there twice, or is no alert", r.Alert)
			}
			out[r.Alert] = r
		}
	}
	return out
}

// queries are the dashboard's queries by panel. Its variables have the values that Grafana uses if
// "All" is selected.
func queries(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy/monitoring/grafana-dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Annotations struct {
			List []struct{ Name, Expr string }
		}
		Templating struct {
			List []struct {
				Name  string
				Query any
			}
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	out := make(map[string][]string)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			out[p.Title] = append(out[p.Title], plain(target.Expr))
		}
	}
	for _, a := range d.Annotations.List {
		out["annotation "+a.Name] = append(out["annotation "+a.Name], plain(a.Expr))
	}
	values := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	for _, v := range d.Templating.List {
		query, ok := v.Query.(map[string]any)
		if !ok {
			continue // the data source
		}
		m := values.FindStringSubmatch(query["query"].(string))
		if m == nil {
			t.Errorf("variable %s: %v", v.Name, v.Query)
			continue
		}
		out["variable "+v.Name] = append(out["variable "+v.Name], "count by ("+m[2]+") ("+plain(m[1])+")")
	}
	if len(out) < 40 {
		t.Fatalf("the dashboard has %d panels", len(out))
	}
	return out
}

func plain(expr string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$__range", "3h", "$job", ".*", "$instance", ".*").Replace(expr)
}

var heading = regexp.MustCompile(`(?m)^### (XdsRelay\w+)$`)

// parts are those of a section of docs/operations.md about an alert.
var parts = regexp.MustCompile(`(?m)^- \*\*([\w ]+):\*\*\s+\S`)

// Each alert leads to its section of docs/operations.md, and each section is of an
// alert. All have the same parts.
func TestEachAlertHasItsSection(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	sections := make(map[string]bool)
	for _, at := range heading.FindAllSubmatchIndex(text, -1) {
		name := string(text[at[2]:at[3]])
		sections[name] = true
		section, _, _ := strings.Cut(string(text[at[1]:]), "\n##")
		var have []string
		for _, m := range parts.FindAllStringSubmatch(section, -1) {
			have = append(have, m[1])
		}
		if got := strings.Join(have, ", "); got != "Means, Impact, First command, Next step" {
			t.Errorf("the section %s has the parts %s", name, got)
		}
	}
	rules := alerts(t)
	for name, r := range rules {
		if !sections[name] || r.Annotations["runbook_url"] != "docs/operations.md#"+strings.ToLower(name) {
			t.Errorf("%s has no section, or leads elsewhere: %s", name, r.Annotations["runbook_url"])
		}
	}
	for name := range sections {
		if _, ok := rules[name]; !ok {
			t.Errorf("%s has a section and is no alert", name)
		}
	}
}
