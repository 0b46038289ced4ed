package main

import (
	"path/filepath"
	"strings"
	"testing"

	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

// A command verifies the relay by --admin-ca and --admin-server-name. With the relay's configuration
// it also accepts the certificate in cert_file, here an expired one without an address.
func TestAdminCertificate(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	const quiet = "log: {level: error}\ndownstream: {address: '127.0.0.1:0', drain: 0s}\nupstream: {origins: [{address: 'file:.'}]}\n"
	dir := xdstest.Files(t, map[string]string{"ca.crt": string(ca.PEM())})
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		xdstest.WriteFile(t, path, text)
		return path
	}
	serve := func(name string, opts ...tlstest.Option) (address, config string) {
		ca.Pair(t, opts...).Write(t, dir, name)
		text := quiet + "admin: {address: 'ADDRESS', tls: {cert_file: " + name + ".crt, key_file: " + name + ".key}}\n"
		address = running(t, write(name+".yaml", strings.Replace(text, "ADDRESS", "127.0.0.1:0", 1)))
		return address, write(name+"-at.yaml", strings.Replace(text, "ADDRESS", address, 1))
	}
	named, namedFile := serve("named", tlstest.DNS("relay.test"))
	_, expired := serve("expired", tlstest.DNS("relay.test"), tlstest.Expired())
	ca.Pair(t).Write(t, dir, "other")
	other := write("other.yaml", quiet+"admin: {address: '"+named+"', tls: {cert_file: other.crt, key_file: other.key}}\n")
	trust := filepath.Join(dir, "ca.crt")
	for _, c := range []struct {
		args string
		says string // of the error; empty: none
	}{
		{"status --admin-ca " + trust + " --admin " + named, "set --admin-server-name to a name of the certificate: "},
		{"status --admin-ca " + trust + " --admin-server-name relay.test --admin " + named, ""},
		{"status --admin-ca " + trust + " --admin-server-name wrong.test --admin " + named, "certificate is valid for relay.test, not wrong.test"},
		{"status --admin-server-name relay.test --admin " + named, "set --admin-ca to the CA of the relay"},
		{"status --admin-server-name relay.test --admin http://" + named, "--admin-server-name: needs https"},
		{"status --config " + namedFile, ""},
		{"status --config " + expired, ""},
		{"status --config " + other, "x509: "},
		{"status --config " + other + " --admin-ca " + trust + " --admin-server-name relay.test", ""},
		{"status --config " + namedFile + " --admin https://" + named, "x509: "}, // the address may be another relay's
		{"health --config " + namedFile, ""},
		{"health --config " + other, ""}, // it sends no token
		{"health --config " + namedFile + " --admin https://" + named, "x509: "},
	} {
		code, out, errs := runRelay(strings.Fields(c.args)...)
		if (code == 0) != (c.says == "") || !strings.Contains(errs, c.says) {
			t.Errorf("%s: %d %s%s, want %q", c.args, code, out, errs, c.says)
		}
	}
}
