package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/telemetry/tracing/otlptest"
	"xdsrelay/internal/xdstest"
)

// However many clients there are, an origin's response is one span, and only a few ACKs are linked
// to it.
func TestTracesOneSpanForAResponse(t *testing.T) {
	t.Parallel()
	const clients, changes, mostAcks = 40, 4, 16
	for _, up := range upstreams {
		t.Run(up, func(t *testing.T) {
			t.Parallel()
			collector := otlptest.New(t)
			o := origin(t, "snapshot")
			o.Put("edge", xdstest.Web(1)...)
			r := serve(t, o.Address, xdstest.Config{"upstream.variant": up, "tracing.otlp_endpoint": collector.Address, "tracing.sample": 1.0})
			var all []*fleet.Client
			for i := range clients {
				all = append(all, client(t, r.Address, fleet.ClientConfig{
					Node: node(fmt.Sprintf("edge-%d", i), "edge"), Variant: variants[i%2], Behaviour: fleet.Envoy}))
			}
			waitAll(t, all, "what the origin has", hasAll(xdstest.Web(1)...))
			for n := range changes {
				changed := xdstest.Cluster("web", n+2)
				o.Put("edge", changed)
				waitAll(t, all, "a change", has(changed))
				xdstest.Eventually(t, "the ACKs", xdstest.Holds(func() bool { // of all, in each variant
					return r.Metric("propagation_seconds", "type", "CDS") >= float64(clients*(n+1))
				}))
			}
			r.Stop() // which sends waiting spans

			updates := make(map[string]*tracev1.Span)
			acks := make(map[string]int)
			applied := 0
			for _, s := range collector.Spans("xds.update") {
				a := otlptest.Attributes(s)
				updates[string(s.SpanId)] = s
				if a["xds.key"] != "edge" || a["xds.origin"] != o.Address || a["xds.variant"] != up || a["xds.version"] == "" || a["xds.nonce"] == "" {
					t.Errorf("an update without its type: %v", a)
				}
				if a["xds.type"] == string(resource.ClusterType) && a["xds.result"] == "applied" {
					applied++
				}
			}
			if applied < changes+1 || applied > changes+2 { // the first answer, and one more if the origin repeats it
				t.Errorf("%d spans for %d changes of clusters and the first answer", applied, changes)
			}
			for _, s := range collector.Spans("xds.ack") {
				if len(s.Links) != 1 || updates[string(s.Links[0].SpanId)] == nil {
					t.Errorf("an ACK without a link to an update: %v", s)
					continue
				}
				acks[string(s.Links[0].SpanId)]++
			}
			if len(acks) < changes {
				t.Errorf("%d responses have ACKs", len(acks))
			}
			for id, n := range acks {
				// 1st, 2nd, 4th, 8th, 16th, 32nd
				if a := otlptest.Attributes(updates[id]); n > mostAcks || a["xds.type"] == string(resource.ClusterType) && n > 6 {
					t.Errorf("%d ACKs of %d clients have spans: %v", n, clients, a)
				}
			}
			steps := len(collector.Spans("xds.update.fanout"))
			if steps > len(updates) || steps < changes {
				t.Errorf("%d fan-outs for %d updates", steps, len(updates))
			}
		})
	}
}

// A fault in OTEL_RESOURCE_ATTRIBUTES is a warning. Lines of OpenTelemetry have the format of the log.
func TestTracesWithFaultyAttributes(t *testing.T) {
	t.Parallel()
	o := origin(t, "snapshot")
	config := xdstest.QuickConfig().With(xdstest.Config{"upstream.origins": xdstest.Origins(o.Address), "tracing.otlp_endpoint": "http://" + xdstest.FreeAddress(t)})
	log := start(t, "", []string{"OTEL_RESOURCE_ATTRIBUTES=team=50%,"}, "serve", "--config", config.WriteFile(t)).Log()
	for _, want := range []string{
		`warning="OTEL_RESOURCE_ATTRIBUTES: the value of team`, `warning="OTEL_RESOURCE_ATTRIBUTES: must be a list`,
		`level=ERROR msg="library reports an error" library=OpenTelemetry`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("no %s in:\n%s", want, log)
		}
	}
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, "time=") {
			t.Errorf("not a line of the log: %s", line)
		}
	}
}

// Without tracing nothing is sent. An unreachable collector affects no client.
func TestTracesWithoutACollector(t *testing.T) {
	t.Parallel()
	o := origin(t, "snapshot")
	o.Put("edge", xdstest.Web(1)...)
	r := serve(t, o.Address, xdstest.Config{"tracing.otlp_endpoint": "http://" + xdstest.FreeAddress(t), "tracing.sample": 1.0})
	clients := envoys(t, r.Address, "edge")
	waitAll(t, clients, "what the origin has", hasAll(xdstest.Web(1)...))
	o.Put("edge", xdstest.Web(2)...)
	waitAll(t, clients, "a change", hasAll(xdstest.Web(2)...))
}
