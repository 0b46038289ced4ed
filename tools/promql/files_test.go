package promql

import (
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
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
	return alertsOf(t, filepath.Join(root, "deploy/monitoring/alerts.yaml"))
}

// alertsOf are the alerting rules of a file.
func alertsOf(t *testing.T, path string) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(path, false, model.LegacyValidation, promql, slog.New(slog.DiscardHandler))
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
	sections := runbook(t)
	for name, section := range sections {
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
		if sections[name] == "" || r.Annotations["runbook_url"] != "docs/operations.md#"+strings.ToLower(name) {
			t.Errorf("%s has no section, or leads elsewhere: %s", name, r.Annotations["runbook_url"])
		}
	}
	for name := range sections {
		if _, ok := rules[name]; !ok {
			t.Errorf("%s has a section and is no alert", name)
		}
	}
}

// runbook has the sections of docs/operations.md about alerts, by alert.
func runbook(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for _, at := range heading.FindAllSubmatchIndex(text, -1) {
		section, _, _ := strings.Cut(string(text[at[1]:]), "\n##")
		out[string(text[at[2]:at[3]])] = section
	}
	return out
}

// An alert's command asks the relay that the alert is about. The runbook's asks the relay on the same
// host.
var runbookCommand = strings.NewReplacer(" --admin {{ $labels.instance }}", "", "{{ $labels.instance }}", "localhost:19000", "{{ $labels.type }}", "TYPE")

// Each alert says by itself what it means, what to run and what to do next, in one line each. The
// command is in the alert's section of the runbook.
func TestEachAlertHasItsTexts(t *testing.T) {
	sections := runbook(t)
	for name, r := range alerts(t) {
		for _, of := range []string{"summary", "description", "impact", "command", "next"} {
			if text := r.Annotations[of]; text == "" || strings.Contains(text, "\n") {
				t.Errorf("%s: %s must be one line, but is %q", name, of, text)
			}
		}
		for _, of := range []string{"impact", "next"} {
			if text := r.Annotations[of]; !strings.HasSuffix(text, ".") || strings.Contains(text, ". ") {
				t.Errorf("%s: %s must be one sentence, but is %q", name, of, text)
			}
		}
		section := strings.Join(strings.Fields(sections[name]), " ")
		if command := runbookCommand.Replace(r.Annotations["command"]); !strings.Contains(section, command) {
			t.Errorf("%s: its section does not have the command %s", name, command)
		}
	}
}

var (
	alertLine = regexp.MustCompile(`(?m)((?:^ *#.*\n)*)^ *- alert: (\w+)`)
	counts    = regexp.MustCompile(`\b(rate|increase|changes)\(`)
)

// An alert that counts events could end while the fault stays. Its comment says why it does not.
func TestEventsAreExplained(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "deploy/monitoring/alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	rules := alerts(t)
	for _, m := range alertLine.FindAllStringSubmatch(string(text), -1) {
		comment, name := strings.TrimSpace(m[1]), m[2]
		if explained := strings.HasPrefix(comment, "# Events: "); explained != counts.MatchString(rules[name].Expr) {
			t.Errorf("%s counts events: %v; the comment %q", name, !explained, comment)
		}
	}
}

// make alerts writes the rules with absolute addresses of the runbook, and changes nothing else.
func TestMakeAlerts(t *testing.T) {
	const at = "https://example.com/a/relay?ref=v1&plain=1"
	path := filepath.Join(t.TempDir(), "alerts.yaml")
	run := func(args ...string) (string, error) {
		out, err := exec.Command("make", append([]string{"-s", "-C", root, "alerts", "ALERTS=" + path}, args...)...).CombinedOutput()
		return string(out), err
	}
	if out, err := run(); err == nil || !strings.Contains(out, "RUNBOOK_URL") {
		t.Errorf("without an address: %v, %s", err, out)
	}
	if out, err := run("RUNBOOK_URL=" + at); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	made := alertsOf(t, path)
	for name, r := range alerts(t) {
		got := made[name]
		if want := at + "#" + strings.ToLower(name); got.Annotations["runbook_url"] != want {
			t.Errorf("%s leads to %s, want %s", name, got.Annotations["runbook_url"], want)
		}
		if got.Expr != r.Expr || len(got.Annotations) != len(r.Annotations) || got.For != r.For {
			t.Errorf("%s has changed: %+v", name, got)
		}
	}
}
