package promql

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
)

// fires has, for each alert, series with which it must fire. They replace those of a healthy relay.
// Their notation is that of Prometheus' own tests, with one value a minute. A counter that grows once
// is a fault that does not repeat.
var fires = map[string][]string{
	"XdsRelayAbsent":                      nil, // no relay exists
	"XdsRelayReplicaDown":                 {`up 0x60`},
	"XdsRelayReplicaMissing":              {`xdsrelay_build_info{version="dev",instance="b:1"} 1x1500 _x60`},
	"XdsRelayNotReady":                    {`xdsrelay_ready 0x60`},
	"XdsRelayRestarts":                    {`process_start_time_seconds 1 1 2 2 3 3 4 4 4`},
	"XdsRelayConfigRejected":              {`xdsrelay_config_rejected 1x60`},
	"XdsRelayNeedsRestart":                {`xdsrelay_config_needs_restart 2x60`},
	"XdsRelayCertificateNotReloaded":      {`xdsrelay_certificate_reload_failed{of="downstream.tls"} 1x60`},
	"XdsRelayCertificateExpiresIn30Days":  {`xdsrelay_certificate_expiry_timestamp_seconds{of="admin.tls"} 2592000x60`},
	"XdsRelayCertificateExpiresIn7Days":   {`xdsrelay_certificate_expiry_timestamp_seconds{of="downstream.tls"} 604800x60`},
	"XdsRelayCertificateExpiresIn1Day":    {`xdsrelay_certificate_expiry_timestamp_seconds{of="origin one"} 86400x60`},
	"XdsRelayRuleErrors":                  {`xdsrelay_rules_with_errors 1x60`},
	"XdsRelayNoOrigin":                    {`xdsrelay_upstream_away{origin="ORIGIN"} 1x60`},
	"XdsRelayOriginAway":                  {`xdsrelay_upstream_away{origin="second"} 1x60`},
	"XdsRelayOriginSilent":                {`xdsrelay_upstream_silent_streams{origin="ORIGIN"} 2x60`},
	"XdsRelayOriginEndsStreams":           {`xdsrelay_upstream_reconnects_total{origin="ORIGIN",reason="ended"} 0+3x60`},
	"XdsRelayOriginRejected":              {`xdsrelay_upstream_rejected_types{type="CDS",origin="ORIGIN"} 1x60`},
	"XdsRelayOriginFiles":                 {`xdsrelay_upstream_faulty_files{origin="ORIGIN"} 1x60`},
	"XdsRelayNothingNew":                  {`xdsrelay_config_age_seconds 86401x60`},
	"XdsRelayServesLastKnownGood":         {`xdsrelay_stale_types 3x60`},
	"XdsRelayClientsNack":                 {`xdsrelay_downstream_types{type="CDS",state="nacked"} 1x60`},
	"XdsRelayManyClientsNack":             {`xdsrelay_downstream_types{type="CDS",state="nacked"} 10x60`},
	"XdsRelayClientsBehind":               {`xdsrelay_downstream_types{type="CDS",state="stale"} 10x60`},
	"XdsRelayPropagationSlow":             {`xdsrelay_propagation_seconds_bucket{type="CDS",le="30"} 0+5x60`, `xdsrelay_propagation_seconds_bucket{type="CDS",le="+Inf"} 0+5x60`},
	"XdsRelayOriginUnreachableForClients": {`xdsrelay_refused_total{reason="origin_unreachable"} 0 0 1x60`},
	"XdsRelayUnmapped":                    {`xdsrelay_refused_total{reason="key_error"} 0 0 1x60`},
	"XdsRelayMixedUserAgents":             {`xdsrelay_mixed_user_agent_keys 1x60`},
	"XdsRelayMalformedRequests":           {`xdsrelay_refused_total{reason="request_invalid"} 0+60x60`},
	"XdsRelayNotAllowed":                  {`xdsrelay_refused_total{reason="identity"} 0+60x60`},
	"XdsRelayHostileClients":              {`xdsrelay_refused_total{reason="requests_per_second"} 0+600x60`},
	"XdsRelayClientsTakeNothing":          {`xdsrelay_refused_total{reason="send_timeout"} 0+60x60`},
	"XdsRelayOversized":                   {`xdsrelay_downstream_oversized_types{type="EDS"} 1x60`},
	"XdsRelayLimitReached":                {`xdsrelay_refused_total{reason="names_per_key"} 0 0 1x60`},
	"XdsRelayStreamsNearLimit":            {`xdsrelay_limit{limit="streams"} 1000x60`, `xdsrelay_downstream_streams{variant="sotw"} 801x60`},
	"XdsRelayKeysNearLimit":               {`xdsrelay_keys 8001x60`},
	"XdsRelayPinnedNearLimit":             {`xdsrelay_pinned_bytes 900000000x60`},
	"XdsRelayFileDescriptors":             {`process_max_fds 100x60`, `process_open_fds 81x60`},
	"XdsRelayMemoryGrows":                 {`process_resident_memory_bytes 100x1400 300x160`},
	"XdsRelayStoreFails":                  {`xdsrelay_store_writes_total{result="failed"} 0 0 1x60`},
	"XdsRelayStoreDamaged":                {`xdsrelay_store_damaged_total 0 0 1x60`},
	"XdsRelayStoreEvicts":                 {`xdsrelay_store_evicted_total 0 0 1x60`},
	"XdsRelayTracesLost":                  {`xdsrelay_trace_spans_total{result="failed"} 0 0 1x60`},
}

