package promql

import (
	"maps"
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
	"XdsRelayAbsent":                      {`xdsrelay_build_info{version="dev",job="other"} 1x1500 _x60`},
	"XdsRelayReplicaDown":                 {`up 0x60`},
	"XdsRelayReplicaMissing":              {`xdsrelay_build_info{version="dev",instance="b:1"} 1x1500 _x60`},
	"XdsRelayNotReady":                    {`xdsrelay_ready 0x60`},
	"XdsRelayRestarts":                    {`process_start_time_seconds 1 1 2 2 3 3 4 4 4`},
	"XdsRelayConfigRejected":              {`xdsrelay_config_rejected 1x60`},
	"XdsRelayNeedsRestart":                {`xdsrelay_config_needs_restart 2x60`},
	"XdsRelayCertificateNotReloaded":      {`xdsrelay_certificate_reload_failed{of="downstream.tls"} 1x60`},
	"XdsRelayCertificateExpiresIn30Days":  {`xdsrelay_certificate_expiry_timestamp_seconds{of="downstream.tls"} 2592000x60`},
	"XdsRelayCertificateExpiresIn7Days":   {`xdsrelay_certificate_expiry_timestamp_seconds{of="downstream.tls"} 604800x60`},
	"XdsRelayCertificateExpiresIn1Day":    {`xdsrelay_certificate_expiry_timestamp_seconds{of="downstream.tls"} 86400x60`},
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
	"XdsRelayClientsWait":                 {`xdsrelay_downstream_waiting_types{type="EDS"} 1x60`},
	"XdsRelayPropagationSlow":             {`xdsrelay_propagation_seconds_bucket{type="CDS",le="30"} 0+5x60`, `xdsrelay_propagation_seconds_bucket{type="CDS",le="+Inf"} 0+5x60`},
	"XdsRelayOriginUnreachableForClients": {`xdsrelay_refused_total{reason="origin_unreachable"} 0 0 1x60`},
	"XdsRelayUnmapped":                    {`xdsrelay_refused_total{reason="key_error"} 0 0 1x60`},
	"XdsRelayMixedUserAgents":             {`xdsrelay_mixed_user_agent_keys 1x60`},
	"XdsRelayMalformedRequests":           {`xdsrelay_refused_total{reason="request_invalid"} 0+60x60`},
	"XdsRelayNotAllowed":                  {`xdsrelay_refused_total{reason="identity"} 0+60x60`},
	"XdsRelayAdminWrongTokens":            {`xdsrelay_admin_wrong_tokens_total 0+5x60`},
	"XdsRelayRequestsDelayed":             {`xdsrelay_refused_total{reason="requests_per_second"} 0+600x60`},
	"XdsRelaySlowReaders":                 {`xdsrelay_refused_total{reason="send_timeout"} 0+60x60`},
	"XdsRelayOversized":                   {`xdsrelay_downstream_oversized_types{type="EDS"} 1x60`},
	"XdsRelayLimitReached":                {`xdsrelay_refused_total{reason="names_per_key"} 0 0 1x60`},
	"XdsRelayStreamsNearLimit":            {`xdsrelay_limit{limit="streams"} 1000x60`, `xdsrelay_downstream_streams{variant="sotw"} 801x60`},
	"XdsRelayKeysNearLimit":               {`xdsrelay_keys 8001x60`},
	"XdsRelayPinnedNearLimit":             {`xdsrelay_pinned_bytes 900000000x60`},
	"XdsRelayFileDescriptors":             {`process_max_fds 100x60`, `process_open_fds 81x60`},
	"XdsRelayMemoryGrows":                 {`process_resident_memory_bytes 100x1400 300x160`},
	"XdsRelayMemberAlone":                 {`xdsrelay_cluster_unjoined 2x60`, `xdsrelay_cluster_members{state="alive"} 1x60`},
	"XdsRelayKeysDirect":                  {`xdsrelay_cluster_keys{role="direct"} 1x60`},
	"XdsRelayMembersDiffer":               {`xdsrelay_cluster_members{state="unusable"} 1x60`},
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

// asksRelay matches commands that ask a relay at its admin address.
var asksRelay = regexp.MustCompile(`^(relay|curl) `)

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
// alert's "for", and has the labels that its texts show. Its command asks the relay that it is about.
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
			if command := rule.Annotations["command"]; asksRelay.MatchString(command) && strings.Contains(command, "$labels.instance") != metric.Has("instance") {
				t.Errorf("the command %s; the alert has the labels %s", command, metric)
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

// A certificate of a day that is renewed at half of its lifetime raises no alert. One that is not
// renewed raises the alerts one after the other.
func TestShortLivedCertificates(t *testing.T) {
	rules := alerts(t)
	names := []string{"XdsRelayCertificateExpiresIn30Days", "XdsRelayCertificateExpiresIn7Days", "XdsRelayCertificateExpiresIn1Day"}
	for _, c := range []struct {
		hours float64 // left
		fire  int
	}{{12, 0}, {6, 1}, {2.5, 2}, {0.5, 3}, {-1, 3}} {
		h := healthy(families(t))
		of := func(name string) labels.Labels {
			return relabelled(labels.FromStrings(labels.MetricName, name, "of", "downstream.tls"))
		}
		h.put(of("xdsrelay_certificate_lifetime_seconds"), slices.Repeat([]float64{86400}, minutes+1))
		h.put(of("xdsrelay_certificate_expiry_timestamp_seconds"), slices.Repeat([]float64{minutes*60 + c.hours*3600}, minutes+1))
		for i, name := range names {
			if fires := len(h.ask(t, rules[name].Expr)) > 0; fires != (i < c.fire) {
				t.Errorf("%v h before the expiry: %s is %v", c.hours, name, fires)
			}
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
		{"another for 20 minutes", []string{
			`up{instance="b:1"} _x1470 1x20 _x70`, `xdsrelay_build_info{version="v2",instance="b:1"} _x1470 1x20 _x70`,
		}, false},
		{"gone", []string{`up{instance="b:1"} 1x1500 _x60`, `xdsrelay_build_info{version="v1",instance="b:1"} 1x1500 _x60`}, true},
		{"gone for 15 hours", []string{`up{instance="b:1"} 1x660 _x900`, `xdsrelay_build_info{version="v1",instance="b:1"} 1x660 _x900`}, true},
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

// A job of relays that vanishes or is down raises an alert as long as the fault stays, also while
// another job has relays.
func TestTwoJobs(t *testing.T) {
	rules := alerts(t)
	const up, relays = `up{job="b",instance="b:1"} `, `xdsrelay_build_info{version="v1",job="b",instance="b:1"} `
	for _, c := range []struct {
		name         string
		up, relays   string
		absent, down bool
	}{
		{"healthy", "1x1560", "1x1560", false, false},
		{"vanished", "1x30 _x1530", "1x30 _x1530", true, false},
		{"down for 25 hours", "1x30 0x1529", "1x30 _x1530", true, true},
	} {
		for name, want := range map[string]bool{"XdsRelayAbsent": c.absent, "XdsRelayReplicaDown": c.down} {
			rule := rules[name]
			metric, lasts := healthy(families(t)).fire(t, &rule, []string{up + c.up, relays + c.relays})
			if fires := lasts >= time.Hour; fires != want || fires && metric.Get("job") != "b" {
				t.Errorf("%s: %s has a result for %s with %s", c.name, name, lasts, metric)
			}
		}
	}
	for name, h := range map[string]history{"no series": {}, "no relay": healthy(families(t))} {
		maps.DeleteFunc(h, func(_ string, s series) bool { return s.labels.Get(labels.MetricName) == "xdsrelay_build_info" })
		if v := h.ask(t, rules["XdsRelayAbsent"].Expr); len(v) != 1 {
			t.Errorf("%s: %v", name, v)
		}
	}
}

// A member that knows another is not alone, also if it can share no keys with it, or if it has not found
// all others.
func TestMemberAlone(t *testing.T) {
	rule := alerts(t)["XdsRelayMemberAlone"]
	for _, other := range []string{`xdsrelay_cluster_members{state="alive"} 2x60`, `xdsrelay_cluster_members{state="unusable"} 1x60`} {
		h := healthy(families(t))
		if _, lasts := h.fire(t, &rule, []string{`xdsrelay_cluster_unjoined 2x60`, `xdsrelay_cluster_members{state="alive"} 1x60`, other}); lasts >= time.Duration(rule.For) {
			t.Errorf("%s: it fires", other)
		}
	}
}

// ends has, for alerts on gauges, series with a fault that was repaired a minute ago.
var ends = map[string]string{
	"XdsRelayAbsent":                     `xdsrelay_build_info{version="dev",job="other"} 1x1400 _x100 1x1`,
	"XdsRelayReplicaDown":                `up 0x60 1x1`,
	"XdsRelayReplicaMissing":             `xdsrelay_build_info{version="dev",instance="b:1"} 1x1400 _x100 1x1`,
	"XdsRelayNotReady":                   `xdsrelay_ready 0x60 1x1`,
	"XdsRelayConfigRejected":             `xdsrelay_config_rejected 1x60 0x1`,
	"XdsRelayNeedsRestart":               `xdsrelay_config_needs_restart 2x60 0x1`,
	"XdsRelayCertificateNotReloaded":     `xdsrelay_certificate_reload_failed{of="downstream.tls"} 1x60 0x1`,
	"XdsRelayCertificateExpiresIn30Days": `xdsrelay_certificate_expiry_timestamp_seconds{of="downstream.tls"} 1x60 4102444800x1`,
	"XdsRelayCertificateExpiresIn7Days":  `xdsrelay_certificate_expiry_timestamp_seconds{of="downstream.tls"} 1x60 4102444800x1`,
	"XdsRelayCertificateExpiresIn1Day":   `xdsrelay_certificate_expiry_timestamp_seconds{of="downstream.tls"} 1x60 4102444800x1`,
	"XdsRelayRuleErrors":                 `xdsrelay_rules_with_errors 1x60 0x1`,
	"XdsRelayNoOrigin":                   `xdsrelay_upstream_away{origin="ORIGIN"} 1x60 0x1`,
	"XdsRelayOriginAway":                 `xdsrelay_upstream_away{origin="ORIGIN"} 1x60 0x1`,
	"XdsRelayOriginSilent":               `xdsrelay_upstream_silent_streams{origin="ORIGIN"} 2x60 0x1`,
	"XdsRelayOriginRejected":             `xdsrelay_upstream_rejected_types{type="CDS",origin="ORIGIN"} 1x60 0x1`,
	"XdsRelayOriginFiles":                `xdsrelay_upstream_faulty_files{origin="ORIGIN"} 1x60 0x1`,
	"XdsRelayServesLastKnownGood":        `xdsrelay_stale_types 3x60 0x1`,
	"XdsRelayClientsNack":                `xdsrelay_downstream_types{type="CDS",state="nacked"} 1x60 0x1`,
	"XdsRelayClientsWait":                `xdsrelay_downstream_waiting_types{type="EDS"} 1x60 0x1`,
	"XdsRelayMixedUserAgents":            `xdsrelay_mixed_user_agent_keys 1x60 0x1`,
	"XdsRelayOversized":                  `xdsrelay_downstream_oversized_types{type="EDS"} 1x60 0x1`,
	"XdsRelayUnmapped":                   `xdsrelay_downstream_unanswered_types{reason="unmapped_later_type"} 1x60 0x1`,
	"XdsRelayNotAllowed":                 `xdsrelay_downstream_unanswered_types{reason="secrets"} 1x60 0x1`,
	"XdsRelayMemberAlone":                `xdsrelay_cluster_unjoined 2x60 0x1`,
	"XdsRelayKeysDirect":                 `xdsrelay_cluster_keys{role="direct"} 1x60 0x1`,
	"XdsRelayMembersDiffer":              `xdsrelay_cluster_members{state="unusable"} 1x60 0x1`,
	"XdsRelayStoreFails":                 `xdsrelay_store_off 1x60 0x1`,
}

// An alert on a gauge ends with the fault.
func TestAlertsEnd(t *testing.T) {
	rules := alerts(t)
	for name, line := range ends {
		h, rule := healthy(families(t)), rules[name]
		if _, lasts := h.fire(t, &rule, []string{line}); lasts < 50*time.Minute {
			t.Errorf("%s has a result for %s while the fault stays", name, lasts)
		}
		if v := h.ask(t, rule.Expr); len(v) != 0 {
			t.Errorf("%s does not end: %v", name, v)
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
