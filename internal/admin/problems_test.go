package admin

import (
	"strings"
	"testing"
	"time"

	"xdsrelay/config"
	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/admin/overview"
	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/orchestrator"
	"xdsrelay/internal/store"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tlsfiles"
	"xdsrelay/internal/upstream"
)

// Each problem of the relay is in the list, with what it means and what to do. The order is fixed.
func TestProblems(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const day = 24 * time.Hour
	certificate := func(of string, expiresIn, lifetime time.Duration, issuer string) Certificate {
		return Certificate{of, tlsfiles.Validity{Expires: at.Add(expiresIn), Lifetime: lifetime, Issuer: issuer}}
	}
	mixed := orchestrator.MixedUserAgents{Names: [2]string{"envoy", "gRPC Go"}, Since: at}
	for _, c := range []struct {
		name string
		o    observed
		want []string // severity, text
	}{
		{"none", observed{state: "serving", origins: []upstream.OriginStatus{{Name: "one"}}, store: &store.Status{Path: "/store"}}, nil},
		{"all", observed{
			now: at, state: "draining", staleTypes: 4, store: &store.Status{Path: "/store", Off: true, LastError: "no space left on device"},
			configuration: Configuration{
				NeedsRestart: []string{"name", "store.path"}, Rejected: &Rejection{At: at, Faults: []string{"relay.yaml:3: x", "relay.yaml:4: y"}},
				RejectedFiles: []RejectedFile{{Of: "admin.token_file", Error: "token: empty", Since: at}},
			},
			origins: []upstream.OriginStatus{{Name: "one", Away: true, AwaySince: at, Reached: at, LastError: "refused"}, {Name: "two", Silent: 2, SilentSince: at, Rejected: []upstream.RejectedType{
				{Type: "CDS", Keys: 1, Key: "edge", Error: "no name"}, {Type: "EDS", Keys: 3, Key: "web", Error: "wrong type"},
			}, Faults: []string{"a.yaml: gone", "b.yaml: bad"}}},
			rules: []aggregator.Stat{
				{Rule: "aggregation.rules[0]", Place: config.Pos{File: "relay.yaml", Line: 7, Column: 5}, Errors: 2, Failed: at}, {Rule: "aggregation.rules[1]"},
				{Rule: "aggregation.rules[2]", Errors: 1, Failed: at.Add(-time.Hour)},
			},
			oversized: []telemetry.TypeCount{{Type: "EDS", Clients: 2}}, noNames: 3,
			refusals: []refusal.Recent{
				{Reason: "origin_unreachable", Count: 7, Node: "n", Key: "edge", Error: "key edge: no origin", At: at},
				{Reason: "unmapped", Count: 1, Node: "web-0", Error: "no rule", At: at},
				{Reason: "tls_handshake", Count: 1, Error: "x", At: at},
				{Reason: "report", Count: 2, Node: "vm-0", Error: "unhealthy", At: at},
			},
			keys: []keystatus.Key{{Key: "edge"}, {Key: "shop/cart", Mixed: &mixed}, {Key: "shop/web", Mixed: &orchestrator.MixedUserAgents{}}},
		}, []string{
			"warning: the relay is draining",
			"error: the configuration file has faults and is not in force: relay.yaml:3: x; relay.yaml:4: y",
			"error: admin.token_file: its new content cannot be used: token: empty",
			"error: origin one is away: refused",
			"error: the relay rejects CDS responses of origin two for key edge: no name",
			"error: the relay rejects EDS responses of origin two for key web and 2 others: wrong type",
			"error: origin two has files that cannot be used: a.yaml: gone; b.yaml: bad",
			"error: the relay serves 4 types from the last known good: no origin has answered for them since the relay started",
			"error: the store /store is off: no space left on device",
			"error: the relay refused or ended 7 streams in the last minute; reason origin_unreachable: key edge: no origin",
			"error: the relay refused or ended 1 stream in the last minute; reason unmapped, last node web-0: no rule",
			"error: the relay refused or ended 1 connection in the last minute; reason tls_handshake: x",
			"warning: the relay dropped 2 reports of clients in the last minute, last node vm-0: unhealthy",
			"warning: 2 keys have nodes of different kinds, for example key shop/cart: envoy and gRPC Go",
			"error: EDS responses are too large to be sent to 2 clients",
			"error: the origin's resources have no names for 3 types of delta clients",
			"warning: the match of these rules fails for some nodes: aggregation.rules[0] (relay.yaml:7:5)",
			"warning: the configuration file has new values that need a restart: name, store.path",
		}},
		{"rules that need --force", observed{state: "serving", configuration: Configuration{Rejected: &Rejection{At: at, NeedsForce: true, Faults: []string{"relay.yaml:3: aggregation: many clients"}}}}, []string{
			"error: the configuration file is not in force: relay.yaml:3: aggregation: many clients",
		}},
		{"certificates", observed{
			now: at, state: "serving", refusals: []refusal.Recent{{Reason: "tls_handshake", Count: 1, Error: "remote error: tls: expired certificate"}},
			configuration: Configuration{Certificates: []Certificate{
				certificate("downstream.tls", 0, 365*day, ""), certificate("downstream.listeners[1].tls", 30*day+time.Second, 365*day, ""),
				certificate("downstream.listeners[2].tls", 12*time.Hour, day, ""), certificate("downstream.listeners[3].tls", 8*time.Hour, day, ""),
				certificate("admin.tls", 30*day, 365*day, ""), certificate("origin one", time.Second, 365*day, "CN=ca"),
			}},
		}, []string{
			"error: the certificate of downstream.tls expired at 2026-01-02T03:04:05Z",
			"warning: the certificate of downstream.listeners[3].tls expires at 2026-01-02T11:04:05Z, in 8h0m0s",
			"warning: the certificate of admin.tls expires at 2026-02-01T03:04:05Z, in 30 days",
			"warning: the issuer CN=ca of origin one expires at 2026-01-02T03:04:06Z, in 1s",
			"error: the relay refused or ended 1 connection in the last minute; reason tls_handshake: remote error: tls: expired certificate",
		}},
		{"a certificate that is not valid yet", observed{now: at, state: "serving", configuration: Configuration{Certificates: []Certificate{
			{"downstream.tls", tlsfiles.Validity{From: at.Add(time.Second), Expires: at.Add(day)}},
		}}}, []string{"error: the certificate of downstream.tls is not valid before 2026-01-02T03:04:06Z"}},
		{"keys", observed{state: "serving", keys: []keystatus.Key{
			{Key: "a", Types: []keystatus.TypeSummary{{Unanswered: &keystatus.Unanswered{Subscriptions: keystatus.Subscriptions{Type: "EDS", Names: []string{"x", "y"}}, Clients: 5, Since: at}}}},
			{Key: "b", Suspended: []keystatus.Suspended{{Subscriptions: keystatus.Subscriptions{Type: "SRDS", Wildcard: true}, Error: "unknown", Since: at}}},
			{Key: "s", Members: 1, Node: "web-0", Upstream: keystatus.Upstream{Connected: true, Origin: "two", SilentSince: at}},
			{Key: "idle", Node: "web-1", Upstream: keystatus.Upstream{Connected: true, Origin: "two", SilentSince: at}},
			{Key: "c", FrequentEnds: []keystatus.FrequentEnds{{Origin: "one", Count: 7, Error: "EOF", Since: at}}},
		}}, []string{
			"error: key a: the origin has not answered EDS x, y; 5 clients wait",
			"error: key b: the origin ends each stream with SRDS (wildcard): unknown",
			"error: key s: origin two has not answered node \"web-0\"",
			"error: key c: origin one ended the stream 7 times in a row: EOF",
		}},
		{"one stale type", observed{state: "serving", staleTypes: 1}, []string{
			"error: the relay serves 1 type from the last known good: no origin has answered for it since the relay started",
		}},
		{"one mixed key", observed{state: "serving", keys: []keystatus.Key{{Key: "a", Mixed: &mixed}}}, []string{
			"warning: 1 key has nodes of different kinds, for example key a: envoy and gRPC Go",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.o.problems()
			for i, p := range got {
				if i >= len(c.want) || p.Severity+": "+p.Text != c.want[i] {
					t.Errorf("%d: %s: %s", i, p.Severity, p.Text)
				}
				if p.Impact == "" || p.Next == "" {
					t.Errorf("%s: no impact or no next step", p.Text)
				}
			}
			if len(got) != len(c.want) {
				t.Errorf("%d problems, want %d", len(got), len(c.want))
			}
		})
	}
}

