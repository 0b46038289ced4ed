package promql

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// fires has, for each alert, series with which it must fire. They replace those of a healthy relay.
// Their notation is that of Prometheus' own tests, with one value a minute. A counter that grows once
// is a fault that does not repeat.
var fires = map[string][]string{
	"XdsRelayAbsent":                      nil, // no relay exists
	"XdsRelayNotReady":                    {`xdsrelay_ready 0x60`},
	"XdsRelayRestarts":                    {`process_start_time_seconds 1 1 2 2 3 3 4 4 4`},
	"XdsRelayConfigRejected":              {`xdsrelay_config_rejected 1x60`},
	"XdsRelayNeedsRestart":                {`xdsrelay_config_needs_restart 2x60`},
	"XdsRelayCertificateNotReloaded":      {`xdsrelay_certificate_reloads_total{result="failed"} 0 0 1x60`},
	"XdsRelayCertificateExpiresIn30Days":  {`xdsrelay_certificate_expiry_timestamp_seconds{of="admin.tls"} 2592000x60`},
	"XdsRelayCertificateExpiresIn7Days":   {`xdsrelay_certificate_expiry_timestamp_seconds{of="downstream.tls"} 604800x60`},
	"XdsRelayCertificateExpiresIn1Day":    {`xdsrelay_certificate_expiry_timestamp_seconds{of="origin one"} 86400x60`},
	"XdsRelayRuleErrors":                  {`xdsrelay_rule_errors_total 0 0 1x60`},
	"XdsRelayNoOrigin":                    {`xdsrelay_upstream_away{origin="ORIGIN"} 1x60`},
	"XdsRelayOriginAway":                  {`xdsrelay_upstream_away{origin="second"} 1x60`},
	"XdsRelayOriginSilent":                {`xdsrelay_upstream_silent_streams{origin="ORIGIN"} 2x60`},
	"XdsRelayOriginEndsStreams":           {`xdsrelay_upstream_reconnects_total{origin="ORIGIN",reason="ended"} 0+3x60`},
	"XdsRelayOriginRejected":              {`xdsrelay_upstream_updates_total{type="CDS",result="rejected"} 0 0 1x60`},
	"XdsRelayNothingNew":                  {`xdsrelay_config_age_seconds 86401x60`},
	"XdsRelayServesLastKnownGood":         {`xdsrelay_stale_types 3x60`},
	"XdsRelayClientsRefuse":               {`xdsrelay_downstream_types{type="CDS",state="nacked"} 1x60`},
	"XdsRelayManyClientsRefuse":           {`xdsrelay_downstream_types{type="CDS",state="nacked"} 10x60`},
	"XdsRelayClientsBehind":               {`xdsrelay_downstream_types{type="CDS",state="stale"} 10x60`},
	"XdsRelayPropagationSlow":             {`xdsrelay_propagation_seconds_bucket{type="CDS",le="30"} 0+5x60`, `xdsrelay_propagation_seconds_bucket{type="CDS",le="+Inf"} 0+5x60`},
	"XdsRelayOriginUnreachableForClients": {`xdsrelay_refused_total{reason="origin_unreachable"} 0 0 1x60`},
	"XdsRelayUnmapped":                    {`xdsrelay_refused_total{reason="key_error"} 0 0 1x60`},
	"XdsRelayMixedUserAgents":             {`xdsrelay_mixed_user_agent_keys 1x60`},
	"XdsRelayMalformedRequests":           {`xdsrelay_refused_total{reason="request_invalid"} 0+60x60`},
	"XdsRelayNotAllowed":                  {`xdsrelay_refused_total{reason="identity"} 0+60x60`},
	"XdsRelayHostileClients":              {`xdsrelay_refused_total{reason="requests_per_second"} 0+600x60`},
	"XdsRelayClientsTakeNothing":          {`xdsrelay_refused_total{reason="send_timeout"} 0+60x60`},
	"XdsRelayOversized":                   {`xdsrelay_downstream_oversized_total{type="EDS"} 0 0 1x60`},
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

var labelUsed = regexp.MustCompile(`\$labels\.(\w+)`)

// No alert fires for a healthy relay. Each fires for its own fault, which lasts as long as the
// alert's "for", and has the labels that its texts show.
func TestAlertsFire(t *testing.T) {
	all, rules := families(t), alerts(t)
	origin, _ := values(all["xdsrelay_upstream_away"], "origin")
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
			for _, line := range bad {
				l, sequence, err := promql.ParseSeriesDesc(strings.ReplaceAll(line, "ORIGIN", origin[0]))
				if err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				var list []float64
				for _, v := range sequence {
					list = append(list, v.Value)
				}
				h.put(relabelled(l), list)
			}
			metric, lasts := h.longest(t, rule.Expr)
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
			for _, must := range []string{"summary", "description", "runbook_url"} {
				if rule.Annotations[must] == "" {
					t.Errorf("it has no %s", must)
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
