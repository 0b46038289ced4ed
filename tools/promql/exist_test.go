package promql

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// added are labels that Prometheus itself adds to scraped series.
var added = []string{"job", "instance"}

// Each query can be parsed, and only uses metrics, labels and values that the relay has.
func TestQueriesAreValid(t *testing.T) {
	all := families(t)
	exprs := queries(t)
	for name, r := range alerts(t) {
		exprs["alert "+name] = []string{r.Expr}
	}
	for where, list := range exprs {
		for _, expr := range list {
			for _, fault := range check(all, expr) {
				t.Errorf("%s: %s\n%s", where, fault, expr)
			}
		}
	}
}

// check finds faults in queries.
func TestCheck(t *testing.T) {
	all := families(t)
	for expr, want := range map[string]string{
		`sum(xdsrelay_no_such_metric)`:                                                           "no metric",
		`xdsrelay_downstream_streams{typ="CDS"}`:                                                 "no label typ",
		`xdsrelay_refused_total{reason="unmaped"}`:                                               "no value",
		`xdsrelay_refused_total{reason=~"unmapped|keyerror"}`:                                    "no value",
		`sum by (origin) (xdsrelay_downstream_streams)`:                                          "no label origin",
		`xdsrelay_keys / on (variant) xdsrelay_ready`:                                            "no label variant",
		`rate(xdsrelay_keys[5m]`:                                                                 "unclosed",
		`rate(xdsrelay_keys[5m])`:                                                                "of a gauge",
		`xdsrelay_refused_total > 5`:                                                             "a counter as it is",
		`histogram_quantile(0.9, sum by (le) (rate(xdsrelay_downstream_acks_total[5m])))`:        "no label le",
		`histogram_quantile(0.9, sum by (type) (rate(xdsrelay_propagation_seconds_bucket[5m])))`: "without le",
	} {
		if faults := check(all, expr); !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, want) }) {
			t.Errorf("%s: %q, and not %q", expr, faults, want)
		}
	}
}

// check returns what is wrong with a query.
func check(all map[string]*dto.MetricFamily, expr string) (faults []string) {
	e, err := promql.ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}
	}
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			f := family(all, n.Name)
			if f == nil {
				fault("no metric %s", n.Name)
				return nil
			}
			for _, m := range n.LabelMatchers {
				if m.Name != labels.MetricName {
					faults = append(faults, matches(f, m)...)
				}
			}
			if f.GetType() != dto.MetricType_GAUGE && !rated(path) {
				fault("%s: a counter as it is", n.Name)
			}
		case *parser.Call:
			if slices.Contains([]string{"rate", "increase", "irate"}, n.Func.Name) {
				s, _ := n.Args[0].(*parser.MatrixSelector).VectorSelector.(*parser.VectorSelector)
				if f := family(all, s.Name); f != nil && f.GetType() == dto.MetricType_GAUGE {
					fault("%s of a gauge: %s", n.Func.Name, s.Name)
				}
			}
			if n.Func.Name == "histogram_quantile" {
				if a, ok := n.Args[1].(*parser.AggregateExpr); !ok || !slices.Contains(a.Grouping, "le") {
					fault("histogram_quantile without le")
				}
			}
		case *parser.AggregateExpr:
			for _, l := range n.Grouping {
				if !slices.Contains(below(all, n.Expr), l) {
					fault("no label %s to group by", l)
				}
			}
		case *parser.BinaryExpr:
			if n.VectorMatching == nil {
				break
			}
			for _, side := range []parser.Expr{n.LHS, n.RHS} {
				for _, l := range n.VectorMatching.MatchingLabels {
					if !slices.Contains(below(all, side), l) {
						fault("no label %s to match on in %s", l, side)
					}
				}
			}
		}
		return nil
	})
	return faults
}

// rated reports whether a selector is an argument of a function for counters.
func rated(path []parser.Node) bool {
	return slices.ContainsFunc(path, func(n parser.Node) bool {
		c, ok := n.(*parser.Call)
		return ok && slices.Contains([]string{"rate", "increase", "absent"}, c.Func.Name)
	})
}

// family returns the metric family of a series' name.
func family(all map[string]*dto.MetricFamily, name string) *dto.MetricFamily {
	if f := all[name]; f != nil {
		return f
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, suffix); ok {
			f := all[base]
			if t := f.GetType(); t == dto.MetricType_HISTOGRAM || t == dto.MetricType_SUMMARY && suffix != "_bucket" {
				return f
			}
		}
	}
	return nil
}

func values(f *dto.MetricFamily, label string) (out []string, has bool) {
	for _, m := range f.Metric {
		for _, l := range m.Label {
			if l.GetName() == label {
				out, has = append(out, l.GetValue()), true
			}
		}
	}
	return out, has
}

var alternatives = regexp.MustCompile(`^[\w|]+$`)

func matches(f *dto.MetricFamily, m *labels.Matcher) (faults []string) {
	if slices.Contains(added, m.Name) {
		return nil
	}
	if m.Name == "le" && f.GetType() == dto.MetricType_HISTOGRAM {
		for _, b := range f.Metric[0].Histogram.Bucket {
			if fmt.Sprint(b.GetUpperBound()) == m.Value {
				return nil
			}
		}
		return []string{"no bucket " + m.Value}
	}
	have, ok := values(f, m.Name)
	if !ok {
		return []string{fmt.Sprintf("%s: no label %s", f.GetName(), m.Name)}
	}
	wanted := []string{m.Value}
	if m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp {
		if !alternatives.MatchString(m.Value) {
			return []string{"cannot check " + m.String()}
		}
		wanted = strings.Split(m.Value, "|")
	}
	for _, v := range wanted {
		if !slices.Contains(have, v) {
			faults = append(faults, fmt.Sprintf("%s: no value %s=%q, but %q", f.GetName(), m.Name, v, have))
		}
	}
	return faults
}

// below returns the labels of the result of an expression.
func below(all map[string]*dto.MetricFamily, e parser.Expr) (out []string) {
	switch e := e.(type) {
	case *parser.AggregateExpr:
		return e.Grouping
	case *parser.BinaryExpr:
		if e.LHS.Type() == parser.ValueTypeScalar {
			return below(all, e.RHS)
		}
		return below(all, e.LHS)
	case *parser.VectorSelector:
		f := family(all, e.Name)
		out = slices.Clone(added)
		if f == nil {
			return out
		}
		for _, l := range f.Metric[0].Label {
			out = append(out, l.GetName())
		}
		if f.GetType() == dto.MetricType_HISTOGRAM && strings.HasSuffix(e.Name, "_bucket") {
			out = append(out, "le")
		}
		return out
	}
	for n := range parser.ChildrenIter(e) {
		if sub, ok := n.(parser.Expr); ok && sub.Type() != parser.ValueTypeScalar {
			return below(all, sub)
		}
	}
	return nil
}