// The time of a problem is the time of its source.
func TestProblemTimes(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o := observed{state: "serving", origins: []upstream.OriginStatus{{Name: "one", Away: true, AwaySince: at}}, refusals: []refusal.Recent{{Reason: "unmapped", At: at}}}
	got := o.problems()
	if len(got) != 2 || !got[0].Since.Equal(at) || !got[1].Last.Equal(at) || got[1].Severity != overview.Error {
		t.Errorf("%+v", got)
	}
}

// The problem of an origin that is away says how many clients are served without an origin, and how
// often clients were refused.
func TestAwayOrigin(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	one := upstream.OriginStatus{Name: "one", Address: "one:1", Away: true, AwaySince: at, Reached: at, LastError: "refused"}
	never := one
	never.Reached = time.Time{}
	two := upstream.OriginStatus{Name: "two", Reached: at}
	key := func(origin string, connected bool, members ...int) keystatus.Key {
		k := keystatus.Key{Upstream: keystatus.Upstream{Origin: origin, Connected: connected}}
		for _, n := range members {
			k.Types = append(k.Types, keystatus.TypeSummary{Members: n})
		}
		return k
	}
	refused := []refusal.Recent{{Reason: "unmapped", Count: 9}, {Reason: "origin_unreachable", Count: 4}}
	directory := observed{state: "serving", origins: []upstream.OriginStatus{{Name: "one", Address: "file:///xds", Away: true}}}
	if next := directory.problems()[0].Next; !strings.HasPrefix(next, "Check that the directory exists") {
		t.Errorf("of a directory: %s", next)
	}
	for _, c := range []struct {
		name         string
		o            observed
		text, impact string
	}{
		{"never reached", observed{origins: []upstream.OriginStatus{never}},
			"origin one has never been reached: refused", "The relay refuses new clients for which it has nothing."},
		{"clients keep what they have", observed{origins: []upstream.OriginStatus{one}, keys: []keystatus.Key{key("one", false, 5, 7), key("one", false, 1), key("one", true, 9)}},
			"origin one is away: refused", "The relay serves 8 clients from what it has. No changes arrive for them. The relay refuses new clients for which it has nothing."},
		{"all origins are away, whichever a key tried last", observed{origins: []upstream.OriginStatus{one, {Name: "spare", Away: true}}, keys: []keystatus.Key{key("one", false, 5), key("spare", false, 3)}},
			"origin one is away: refused", "The relay serves 8 clients from what it has. No changes arrive for them. The relay refuses new clients for which it has nothing."},
		{"clients are refused", observed{origins: []upstream.OriginStatus{one}, keys: []keystatus.Key{key("one", false, 1)}, refusals: refused},
			"origin one is away: refused", "The relay serves 1 client from what it has. No changes arrive for it. The relay refused clients 4 times in the last minute, because it has nothing for them."},
		{"another origin serves", observed{origins: []upstream.OriginStatus{one, two}, keys: []keystatus.Key{key("two", true, 5)}, refusals: refused},
			"origin one is away: refused", "None for clients now: the relay uses another origin."},
		{"another origin is there, and a key has not changed to it yet", observed{origins: []upstream.OriginStatus{one, two}, keys: []keystatus.Key{key("one", false, 2)}},
			"origin one is away: refused", "The relay serves 2 clients from what it has. No changes arrive for them."},
	} {
		c.o.state = "serving"
		got := c.o.problems()[0]
		if got.Text != c.text || got.Impact != c.impact || got.Since != at || got.Next == "" {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// An origin that refuses the relay can be reached, so other things are to be checked.
func TestProblemOfAnOriginThatRefuses(t *testing.T) {
	for code, want := range map[string]string{"PermissionDenied": "The origin answers", "Unauthenticated": "The origin answers", "Unavailable": "Check that the origin runs"} {
		p := new(observed).away(&upstream.OriginStatus{Reached: time.Now(), LastError: "rpc error: code = " + code + " desc = no"})
		if !strings.HasPrefix(p.Next, want) {
			t.Errorf("%s: %s", code, p.Next)
		}
	}
}

// A problem that many keys have is shown for some of them.
func TestProblemsOfManyKeysAreBounded(t *testing.T) {
	o := observed{state: "serving", keys: make([]keystatus.Key, 27)}
	for i := range o.keys {
		o.keys[i].FrequentEnds = []keystatus.FrequentEnds{{Origin: "one", Count: 7}}
	}
	got := o.problems()
	if n := len(got); n != 21 || got[n-1].Text != "7 further problems of this kind, which relay keys shows" {
		t.Errorf("%d: %+v", n, got[n-1])
	}
}
