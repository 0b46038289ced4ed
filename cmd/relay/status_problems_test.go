package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Each problem of the relay is a line.
func TestTroubles(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		info, origins string
		want          []string
	}{
		{`{"state": "serving", "configuration": {}}`, `[{"name": "one"}]`, nil},
		{`{"state": "serving", "recent_refusals": [
			{"reason": "origin_unreachable", "count": 7, "node": "n", "key": "edge", "error": "no origin", "at": "2026-01-02T03:03:55Z"},
			{"reason": "unmapped", "count": 1, "node": "web-0", "error": "no rule", "at": "2026-01-02T03:04:02Z"}, {"reason": "tls_handshake", "count": 1, "error": "x", "at": "2026-01-02T03:04:05Z"},
			{"reason": "a", "count": 1, "error": "x", "at": "2026-01-02T03:04:05Z"}, {"reason": "b", "count": 1, "error": "x", "at": "2026-01-02T03:04:05Z"}, {"reason": "c", "count": 1, "error": "x"}]}`, `[]`, []string{
			"the relay refused or ended 7 streams in the last minute; reason origin_unreachable, key edge, last 10s ago: no origin",
			"the relay refused or ended 1 stream in the last minute; reason unmapped, last node web-0, last 3s ago: no rule",
			"the relay refused or ended 1 connection in the last minute; reason tls_handshake, last 0s ago: x",
			"the relay refused or ended 1 stream in the last minute; reason a, last 0s ago: x", "the relay refused or ended 1 stream in the last minute; reason b, last 0s ago: x",
			"the relay refused or ended streams for 1 more reason: see /server_info",
		}},
		{`{"state": "draining", "stale_types": 1}`, `[]`, []string{"the relay is draining", "the relay serves 1 type from the last known good: no origin has answered for it since the relay started"}},
		{`{"state": "serving", "stale_types": 4, "configuration": {"needs_restart": ["name", "store.path"], "rejected": {"faults": ["relay.yaml:3: x", "relay.yaml:4: y"]},
			"rejected_files": [{"of": "admin.token_file", "error": "token: empty", "since": "2026-01-02T03:03:05Z"}]},
			"store": {"path": "/store", "off": true, "last_error": "no space left on device"}}`,
			`[{"name": "one", "away": true, "away_since": "2026-01-02T03:02:05Z", "last_error": "refused\u001b[31m"},
			  {"name": "two", "silent_streams": 2, "silent_since": "2026-01-02T03:03:55Z", "faults": ["a.yaml: gone"]}]`,
			[]string{
				"origin one has been away for 2m00s: refused\ufffd[31m",
				"origin two has not answered on 2 streams for 10s",
				"origin two has files that cannot be used: a.yaml: gone",
				"the relay serves 4 types from the last known good: no origin has answered for them since the relay started",
				"the store /store is off; the relay tries it again each minute: no space left on device",
				"the configuration file has new values that need a restart: name, store.path",
				"the configuration file has faults and is not in force: relay.yaml:3: x; relay.yaml:4: y",
				"admin.token_file: the changed file cannot be used; its former content has stayed in force for 1m00s: token: empty",
			}},
	} {
		var s state
		if err := json.Unmarshal([]byte(c.info), &s.Info); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(c.origins), &s.Origins); err != nil {
			t.Fatal(err)
		}
		if got := s.problems(now); !slices.Equal(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// relay status prints a running relay's problems beside its table.
func TestStatusTellsOfTroubles(t *testing.T) {
	o := operate(t, "")
	if code, _, errs := runRelay("status", "--admin", o.admin); code != 0 || errs != "" {
		t.Errorf("%d %s", code, errs)
	}
	if err := os.WriteFile(filepath.Join(o.dir, "origin", "bad.yaml"), []byte("resources: [{]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for deadline := time.After(20 * time.Second); ; {
		code, _, errs := runRelay("status", "--admin", o.admin)
		if code == 0 && strings.HasPrefix(errs, "! origin ") && strings.Contains(errs, "bad.yaml") {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%d %q", code, errs)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
