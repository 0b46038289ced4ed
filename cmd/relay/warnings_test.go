package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"xdsrelay/config"
	"xdsrelay/internal/relay"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/validation"
	"xdsrelay/internal/xdstest"
)

// A rule that uses nothing that a certificate proves gives no Secrets.
func TestSecretsNeedAProvenName(t *testing.T) {
	const tls = "  tls: {cert_file: c, key_file: k, client_ca_file: ca}\n"
	for _, c := range []struct {
		text  string
		fault bool
	}{
		{tls + "  identity: 'true'\n", true},
		{tls + "  identity: 'node.cluster == \"x\"'\n", true},
		{tls + "  identity: 'peer.address.startsWith(\"10.\")'\n", true},
		{tls + "  identity: '[{\"subject\": \"a\"}].exists(peer, peer.subject == \"a\")'\n", true},
		{tls + "  identity: 'has(peer.subject)'\n", true},
		{tls + "  identity: 'node.id in peer.uri_sans'\n", false},
		{tls + "  identity: 'peer.dns_sans[0] == node.id'\n", false},
		{tls + "  identity: 'peer.subject == \"CN=\" + node.id'\n", false},
		{tls + "  identity: 'true'\n  secrets: deny\n", false},
		{tls, false},                    // no rule: no Secrets
		{"  identity: 'true'\n", false}, // no mTLS: no Secrets
	} {
		dir := xdstest.Files(t, map[string]string{"r.yaml": "downstream:\n" + c.text + "upstream: {origins: [{address: \"a:1\"}]}\n"})
		_, out, errs := runRelay("validate", "-c", filepath.Join(dir, "r.yaml"))
		if got := strings.Contains(out+errs, "downstream.identity: uses neither peer.uri_sans"); got != c.fault {
			t.Errorf("%s\n%s%s", c.text, out, errs)
		}
	}
}

