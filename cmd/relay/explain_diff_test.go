package main

import (
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"xdsrelay/config"
	"xdsrelay/internal/explain"
	"xdsrelay/internal/relay"
	"xdsrelay/internal/telemetry/logging"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/validation"
	"xdsrelay/internal/xdstest"
)

// load makes a relay from a file as serve does, without running it.
func load(t testing.TB, file string) *relay.Relay {
	t.Helper()
	cfg, err := config.Load(file, nil)
	if _, err := validation.Check(cfg, err, nil); err != nil {
		t.Fatal(err)
	}
	log, level, err := logging.New(t.Output(), cfg.Log)
	if err != nil {
		t.Fatal(err)
	}
	r, err := relay.New(cfg, log, level, "v1")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// running runs a relay until the end of the test, and returns its admin address.
func running(t *testing.T, file string) string {
	t.Helper()
	r := load(t, file)
	xdstest.Run(t, func(ctx context.Context) error { return r.Run(ctx, context.Background()) })
	return r.AdminAddress()
}

// An error names what to change: the flag, or the place in the file.
func TestExplainDiff(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	pair := ca.Pair(t, tlstest.DNS("localhost"))
	const quiet = "log: {level: error}\ndownstream: {address: '127.0.0.1:0', drain: 0s}\nupstream: {origins: [{address: 'file:.'}]}\n"
	dir := xdstest.Files(t, map[string]string{
		"relay.yaml":  quiet + "admin: {address: '127.0.0.1:0'}\n",
		"token.yaml":  quiet + "admin: {address: '127.0.0.1:0', token_file: token}\n",
		"tls.yaml":    quiet + "admin: {address: '127.0.0.1:0', tls: {cert_file: crt, key_file: key}}\n",
		"token":       "right",
		"wrong":       "wrong",
		"broken.yaml": quiet + "aggregation:\n  rules:\n    - key: nope\n",
		"file.yaml":   quiet + "aggregation: {file: rules.yaml}\n",
		"rules.yaml":  "fragments:\n- rules:\n  - {match: {any_match: true}, result: {string_fragment: a}}\n",
		"ca.crt":      string(ca.PEM()),
		"crt":         string(pair.Cert),
		"key":         string(pair.Key),
	})
	in := func(name string) string { return filepath.Join(dir, name) }
	plain, guarded, secured := running(t, in("relay.yaml")), running(t, in("token.yaml")), running(t, in("tls.yaml"))
	_, port, err := net.SplitHostPort(secured)
	if err != nil {
		t.Fatal(err)
	}
	secured = "localhost:" + port
	for name, address := range map[string]string{"moved.yaml": "127.0.0.1:1", "here.yaml": plain} {
		xdstest.WriteFile(t, in(name), quiet+"admin: {address: '"+address+"'}\n")
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"relay.yaml", "--admin", plain}, 0, "all 0 clients keep their keys\n"},
		{[]string{"file.yaml", "--admin", "http://" + plain + "/"}, 0, "all 0 clients keep their keys\n"},
		{[]string{"relay.yaml", "--admin", guarded, "--token-file", in("token")}, 0, "all 0"},
		{[]string{"token.yaml", "--admin", guarded}, 0, "all 0"}, // the configuration has it
		{[]string{"relay.yaml", "--admin", secured, "--admin-ca", in("ca.crt")}, 0, "all 0"},
		// --config, if given, has the address.
		{[]string{"moved.yaml", "--config", in("here.yaml")}, 0, "all 0 clients keep their keys\n"},
		{[]string{"moved.yaml"}, 1, "relay: --admin: nothing listens at http://127.0.0.1:1"},
		{[]string{"moved.yaml", "--config", in("none.yaml")}, 1, "relay: configuration: open DIR/none.yaml"},
		{[]string{"moved.yaml", "--config", in("here.yaml"), "--admin", "127.0.0.1:2"}, 1, "nothing listens at http://127.0.0.1:2"},
		{[]string{"broken.yaml", "--admin", plain}, 1, "DIR/broken.yaml:6: aggregation.rules[0].key[0]: undeclared reference to 'nope'"},
		{[]string{"none.yaml", "--admin", plain}, 1, "relay: configuration: open DIR/none.yaml"},
		{[]string{"relay.yaml", "--admin", "127.0.0.1:1"}, 1, "relay: --admin: nothing listens at http://127.0.0.1:1: does a relay run there?"},
		{[]string{"relay.yaml", "--admin", "ftp://x"}, 1, `relay: --admin: must be host:port, or a URL of http or https, but is "ftp://x"`},
		{[]string{"relay.yaml", "--admin", guarded}, 1, "relay: --token-file: the relay at http://" + guarded + " requires a token"},
		{[]string{"relay.yaml", "--admin", guarded, "--token-file", in("wrong")}, 1, "rejects the token in DIR/wrong"},
		{[]string{"relay.yaml", "--admin", plain, "--token-file", in("none")}, 1, "relay: --token-file: open DIR/none"},
		{[]string{"relay.yaml", "--admin", secured}, 1, "the server has TLS: must be https://"},
		{[]string{"relay.yaml", "--admin", "https://" + secured}, 1, "set --admin-ca to the CA of the relay"},
		{[]string{"relay.yaml", "--admin", "https://" + plain}, 1, "the server has no TLS: must be http://"},
		{[]string{"relay.yaml", "--admin", secured, "--admin-ca", in("token")}, 1, "relay: --admin-ca: no certificate in DIR/token"},
		{[]string{"relay.yaml", "--admin", "http://" + plain, "--admin-ca", in("ca.crt")}, 1, "relay: --admin-ca: needs https"},
		{[]string{"relay.yaml", "--admin", "http://" + plain + "/nowhere"}, 1, "is not a relay, or is an older version"},
		{[]string{"relay.yaml", "--admin", plain, "--node", "-"}, 1, "relay: --diff: cannot be used with --node, because it compares all clients of a running relay\nrun \"relay explain --help\""},
	} {
		args := append([]string{"explain", "--diff", in(c.args[0])}, c.args[1:]...)
		code, out, errs := runRelay(args...)
		if text := strings.ReplaceAll(out+errs, dir, "DIR"); code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%v: %d, %s, want %s", c.args, code, text, c.want)
		}
	}
	code, out, errs := runRelay("explain", "--diff", in("relay.yaml"), "--admin", plain, "-o", "json")
	var got explain.Difference
	if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil || got.Moving == nil || got.Pairs == nil {
		t.Errorf("%d %v %s%s", code, err, out, errs)
	}
	if code, out, _ := runRelay("explain", "--diff", in("relay.yaml"), "--admin", plain, "-o", "yaml"); code != 0 || out != "clients: 0\nitems: []\npairs: []\n" {
		t.Errorf("%d %q", code, out)
	}
}
