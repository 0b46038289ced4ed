package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

// Unusable certificates are faults at the key that names them, before anything starts.
func TestCertificateFaults(t *testing.T) {
	dir := xdstest.Files(t, map[string]string{
		"empty": "",
		"missing.yaml": origins + `downstream:
  tls:
    cert_file: nowhere.crt
    key_file: good.key
`,
		"mismatch.yaml": origins + `downstream:
  listeners:
    - {address: "127.0.0.1:0"}
    - address: "127.0.0.1:0"
      tls:
        cert_file: good.crt
        key_file: other.key
`,
		"empty.yaml": origins + `downstream:
  tls: {cert_file: good.crt, key_file: good.key, client_ca_file: empty}
`,
		"origin.yaml": `upstream:
  origins:
    - address: "o:1"
    - address: "p:1"
      tls: {ca_file: good.key}
    - address: "q:1"
      tls:
        cert_file: good.crt
        key_file: empty
admin:
  tls:
    cert_file: good.key
    key_file: good.key
`,
		"good.yaml": `upstream:
  origins: [{address: "o:1", tls: {ca_file: good.crt, cert_file: good.crt, key_file: good.key}}]
downstream:
  identity: node.id in peer.uri_sans
  tls: {cert_file: good.crt, key_file: good.key, client_ca_file: good.crt}
admin: {tls: {cert_file: good.crt, key_file: good.key}}
`,
	})
	ca := tlstest.NewAuthority(t)
	ca.Pair(t).Write(t, dir, "good")
	ca.Pair(t).Write(t, dir, "other")
	for _, c := range []struct{ file, want string }{
		{"missing.yaml", "DIR/missing.yaml:4: downstream.tls.cert_file: open DIR/nowhere.crt: no such file or directory (column 16)\n"},
		{"mismatch.yaml", "DIR/mismatch.yaml:8: downstream.listeners[1].tls.key_file: DIR/other.key is not the key of DIR/good.crt: tls: private key does not match public key (column 19)\n"},
		{"empty.yaml", "DIR/empty.yaml:3: downstream.tls.client_ca_file: no certificate in DIR/empty (column 66)\n"},
		{"origin.yaml", `DIR/origin.yaml:5: upstream.origins[1].tls.ca_file: no certificate in DIR/good.key (column 22)
DIR/origin.yaml:9: upstream.origins[2].tls.key_file: DIR/empty is not the key of DIR/good.crt: tls: failed to find any PEM data in key input (column 19)
DIR/origin.yaml:12: admin.tls.cert_file: no certificate in DIR/good.key (column 16)
`},
		{"good.yaml", "DIR/good.yaml is valid\n"},
	} {
		file, want := filepath.Join(dir, c.file), strings.ReplaceAll(c.want, "DIR", dir)
		code, out, errs := runRelay("validate", "--config", file)
		if valid := strings.HasSuffix(want, "is valid\n"); (code == 0) != valid || out != want || errs != "" {
			t.Errorf("%s: %d\n%s%s, want\n%s", c.file, code, out, errs, want)
		}
		if code == 0 {
			continue
		}
		code, out, errs = runRelay("serve", "--config", file)
		place, _, _ := strings.Cut(want, ": ") // file:line
		if code != 1 || out != "" || !strings.HasPrefix(errs, place+":") {
			t.Errorf("serve with %s: %d %s%s", c.file, code, out, errs)
		}
	}
}

// An expired certificate is a fault, and one that expires soon is a warning. The relay is ready with
// both, and shows them.
func TestCertificatesThatExpire(t *testing.T) {
	dir := t.TempDir()
	ca := tlstest.NewAuthority(t)
	ca.Pair(t, tlstest.Expired()).Write(t, dir, "old")
	ca.Pair(t, tlstest.ExpiresIn(6*24*time.Hour)).Write(t, dir, "week")
	text := "name: r\nupstream: {origins: [{address: '127.0.0.1:1', tls: {cert_file: D/week.crt, key_file: D/week.key}}]}\nadmin: {address: '127.0.0.1:0'}\n" +
		"downstream: {listeners: [{address: '127.0.0.1:0', tls: {cert_file: D/week.crt, key_file: D/week.key}}, {address: '127.0.0.1:0', tls: {cert_file: D/old.crt, key_file: D/old.key}}]}\n"
	text = strings.ReplaceAll(text, "D/", dir+"/")
	file := filepath.Join(xdstest.Files(t, map[string]string{"relay.yaml": text}), "relay.yaml")
	code, out, _ := runRelay("validate", "--config", file)
	for _, want := range []string{
		"downstream.listeners[1].tls.cert_file: the certificate expired at 20", "downstream.listeners[0].tls.cert_file: warning: the certificate expires at 20",
		"upstream.origins[0].tls.cert_file: warning: the certificate expires at 20",
	} {
		if code != 1 || !strings.Contains(out, want) {
			t.Errorf("%d, and no %q in\n%s", code, want, out)
		}
	}
	running(t, file) // starts all the same
}