// alsoFires has, for alerts about several faults, the series of the others.
var alsoFires = []struct{ alert, series string }{
	{"XdsRelayUnmapped", `xdsrelay_downstream_unanswered_types{reason="unmapped_later_type"} 1x60`},
	{"XdsRelayNotAllowed", `xdsrelay_downstream_unanswered_types{reason="secrets"} 1x60`},
	{"XdsRelayStoreFails", `xdsrelay_store_off 1x60`},
	{"XdsRelayStoreFails", `xdsrelay_store_unwritten_age_seconds 301x60`},
}

var labelUsed = regexp.MustCompile(`\$labels\.(\w+)`)

// fire replaces series of a history, and returns the labels of the rule's result and how long it has
// one.
func (h history) fire(t *testing.T, rule *rulefmt.Rule, lines []string) (labels.Labels, time.Duration) {
	t.Helper()
	origin, _ := values(families(t)["xdsrelay_upstream_away"], "origin")
	for _, line := range lines {
		l, sequence, err := promql.ParseSeriesDesc(strings.ReplaceAll(line, "ORIGIN", origin[0]))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		var list []float64
		for _, v := range sequence {
			if v.Omitted {
				v.Value = math.NaN()
			}
			list = append(list, v.Value)
		}
		h.put(relabelled(l), list)
	}
	return h.longest(t, rule.Expr)
}

// No alert fires for a healthy relay. Each fires for its own fault, which lasts as long as the
// alert's "for", and has the labels that its texts show.
func TestAlertsFire(t *testing.T) {
	all, rules := families(t), alerts(t)
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			bad, ok := fires[name]
			if !ok {
				t.Fatal("nothing is known at which it is to fire")
			}
			h := healthy(all)
			if v := h.ask(t, rule.Expr); len(v) != 0 {
				t.Errorf("it fires at a healthy relay: %v", v)
			}
			if bad == nil {
				clear(h)
			}
			metric, lasts := h.fire(t, &rule, bad)
			if lasts < 0 {
				t.Fatal("it does not fire")
			}
			if wait := time.Duration(rule.For); lasts < wait {
				t.Errorf("its expression has a result for %s only; it waits for %s", lasts, wait)
			}
			for _, text := range rule.Annotations {
				for _, m := range labelUsed.FindAllStringSubmatch(text, -1) {
					if !metric.Has(m[1]) {
						t.Errorf("it shows the label %s, and has %s", m[1], metric)
					}
				}
			}
			if !slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) {
				t.Errorf("its severity is %q", rule.Labels["severity"])
			}
		})
	}
	for name := range fires {
		if _, ok := rules[name]; !ok {
			t.Errorf("%s is no alert", name)
		}
	}
	for _, also := range alsoFires {
		rule := rules[also.alert]
		if _, lasts := healthy(all).fire(t, &rule, []string{also.series}); lasts < time.Duration(rule.For) {
			t.Errorf("%s does not fire for %s", also.alert, also.series)
		}
	}
}

// The alerts about replicas do not fire in a rolling update, which adds a replica before it removes
// one. They fire if a replica does not come back, and only one of them.
func TestRollingUpdate(t *testing.T) {
	rules := alerts(t)
	for _, c := range []struct {
		name    string
		series  []string
		missing bool
	}{
		{"replaced", []string{
			`up{instance="b:1"} 1x1530 0x1 _x30`, `xdsrelay_build_info{version="v1",instance="b:1"} 1x1530 _x30`,
			`up{instance="c:1"} _x1525 1x35`, `xdsrelay_build_info{version="v2",instance="c:1"} _x1525 1x35`,
		}, false},
		{"late", []string{
			`up{instance="b:1"} 1x1500 _x60`, `xdsrelay_build_info{version="v1",instance="b:1"} 1x1500 _x60`,
			`up{instance="c:1"} _x1508 1x52`, `xdsrelay_build_info{version="v2",instance="c:1"} _x1508 1x52`,
		}, false},
		{"gone", []string{`up{instance="b:1"} 1x1500 _x60`, `xdsrelay_build_info{version="v1",instance="b:1"} 1x1500 _x60`}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := healthy(families(t))
			down, missing := rules["XdsRelayReplicaDown"], rules["XdsRelayReplicaMissing"]
			if _, lasts := h.fire(t, &down, c.series); lasts >= time.Duration(down.For) {
				t.Errorf("%s has a result for %s", down.Alert, lasts)
			}
			if _, lasts := h.longest(t, missing.Expr); (lasts >= time.Duration(missing.For)) != c.missing {
				t.Errorf("%s has a result for %s", missing.Alert, lasts)
			}
		})
	}
	h := healthy(families(t))
	missing := rules["XdsRelayReplicaMissing"]
	if _, lasts := h.fire(t, &missing, []string{`up{instance="b:1"} 1x1500 0x60`, `xdsrelay_build_info{version="v1",instance="b:1"} 1x1500 _x60`}); lasts >= time.Duration(missing.For) {
		t.Error("a replica that is down is also missing")
	}
}

// Each query of the dashboard has a result for a relay that serves clients, unless it only selects
// values above 0.
func TestPanelsShowSomething(t *testing.T) {
	h := healthy(families(t))
	for panel, list := range queries(t) {
		for _, expr := range list {
			if v := h.ask(t, expr); len(v) == 0 && !strings.Contains(expr, "> 0") {
				t.Errorf("%s shows nothing: %s", panel, expr)
			}
		}
	}
}
