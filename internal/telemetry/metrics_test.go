package telemetry

import (
	"maps"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newMetrics(t testing.TB, o Options) *Metrics {
	t.Helper()
	m := xdstest.Must(New(o))(t)
	return m
}

// scrape reads /metrics over HTTP, as Prometheus does.
func scrape(t *testing.T, m *Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	server := httptest.NewServer(m.Handler())
	defer server.Close()
	answer := xdstest.Must(server.Client().Get(server.URL))(t)
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families := xdstest.Must(parser.TextToMetricFamilies(answer.Body))(t)
	return families
}

// value returns the value of the series of name with exactly these labels
// ("type=CDS,variant=sotw"); for a histogram the number of samples.
func value(t *testing.T, families map[string]*dto.MetricFamily, name, labels string) float64 {
	t.Helper()
	v, ok := series(families, name)[labels]
	if !ok {
		t.Errorf("no series %s{%s}", name, labels)
	}
	return v
}

func series(families map[string]*dto.MetricFamily, name string) map[string]float64 {
	out := make(map[string]float64)
	for _, m := range families[name].GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		slices.Sort(labels)
		v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		out[strings.Join(labels, ",")] = v
	}
	return out
}

// All names and labels, which dashboards use, exist from the start, and no others but Go's and the
// process'.
func TestNamesAndLabels(t *testing.T) {
	m := newMetrics(t, Options{})
	m.Origin("first")
	m.CertificateExpires("admin.tls", time.Now(), time.Hour)
	m.CertificateReloadFailed("admin.tls", false)
	m.ReadRulesWithErrors(func() int { return 0 })
	m.ReadLogDropped(func() int64 { return 0 })
	want := make(map[string]string)
	for labels, names := range map[string]string{
		"": `admin_wrong_tokens_total cluster_hop_seconds cluster_unjoined config_age_seconds
			config_needs_restart config_rejected history_dropped_total keys log_dropped_lines_total
			mixed_user_agent_keys nacks_dropped_total pinned_bytes ready rule_errors_total rules_with_errors
			stale_types store_bytes store_damaged_total store_evicted_total store_files store_off
			store_unwritten_age_seconds upstream_oversized_requests_total upstream_streams
			upstream_versions_left_out_total`,
		"limit":         `limit`,
		"of":            `certificate_expiry_timestamp_seconds certificate_lifetime_seconds certificate_reload_failed`,
		"origin":        `upstream_away upstream_connected upstream_faulty_files upstream_silent_streams`,
		"origin,reason": `upstream_reconnects_total`,
		"origin,type":   `upstream_rejected_types`,
		"reason": `cluster_moves_total downstream_ended_total downstream_unanswered_types refused_total
			store_left_out_total upstream_rejected_total`,
		"reason,type": `dropped_resources_total`,
		"result": `certificate_reloads_total config_reloads_total store_loads_total store_writes_total
			trace_spans_total`,
		"result,type": `upstream_heartbeats_total upstream_resource_errors_total upstream_updates_total`,
		"role":        `cluster_keys`,
		"state":       `cluster_members`,
		"state,type":  `downstream_types`,
		"type": `coalesced_total downstream_acks_total downstream_heartbeats_total downstream_json_left_out_total
			downstream_nacks_total downstream_not_modified_total downstream_oversized_total
			downstream_oversized_types downstream_stale_requests_total downstream_waiting_types
			heartbeats_coalesced_total propagation_seconds upstream_unasked_total`,
		"type,variant": `downstream_bytes_total downstream_responses_total`,
		"variant":      `downstream_streams`,
		"version":      `build_info`,
	} {
		for _, name := range strings.Fields(names) {
			want["xdsrelay_"+name] = labels
		}
	}
	families := scrape(t, m)
	for name, f := range families {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		labels, ok := want[name]
		if !ok {
			t.Errorf("%s is not a metric of the relay", name)
			continue
		}
		for _, s := range f.Metric {
			var got []string
			for _, l := range s.Label {
				got = append(got, l.GetName())
			}
			slices.Sort(got)
			if strings.Join(got, ",") != labels {
				t.Errorf("%s has labels %v, want %s", name, got, labels)
			}
		}
		if f.GetHelp() == "" || strings.HasPrefix(f.GetHelp(), name) {
			t.Errorf("%s has no help of its own: %q", name, f.GetHelp())
		}
	}
	for name := range want {
		if families[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	for _, name := range []string{"go_goroutines", "process_open_fds"} {
		if families[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	types := slices.Sorted(maps.Keys(series(families, "xdsrelay_downstream_acks_total")))
	if got, want := len(types), len(xds.Types())+1; got != want {
		t.Errorf("%d types %v, want %d", got, types, want)
	}
	if got := len(series(families, "xdsrelay_refused_total")); got != len(reasons) {
		t.Errorf("%d reasons, want %d", got, len(reasons))
	}
}

// A scrape has all counts before it.
func TestScrapeIsFresh(t *testing.T) {
	m := newMetrics(t, Options{})
	cds := m.Type(xds.ClusterType)
	cds.Responses[SotW].Inc()
	cds.Responses[Delta].Add(2)
	cds.Bytes[Delta].Add(100 << 10)
	cds.Acks.Inc()
	cds.Propagation.Observe(3 * time.Millisecond)
	cds.Updates[Unchanged].Inc()
	m.Type("type.googleapis.com/a.type.of.Ours").Nacks.Inc()
	m.Type("type.googleapis.com/another.type.of.Ours").Nacks.Inc()
	m.Streams[Delta].Add(3)
	m.Streams[Delta].Add(-1)
	m.Keys.Set(7)
	m.Refuse(LimitKeys)
	m.Refuse(KeyChanged)
	m.End(KeyChanged)
	m.End(KeyChanged)
	m.End(SendTimeout)
	m.CertificateExpires("admin.tls", time.Unix(1_900_000_000, 5), 24*time.Hour)
	m.Reject(DuplicateName)
	m.Origin("a:1").Connected.Set(1)
	m.Origin("a:1").Reconnect(NoResponse)
	m.Origin("not\xffUTF-8").Connected.Set(1)

	families := scrape(t, m)
	for _, want := range []struct {
		name, labels string
		value        float64
	}{
		{"downstream_responses_total", "type=CDS,variant=sotw", 1},
		{"downstream_responses_total", "type=CDS,variant=delta", 2},
		{"downstream_responses_total", "type=EDS,variant=delta", 0},
		{"downstream_bytes_total", "type=CDS,variant=delta", 100 << 10},
		{"downstream_acks_total", "type=CDS", 1},
		{"propagation_seconds", "type=CDS", 1},
		{"propagation_seconds", "type=LDS", 0},
		{"upstream_updates_total", "result=unchanged,type=CDS", 1},
		{"downstream_nacks_total", "type=other", 2},
		{"downstream_streams", "variant=delta", 2},
		{"keys", "", 7},
		{"refused_total", "reason=keys", 1},
		{"refused_total", "reason=key_changed", 1},
		{"refused_total", "reason=send_timeout", 1},
		{"downstream_ended_total", "reason=key_changed", 2},
		{"downstream_ended_total", "reason=draining", 0},
		{"certificate_expiry_timestamp_seconds", "of=admin.tls", 1_900_000_000},
		{"certificate_lifetime_seconds", "of=admin.tls", 86400},
		{"refused_total", "reason=node_missing", 0},
		{"upstream_rejected_total", "reason=duplicate_name", 1},
		{"upstream_connected", "origin=a:1", 1},
		{"upstream_connected", "origin=not�UTF-8", 1},
		{"upstream_reconnects_total", "origin=a:1,reason=no_response", 1},
		{"upstream_reconnects_total", "origin=a:1,reason=ended", 0},
	} {
		if got := value(t, families, "xdsrelay_"+want.name, want.labels); got != want.value {
			t.Errorf("%s{%s} is %v, want %v", want.name, want.labels, got, want.value)
		}
	}
	if first, again := m.Origin("a:1"), m.Origin("a:1"); first != again {
		t.Error("an origin has two sets of metrics")
	}
}

// After concurrent calls the gauge has their sum.
func TestGaugeUnderRace(t *testing.T) {
	m := newMetrics(t, Options{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 2000 {
				m.Keys.Add(1)
				if i%2 == 0 {
					m.Keys.Add(-1)
				}
			}
		})
	}
	wg.Wait()
	if got := value(t, scrape(t, m), "xdsrelay_keys", ""); got != 8000 || m.Keys.Value() != 8000 {
		t.Fatalf("the gauge shows %v, and is %d; want 8000", got, m.Keys.Value())
	}
}

func TestConfigAge(t *testing.T) {
	m := newMetrics(t, Options{})
	m.start = m.start.Add(-time.Hour)
	if age := value(t, scrape(t, m), "xdsrelay_config_age_seconds", ""); age < 3600 || age > 3700 {
		t.Errorf("an hour after start, without a response: %v", age)
	}
	m.ConfigReceived(time.Now().Add(-time.Minute))
	if age := value(t, scrape(t, m), "xdsrelay_config_age_seconds", ""); age < 60 || age > 160 {
		t.Errorf("a minute after a response: %v", age)
	}
}

// With the key label each key has the metrics of its types, until its last use is released.
func TestKeyLabel(t *testing.T) {
	m := newMetrics(t, Options{KeyLabel: true})
	a, b := xds.NewKey("a", "b/c"), xds.NewKey("b")
	of := func(labels string) (float64, bool) {
		v, ok := series(scrape(t, m), "xdsrelay_downstream_acks_total")[labels]
		return v, ok
	}

	ka, again, kb := m.Key(a), m.Key(a), m.Key(b)
	if ka != again || ka == kb {
		t.Fatal("a key has two sets of metrics, or two keys share one")
	}
	cds := ka.Type(xds.ClusterType)
	cds.Acks.Inc()
	cds.Propagation.Observe(time.Second)
	kb.Type(xds.ClusterType).Acks.Add(5)
	m.Type(xds.ClusterType).Acks.Add(7)
	if v, _ := of(`key=a/"b/c",type=CDS`); v != 1 {
		t.Errorf("key a has %v", v)
	}
	if v, _ := of("key=b,type=CDS"); v != 5 {
		t.Errorf("key b has %v", v)
	}
	if v, _ := of("key=,type=CDS"); v != 7 {
		t.Errorf("no key has %v", v)
	}
	if _, ok := of("key=b,type=EDS"); ok {
		t.Error("a type without a request has a series")
	}

	ka.Release()
	if _, ok := of(`key=a/"b/c",type=CDS`); !ok {
		t.Error("the series is gone while the key is used")
	}
	again.Release()
	again.Release() // once too often
	cds.Acks.Inc()
	ka.Type(xds.EndpointType).Acks.Add(2) // a stream that ends late
	for name, f := range scrape(t, m) {
		for _, s := range f.Metric {
			for _, l := range s.Label {
				if l.GetName() == "key" && l.GetValue() != "b" && l.GetValue() != "" {
					t.Errorf("%s has a series of released key %s", name, l.GetValue())
				}
			}
		}
	}
	if v, _ := of("key=,type=EDS"); v != 2 {
		t.Errorf("what came late counts %v for no key", v)
	}
	if v, _ := of("key=b,type=CDS"); v != 5 {
		t.Errorf("key b has %v", v)
	}

	m.Key(a).Type(xds.ClusterType).Acks.Inc()
	if v, _ := of(`key=a/"b/c",type=CDS`); v != 1 {
		t.Errorf("a key that returned has %v", v)
	}
}

// Without the key label all keys share their metrics, and releasing one has no effect.
func TestNoKeyLabel(t *testing.T) {
	m := newMetrics(t, Options{})
	k := m.Key(xds.NewKey("a"))
	k.Release()
	k.Release()
	if k.Type(xds.ClusterType) != m.Type(xds.ClusterType) {
		t.Fatal("a key has metrics of its own")
	}
	k.Type(xds.ClusterType).Acks.Inc()
	if got := value(t, scrape(t, m), "xdsrelay_downstream_acks_total", "type=CDS"); got != 1 {
		t.Fatalf("counted %v", got)
	}
}

func TestPrefix(t *testing.T) {
	if got := value(t, scrape(t, newMetrics(t, Options{Prefix: "edge:relay"})), "edge:relay_keys", ""); got != 0 {
		t.Errorf("keys are %v", got)
	}
	for _, bad := range []string{"xds-relay", "1relay", "a b", "ä"} {
		if _, err := New(Options{Prefix: bad}); err == nil || !strings.Contains(err.Error(), "metrics.prefix") {
			t.Errorf("prefix %q: %v", bad, err)
		}
	}
	// With the prefix "go" a name could be one of Go's; a clash is an error, not a panic.
	if _, err := New(Options{Prefix: "go"}); err != nil {
		t.Errorf("prefix go: %v", err)
	}
}

// Each value of a label's type is counted, and is no other's.
func TestLabelsAreComplete(t *testing.T) {
	listed(t, results)
	listed(t, heartbeatResults)
	listed(t, drops)
	listed(t, failures)
	listed(t, faults)
	listed(t, reconnects)
	listed(t, reloads)
	listed(t, spans)
	listed(t, memberStates)
	listed(t, moves)
	listed(t, keyRoles)
	listed(t, reasons)
	listed(t, stored)
	listed(t, loads)
	listed(t, unstorables)
	listed(t, limits)
}

// listed compares a list with the constants of its type in the source.
func listed[L ~string](t *testing.T, list []L) {
	t.Helper()
	var want []string
	for _, file := range []string{"labels.go", "refusal_reasons.go", "store.go", "client_states.go"} {
		text := xdstest.Must(os.ReadFile(file))(t)
		for _, m := range regexp.MustCompile(`\w +`+reflect.TypeFor[L]().Name()+` += "(\w+)"`).FindAllStringSubmatch(string(text), -1) {
			want = append(want, m[1])
		}
	}
	got := make([]string, len(list))
	for i, v := range list {
		got[i] = string(v)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(got) < 2 || len(slices.Compact(got)) < len(want) {
		t.Errorf("%s: listed are %q, constants are %q", reflect.TypeFor[L]().Name(), got, want)
	}
}

func TestZeroMetrics(t *testing.T) {
	var of TypeMetrics
	of.Acks.Inc()
	of.Responses[Delta].Add(1)
	of.Propagation.Observe(time.Second)
	var g Gauge
	g.Add(2)
	if g.Value() != 2 {
		t.Errorf("a gauge that shows nowhere is %d", g.Value())
	}
	m := newMetrics(t, Options{})
	m.Keys.Add(1)
	m.Type(xds.ClusterType).Acks.Add(-1) // no panic: a counter never goes down
	if got := value(t, scrape(t, m), "xdsrelay_downstream_acks_total", "type=CDS"); got != 0 {
		t.Errorf("the counter is %v", got)
	}
}

// Counting is done for each message, so it must not allocate.
func TestCountingAllocatesNothing(t *testing.T) {
	for _, o := range []Options{{}, {StatsdAddress: "127.0.0.1:9", KeyLabel: true}} {
		m := newMetrics(t, o)
		of := m.Key(xds.NewKey("a")).Type(xds.EndpointType)
		n := testing.AllocsPerRun(100, func() {
			of.Responses[Delta].Inc()
			of.Bytes[Delta].Add(1000)
			of.Propagation.Observe(time.Millisecond)
			m.Streams[SotW].Add(1)
			m.Refuse(LimitStreams)
			m.Type(xds.EndpointType).Acks.Inc()
		})
		if n != 0 {
			t.Errorf("%+v: %v allocations", o, n)
		}
	}
}

func BenchmarkCounter(b *testing.B) {
	of := newMetrics(b, Options{}).Type(xds.ClusterType)
	for b.Loop() {
		of.Responses[Delta].Inc()
	}
}

// What the server for members counts is not exported, but for the propagation.
func TestForMembers(t *testing.T) {
	m := newMetrics(t, Options{KeyLabel: true})
	of := xdstest.Must(m.ForMembers())(t)
	cds := of.Key(xds.NewKey("a")).Type(xds.ClusterType)
	cds.Propagation.Observe(time.Second)
	cds.Acks.Inc()
	families := scrape(t, m)
	if got := series(families, "xdsrelay_cluster_hop_seconds"); got[""] != 1 {
		t.Error(got)
	}
	for _, name := range []string{"xdsrelay_propagation_seconds", "xdsrelay_downstream_acks_total"} {
		for labels, n := range series(families, name) {
			if n != 0 {
				t.Errorf("%s{%s} is %v", name, labels, n)
			}
		}
	}
}
