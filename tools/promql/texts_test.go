package promql

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	engine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"
)

// The alerts say how many client streams there are without an origin, and how many were refused.
func TestAlertsCountClients(t *testing.T) {
	h := make(history)
	of := func(name string, more ...string) labels.Labels {
		return labels.FromStrings(append([]string{labels.MetricName, name, "job", "relay", "instance", "a:1"}, more...)...)
	}
	h.put(of("xdsrelay_downstream_streams", "variant", "sotw"), []float64{3, 3, 3})
	h.put(of("xdsrelay_downstream_streams", "variant", "delta"), []float64{4, 4, 4})
	h.put(of("xdsrelay_refused_total", "reason", "origin_unreachable"), []float64{0, 2, 4, 6, 8, 10, 12, 14})
	const refused = "In the last 5 minutes the relay refused 10 streams, because it has nothing for them."
	for name, want := range map[string]string{
		"XdsRelayNoOrigin":   "7 client streams are served from what the relay has. No changes arrive. " + refused,
		"XdsRelayOriginAway": "Another origin serves, or the relay serves what it has, to 7 client streams. " + refused,
	} {
		if got := h.expand(t, alerts(t)[name].Annotations["description"]); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// expand fills in the text of an alert of the relay a:1, as Prometheus does.
func (h history) expand(t *testing.T, text string) string {
	t.Helper()
	query := func(ctx context.Context, expr string, at time.Time) (engine.Vector, error) {
		q, err := newEngine().NewInstantQuery(ctx, h, nil, expr, at)
		if err != nil {
			return nil, err
		}
		return q.Exec(ctx).Vector()
	}
	data := template.AlertTemplateData(map[string]string{"job": "relay", "instance": "a:1"}, nil, "", engine.Sample{F: 1})
	now := model.TimeFromUnix(minutes * 60)
	out, err := template.NewTemplateExpander(t.Context(), "{{$labels := .Labels}}"+text, "alert", data, now, query, new(url.URL), nil).Expand()
	if err != nil {
		t.Fatal(err)
	}
	return out
}