// One run prints all faults: unreadable, of a wrong type, not compiling, and missing.
func TestValidateSaysAllAtOnce(t *testing.T) {
	dir := xdstest.Files(t, map[string]string{"r.yaml": `downstream:
  long_pol: 1s
  ack_timeout: soon
  identity: node.nope
  tls: {cert_file: none, key_file: none}
upstream:
  origins: [{address: "http://a"}, {address: "file:none"}]
  variant: both
  node: 'Node{id: 5}'
aggregation:
  rules:
    - {match: node.cluster, keyy: node.id}
    - key: nope
admin: {token_file: none}
`})
	file := filepath.Join(dir, "r.yaml")
	code, out, errs := runRelay("validate", "-c", file)
	want := []string{
		"2: downstream.long_pol: unknown key; did you mean long_poll? (column 3)",
		`3: downstream.ack_timeout: must be a duration such as 30s, but is "soon" (column 16)`,
		"4: downstream.identity: undefined field 'nope'; did you mean zone? (column 17)",
		"5: downstream.tls.cert_file: open DIR/none: no such file or directory (column 20)",
		"5: downstream.tls.key_file: open DIR/none: no such file or directory (column 36)",
		"7: upstream.origins[0].address: must be host:port, or begin with one of dns: passthrough: unix: unix-abstract:, but begins with http: (column 23)",
		`8: upstream.variant: must be delta or sotw, but is "both" (column 12)`,
		"9: upstream.node: expected type of field 'id' is 'string' but provided type is 'int' (column 17)",
		"12: aggregation.rules[0].match: must give bool, but gives string (column 15)",
		"12: aggregation.rules[0].keyy: unknown key; did you mean key? (column 29)",
		"13: aggregation.rules[1].key[0]: undeclared reference to 'nope'; a text has quotes of its own: \"'nope'\" (column 12)",
		"14: admin.token_file: open DIR/none: no such file or directory (column 21)",
		"7: upstream.origins[1].address: warning: stat DIR/none: no such file or directory: the origin is away until the directory can be read (column 46)",
	}
	var got []string
	for l := range strings.Lines(out) {
		got = append(got, strings.ReplaceAll(strings.TrimSpace(strings.TrimPrefix(l, file+":")), dir, "DIR"))
	}
	if code != 1 || errs != "" || !slices.Equal(got, want) {
		t.Errorf("%d %s\n got %s\nwant %s", code, errs, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// REST has the TLS of the first listener, so that it needs no warning.
func TestRESTWithTLS(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	dir := xdstest.Files(t, map[string]string{"r.yaml": `downstream:
  rest_address: 127.0.0.1:15011
  tls: {cert_file: a.crt, key_file: a.key}
upstream: {origins: [{address: "127.0.0.1:18000"}]}
`})
	ca.Pair(t).Write(t, dir, "a")
	if code, out, errs := runRelay("validate", "-c", filepath.Join(dir, "r.yaml")); code != 0 || strings.Contains(out+errs, "rest_address") {
		t.Errorf("%d %s%s", code, out, errs)
	}
}

// validate prints the warnings of serve, and exits with 0.
func TestWarnings(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	dir := xdstest.Files(t, map[string]string{"r.yaml": `downstream:
  rest_address: 127.0.0.1:15011
  max_connection_age: 0s
  listeners:
    - {address: "127.0.0.1:15010", secrets: allow}
    - {address: "0.0.0.0:15012", tls: {cert_file: old.crt, key_file: old.key}}
    - {address: "127.0.0.1:15014", identity: "peer.dns_sans.exists(n, n == node.id) || peer.address == node.id"}
    - {address: "127.0.0.1:15016", identity: "peer.address == node.id"}
    - {address: "127.0.0.1:15017", tls: {cert_file: old.crt, key_file: old.key}, identity: node.id in peer.uri_sans}
    - {address: "127.0.0.1:15018", tls: {cert_file: old.crt, key_file: old.key, client_ca_file: old.crt}, identity: node.id in peer.uri_sans}
admin: {address: "0.0.0.0:15019", token_file: token}
upstream:
  origins:
    - {address: "dns:///localhost:15010"}
    - {address: "127.0.0.1:15012"}
    - {address: "127.0.0.1:15013"}
    - {address: "10.0.0.1:15010", token_file: token, token_plaintext: true}
  absent_after: 15s
  first_answer_timeout: 15s
`})
	ca.Pair(t, tlstest.ExpiresIn(24*time.Hour)).Write(t, dir, "old")
	xdstest.WriteFile(t, filepath.Join(dir, "token"), "t\n")
	t.Setenv("RELAY_UPSTREM_VARIANT", "sotw")
	file := filepath.Join(dir, "r.yaml")
	want := []string{
		"downstream.rest_address", "downstream.max_connection_age", "downstream.listeners[0].secrets", "downstream.listeners[1].tls.cert_file",
		"downstream.listeners[2].identity", "downstream.listeners[4].tls.cert_file", "downstream.listeners[4].identity",
		"downstream.listeners[5].tls.cert_file", "admin.address",
		"upstream.origins[0].address", "upstream.origins[1].address", "upstream.origins[3].token_plaintext", "upstream.absent_after",
		"upstream.first_answer_timeout", "RELAY_UPSTREM_VARIANT",
	}
	code, out, errs := runRelay("validate", "-c", file, "-o", "json")
	var v validation.Report
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 || errs != "" || !v.Valid {
		t.Fatalf("%d %v %s%s", code, err, out, errs)
	}
	var got []string
	for _, w := range v.Warnings {
		if w.Key == "" {
			w.Key = w.File
		}
		got = append(got, w.Key)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	code, out, _ = runRelay("validate", "-c", file)
	if code != 0 || strings.Count(out, ": warning: ") != len(want) || !strings.HasSuffix(out, "r.yaml is valid\n") ||
		!strings.Contains(out, "r.yaml:5: downstream.listeners[0].secrets: warning: any client that reaches 127.0.0.1:15010 gets Secrets in plaintext (column 45)\n") {
		t.Errorf("%d %s", code, out)
	}

	// Other addresses do as well; these may be taken here.
	cfg, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Downstream.RESTAddress, cfg.Admin.Address = "127.0.0.1:0", "0.0.0.0:0"
	for i := range cfg.Downstream.Several {
		cfg.Downstream.Several[i].Address = "127.0.0.1:0"
	}
	var log xdstest.Log
	r, err := relay.New(cfg, slog.New(slog.NewTextHandler(&log, nil)), new(slog.LevelVar), "")
	if err != nil {
		t.Fatal(err)
	}
	xdstest.Run(t, func(ctx context.Context) error { return r.Run(ctx, context.Background()) })()
	for text, times := range map[string]int{
		"RELAY_UPSTREM_VARIANT: unknown": 1, "downstream.rest_address: has no TLS": 1, "gets Secrets": 1,
		"listeners[1], downstream.listeners[4], downstream.listeners[5]":                            1,
		"listeners[2].identity: uses peer.dns_sans, but clients of this listener prove no identity": 1, "listeners[4].identity: uses peer.uri_sans, but clients of this listener prove no identity": 1,
		"admin.address: operators send the token to 0.0.0.0:0 in plaintext": 1,
	} {
		if strings.Count(log.String(), text) != times {
			t.Errorf("the log does not say %d times %q:\n%s", times, text, log.String())
		}
	}
}

// A relay that waits as long as its clients do helps them too late.
func TestP53_LongFirstAnswerTimeoutIsWarnedOf(t *testing.T) {
	for timeout, warned := range map[string]bool{"14s": false, "15s": true, "1m": true} {
		dir := xdstest.Files(t, map[string]string{"r.yaml": "upstream: {origins: [{address: '127.0.0.1:18000'}], first_answer_timeout: " + timeout + "}\n"})
		code, out, errs := runRelay("validate", "-c", filepath.Join(dir, "r.yaml"))
		if want := "r.yaml:1: upstream.first_answer_timeout: warning: is "; code != 0 || errs != "" || strings.Contains(out, want) != warned {
			t.Errorf("%s: %d %s%s", timeout, code, out, errs)
		}
	}
}

// A directory without files of an origin is a warning: it may not be mounted yet.
func TestP80_DirectoryWithoutFilesIsWarnedOf(t *testing.T) {
	dir := xdstest.Files(t, map[string]string{"r.yaml": "upstream: {origins: [{address: \"file:d\"}]}\naggregation: {rules: [{key: node.cluster}]}\n"})
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	code, out, errs := runRelay("validate", "-c", filepath.Join(dir, "r.yaml"))
	if want := "r.yaml:1: upstream.origins[0].address: warning: " + filepath.Join(dir, "d") + ": the directory has no file of resources"; code != 0 || errs != "" || !strings.Contains(out, want) {
		t.Errorf("%d %s %s", code, out, errs)
	}
}
