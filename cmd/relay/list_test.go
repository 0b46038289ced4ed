package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

func TestKeys(t *testing.T) {
	o := operate(t, "")
	for command, want := range map[string]string{"keys": "no keys\n", "status": "no clients\n", "status --summary": "no clients\n", "status --state STALE": "no clients\n"} {
		if code, out := o.run(strings.Fields(command)...); code != 0 || out != want {
			t.Errorf("%s: %d %s", command, code, out)
		}
	}
	o.client("web-0", "edge", xds.SotW).take().answer("")
	o.client("web-1", "mesh", xds.Delta).take().answer("no")
	o.until([]string{"status"}, "1 SYNCED, 1 NACKED")
	code, out := o.run("keys")
	lines := strings.Split(out, "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	if code != 0 || len(lines) != 4 || lines[0] != "KEY CLIENTS SYNCED UNCONFIRMED NOT SENT STALE NACKED RESOURCES CHANGED ORIGIN PROBLEM" ||
		!strings.HasPrefix(lines[1], "edge 1 1 0 0 0 0 2 ") || !strings.HasPrefix(lines[2], "mesh 1 0 0 0 0 1 2 ") || !strings.HasSuffix(lines[1], "s file:origin -") {
		t.Errorf("%d %q", code, lines)
	}
	_, rows := o.run("keys", "--no-headers")
	if strings.Count(rows, "\n") != 2 || !strings.HasPrefix(rows, "edge ") {
		t.Errorf("%q", rows)
	}
	if code, out := o.run("nacks", "--no-headers", "--key", "edge"); code != 0 || out != "" {
		t.Errorf("%d %q", code, out)
	}
	if code, out := o.run("keys", "-o", "yaml"); code != 0 || !strings.HasPrefix(out, "items:\n  - key: edge\n") {
		t.Errorf("%d %s", code, out)
	}
}

func TestKeyProblem(t *testing.T) {
	now := time.Now()
	then := now.Add(-time.Minute)
	up := keystatus.Upstream{Connected: true}
	names := keystatus.Subscriptions{Type: "EDS", Names: []string{"a", "b"}, More: true}
	for _, c := range []struct {
		key  keystatus.Key
		want string
	}{
		{keystatus.Key{Upstream: up}, ""},
		{keystatus.Key{}, "not connected: connecting"},
		{keystatus.Key{Upstream: keystatus.Upstream{Error: "refused\nby it"}, Types: []keystatus.TypeSummary{{Stale: true}}}, "not connected: refused by it; last known good"},
		{keystatus.Key{Refused: "nothing is held", Upstream: keystatus.Upstream{Error: "refused"}}, "refuses clients: nothing is held"},
		{keystatus.Key{Node: "n", Upstream: up, Second: &keystatus.Upstream{Connected: true, SilentSince: then}}, `the origin has not answered node "n" for 1m00s`},
		{keystatus.Key{Upstream: up, IdleSince: then}, "no clients for 1m00s"},
		{keystatus.Key{Upstream: up, Types: []keystatus.TypeSummary{{Unanswered: &keystatus.Unanswered{Subscriptions: names, Clients: 5, Since: then}}}},
			"the origin has not answered EDS a, b and more; 5 clients wait (for 1m00s)"},
		{keystatus.Key{Upstream: up, Suspended: []keystatus.Suspended{{Subscriptions: names, Since: then, Error: "no a\nhere"}}},
			"the origin ends each stream with EDS a, b and more: no a here (for 1m00s)"},
		{keystatus.Key{Upstream: up, FrequentEnds: []keystatus.FrequentEnds{{Origin: "one", Count: 7, Since: then, Error: "EOF"}}},
			"origin one ended the stream 7 times in a row: EOF (for 1m00s)"},
	} {
		if got := keyProblem(&c.key, now); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestOrigins(t *testing.T) {
	o := operate(t, "")
	var code int
	var lines []string
	xdstest.Eventually(t, "a connection to the origin", func() error {
		var out string
		code, out = o.run("origins")
		if lines = strings.Split(out, "\n"); strings.Contains(out, "connecting") {
			return errors.New(out)
		}
		return nil
	})
	if code != 0 || len(lines) != 3 || strings.Join(strings.Fields(lines[0]), " ") != "ORIGIN STATE STREAMS SILENT CONNECTIONS RECONNECTS ADDRESS PROBLEM" ||
		!strings.HasPrefix(lines[1], "file:origin  connected  0 ") {
		t.Errorf("%d %q", code, lines)
	}
	now := time.Now()
	then := now.Add(-time.Minute)
	for _, c := range []struct {
		origin upstream.OriginStatus
		want   string
	}{
		{upstream.OriginStatus{Reached: then, Connections: 1, LastError: "lost"}, "connected -"},
		{upstream.OriginStatus{Reached: then, LastError: "lost"}, "not connected -"},
		{upstream.OriginStatus{}, "connecting -"},
		{upstream.OriginStatus{Away: true, AwaySince: then, LastError: "dial\nrefused"}, "never reached 1m00s dial refused"},
		{upstream.OriginStatus{Away: true, AwaySince: then, Reached: then, LastError: "lost", Faults: []string{"a", "b"}}, "away 1m00s lost; a; b"},
		{upstream.OriginStatus{Reached: then, Connections: 1, Rejected: []upstream.RejectedType{{Type: "CDS", Keys: 2, Error: "no name"}}}, "connected the relay rejects CDS of 2 keys: no name"},
		{upstream.OriginStatus{Reached: then, Connections: 1, Silent: 2, SilentSince: then}, "silent 1m00s -"},
		{upstream.OriginStatus{Reached: then, Connections: 1, Streams: 9, Silent: 2, SilentSince: then}, "connected, 2 silent -"},
	} {
		columns := originColumns(now)
		if got := columns[1].Cell(&c.origin).Text + " " + columns[len(columns)-1].Cell(&c.origin).Text; got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// relay health needs no token, and does not read the file of the configuration.
func TestHealth(t *testing.T) {
	dir := xdstest.Files(t, map[string]string{
		"relay.yaml": "upstream: {origins: [{address: 'file:.'}]}\ndownstream: {address: '127.0.0.1:0', drain: 0s}\nlog: {level: error}\nadmin: {address: '127.0.0.1:0', token_file: token}\n",
		"token":      "right",
	})
	at := running(t, filepath.Join(dir, "relay.yaml"))
	file := filepath.Join(dir, "other.yaml")
	xdstest.WriteFile(t, file, "upstream: {origins: [{address: 'file:.'}]}\nadmin: {address: '"+at+"', token_file: none}\n")
	for _, args := range [][]string{{"--admin", at}, {"--config", file}} {
		if code, out, errs := runRelay(append([]string{"health"}, args...)...); code != 0 || out != "the relay at http://"+at+" is live\n" || errs != "" {
			t.Errorf("%v: %d %s%s", args, code, out, errs)
		}
	}
	if code, out, errs := runRelay("health", "--admin", "127.0.0.1:1"); code != 1 || out != "" || !strings.Contains(errs, "nothing listens at http://127.0.0.1:1") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if _, out, _ := runRelay("health", "--help"); strings.Contains(out, "--token-file") {
		t.Error(out)
	}
}
