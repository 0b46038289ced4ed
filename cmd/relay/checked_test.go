package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"xdsrelay/config"
	"xdsrelay/internal/validation"
)

// validate, serve and a reload find the same faults with the same places.
func TestFaultsAreTheSameEverywhere(t *testing.T) {
	for what, text := range map[string]string{
		"a value and a rule":     "  drain: -1s\naggregation:\n  rules:\n    - key: nope\n",
		"an unknown key and all": "  drian: 1s\n  identity: nope\nlog: {level: loud}\naggregation: {file: none.yaml}\n",
		"files":                  "  tls: {cert_file: none.crt, key_file: none.key}\n",
		"syntax":                 "  drain: [\n",
	} {
		t.Run(what, func(t *testing.T) {
			elsewhere := strings.ReplaceAll(base, "file:.", "127.0.0.1:1") // no files to read
			g := newReloadFixtureOf(t, elsewhere)
			file := filepath.Join(g.dir, "relay.yaml")
			if err := os.WriteFile(file, []byte(elsewhere+text), 0o600); err != nil {
				t.Fatal(err)
			}
			g.reload(false)
			code, said, _ := runRelay("validate", "--config", file)
			if code != 1 || said == "" {
				t.Fatalf("validate: %d %s", code, said)
			}
			if code, _, errs := runRelay("serve", "--config", file); code != 1 || errs != said {
				t.Errorf("serve: %d\n%s, want\n%s", code, errs, said)
			}
			r := g.r.configuration().Rejected
			if r == nil || !slices.Equal(r.Faults, strings.Split(strings.TrimSpace(said), "\n")) {
				t.Errorf("a reload says %+v, want\n%s", r, said)
			}
		})
	}
}

// A reload does not check an origin's directory that the relay follows: if it fails later, rules
// can still change.
func TestReloadOpensNothingAgain(t *testing.T) {
	g := newReloadFixture(t, "")
	cfg := *g.r.active.Load().cfg
	cfg.Upstream.Origins = []config.Origin{{Address: "file://" + filepath.Join(g.dir, "token")}} // as if a file stood there now
	if _, err := validation.Check(&cfg, nil, &cfg); err != nil {
		t.Error(err)
	}
	if _, err := validation.Check(&cfg, nil, g.r.cfg); err == nil || !strings.Contains(err.Error(), "upstream.origins[0].address") {
		t.Errorf("%v", err)
	}
}
