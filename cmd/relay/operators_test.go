package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/spf13/cobra"

	"xdsrelay/config"
	"xdsrelay/internal/relay"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// operated is a relay with an origin of files and scripted clients.
type operated struct {
	testing.TB
	dir   string
	relay *relay.Relay
	admin string
	stop  func()
}

// operate runs a relay with this admin address; "": any.
func operate(t testing.TB, address string) *operated {
	t.Helper()
	o := &operated{TB: t}
	if address == "" {
		address = "127.0.0.1:0"
	}
	o.configured("name: r\nlog: {level: error}\ndownstream: {address: '127.0.0.1:0', drain: 0s}\nupstream: {origins: [{address: 'file:origin'}]}\nadmin: {address: '" + address + "'}\n")
	o.start()
	return o
}

// configured writes the relay's configuration, and clusters of its origin.
func (o *operated) configured(text string) {
	o.Helper()
	o.dir = xdstest.Files(o, map[string]string{"relay.yaml": text})
	if err := os.Mkdir(filepath.Join(o.dir, "origin"), 0o700); err != nil {
		o.Fatal(err)
	}
	o.gives("v1", "a", "one", "b", "one")
}

func (o *operated) start() {
	o.Helper()
	file := filepath.Join(o.dir, "relay.yaml")
	o.relay = load(o, file)
	o.relay.Follow(func() (*config.Config, error) { return config.Load(file, nil) }, nil)
	o.admin = o.relay.AdminAddress()
	o.stop = xdstest.Run(o, func(ctx context.Context) error { return o.relay.Run(ctx, context.Background()) })
}

// restart stops the relay, changes its configuration, and starts it again.
func (o *operated) restart(change func(text string) string) {
	o.Helper()
	o.stop()
	file := filepath.Join(o.dir, "relay.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		o.Fatal(err)
	}
	xdstest.WriteFile(o, file, change(string(text)))
	o.start()
}

// gives writes clusters to the origin: pairs of a name and an alt_stat_name.
func (o *operated) gives(version string, clusters ...string) {
	o.Helper()
	text := fmt.Sprintf("version_info: %s\ntype_url: %s\nresources:\n", version, xds.ClusterType)
	for i := 0; i < len(clusters); i += 2 {
		text += fmt.Sprintf("- {'@type': %s, name: %s, alt_stat_name: %s, connect_timeout: 1s}\n", xds.ClusterType, clusters[i], clusters[i+1])
	}
	file := filepath.Join(o.dir, "origin", "clusters.yaml")
	replace(o, file, text)
}

// scriptedClient is a client of either variant that answers when it is told to.
type scriptedClient struct {
	*xdstest.Stream
	last  xdstest.Response
	leave func()
}

func (o *operated) client(node, cluster string, v xds.Variant) *scriptedClient {
	o.Helper()
	ctx, leave := context.WithTimeout(context.Background(), xdstest.Patience)
	o.Cleanup(leave)
	method := map[xds.Variant]string{xds.SotW: xdstest.SotWMethod, xds.Delta: xdstest.DeltaMethod}[v]
	conn := xdstest.Dial(o, o.relay.ClientAddresses(), nil)
	c := &scriptedClient{Stream: xdstest.OpenStreamUntil(o, ctx, conn, method), leave: leave}
	c.Ask(&corev3.Node{Id: node, Cluster: cluster}, string(xds.ClusterType))
	return c
}

// take receives a response; answer sends an ACK or a NACK.
func (c *scriptedClient) take() *scriptedClient {
	c.last = c.Next()
	return c
}

func (c *scriptedClient) answer(refusal string) {
	if refusal == "" {
		c.Accept(c.last)
	} else {
		c.Nack(c.last.Type, c.last.Nonce, refusal)
	}
}

// run runs a command against the relay.
func (o *operated) run(args ...string) (code int, out string) {
	code, stdout, stderr := runRelay(append(args, "--admin", o.admin)...)
	return code, stdout + stderr
}

// until runs a command until its output has all wanted texts.
func (o *operated) until(args []string, want ...string) string {
	o.Helper()
	late := time.Now().Add(15 * time.Second)
	for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
		_, out := o.run(args...)
		missing := ""
		for _, w := range want {
			if !strings.Contains(out, w) {
				missing = w
			}
		}
		if missing == "" {
			tick.Stop()
			return out
		}
		if time.Now().After(late) {
			tick.Stop()
			o.Fatalf("%v has no %q:\n%s", args, missing, out)
		}
	}
}

func TestStatusDumpDiff(t *testing.T) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		t.Run(v.String(), func(t *testing.T) {
			o := operate(t, "")
			good, bad := o.client("good", "edge", v), o.client("b\x1bad", "edge", v)
			good.take().answer("")
			bad.take().answer("")
			o.until([]string{"status"}, "NODE", "CDS", "good", "SYNCED v1", "2 streams; types on them: 2 SYNCED")
			o.gives("v2", "a", "two", "b", "one", "c", "new")
			good.take().answer("")
			bad.take().answer("cluster a: I do\nnot like it")
			out := o.until([]string{"status"}, "SYNCED v2", "NACKED v2", "1 SYNCED, 1 NACKED", "rejects CDS version v2: cluster a: I do not like it")
			if strings.Contains(out, "\x1b") {
				t.Errorf("a terminal would take it for an order: %q", out)
			}
			o.until([]string{"status", "--key", "edge", "--node", "good"}, "good", "1 stream;")
			for states, want := range map[string][2]string{"nacked": {"ad  ", "good "}, "SYNCED": {"good ", "ad  "}, "NOT_SENT, stale,NACKED": {"ad  ", "good "}} {
				if code, out := o.run("status", "--state", states); code != 0 || !strings.Contains(out, want[0]) || strings.Contains(out, want[1]) || !strings.Contains(out, "1 stream;") {
					t.Errorf("%s: %d %s", states, code, out)
				}
			}
			if code, out := o.run("status", "--state", "SYNCED", "--state", "NACKED"); code != 0 || !strings.Contains(out, "2 streams;") {
				t.Errorf("%d %s", code, out)
			}
			if code, out := o.run("status", "--state", "not-sent"); code != 0 || !strings.Contains(out, "none of 2 streams is NOT SENT\n") {
				t.Errorf("%d %s", code, out)
			}
			if code, out := o.run("status", "--state", "NACKED", "-o", "json"); code != 0 || !strings.Contains(out, "NACKED") || strings.Contains(out, `"node": "good"`) {
				t.Errorf("%d %s", code, out)
			}
			if code, out := o.run("status", "--state", "bad"); code != 1 || !strings.Contains(out, `unknown state "bad"`) {
				t.Errorf("%d %s", code, out)
			}
			for _, more := range [][]string{nil, {"--state", "STALE"}, {"--summary"}} {
				if code, out := o.run(append([]string{"status", "--key", "nobody"}, more...)...); code != 1 || out != "relay: key nobody is not in use\n" {
					t.Errorf("%v: %d %s", more, code, out)
				}
			}
			for _, format := range []string{"table", "json"} {
				if code, out := o.run("status", "--node", "nobody", "--type", "CDS", "-o", format); code != 1 || !strings.Contains(out, `no client has the node id "nobody"`) {
					t.Errorf("%d %s", code, out)
				}
			}
			if code, out := o.run("status", "--node", "good", "--type", "LDS"); code != 0 || !strings.HasPrefix(out, "none of 1 stream is selected\n") {
				t.Errorf("%d %s", code, out)
			}
			if code, out := o.run("status", "--node", "good", "--state", "STALE", "-o", "json"); code != 0 || out != "{\n  \"items\": []\n}\n" {
				t.Errorf("%d %s", code, out)
			}
			if code, out := o.run("status", "--node", "nobody"); code != 1 || !strings.Contains(out, `no client has the node id "nobody"`) {
				t.Errorf("%d %s", code, out)
			}
			if code, out := o.run("status", "--node", "good", "--key", `"edge"`); code != 0 || !strings.Contains(out, "1 stream; types on them: 1 SYNCED") {
				t.Errorf("%d %s", code, out)
			}
			for key, want := range map[string]string{"edge/x": `relay: the node "good" is connected, but the filter does not select it`, "a b": `relay: key: must be one key as /keys shows it, but is "a b"`} {
				if code, out := o.run("status", "--node", "good", "--key", key); code != 1 || !strings.HasPrefix(out, want) {
					t.Errorf("%d %s", code, out)
				}
			}
			for _, format := range []string{"json", "yaml"} {
				if code, out := o.run("status", "-o", format); code != 0 || !strings.Contains(out, "NACKED") || !strings.Contains(out, "last_nack") {
					t.Errorf("%d %s", code, out)
				}
			}

			out = o.until([]string{"diff", "--node", "b\x1bad"}, "CDS under edge: NACKED for ", "the client rejected version v2; it has version v1", "cluster a: I do not like it",
				"--- a at the client", "+++ a in version v2", "-alt_stat_name: one\n+alt_stat_name: two\n", "+name: c\n")
			if strings.Contains(out, "--- b") {
				t.Errorf("what did not change differs:\n%s", out)
			}
			o.until([]string{"diff", "--node", "good"}, "good has acknowledged all that the relay has for it")
			if code, out := o.run("diff", "--node", "nobody"); code != 1 || !strings.Contains(out, "no client has the node id") {
				t.Errorf("%d %s", code, out)
			}
			o.until([]string{"diff", "--node", "b\x1bad", "-o", "json"}, `"offered"`, `"alt_stat_name": "two"`)

			// The offered and the accepted version can be compared after more versions came.
			o.gives("v3", "a", "two", "b", "three", "c", "new")
			good.take().answer("")
			o.until([]string{"diff", "--node", "b\x1bad"}, "-alt_stat_name: one\n+alt_stat_name: t")

			if code, out := o.run("dump", "--key", "edge", "--type", "cds", "--name", "c"); code != 0 || !strings.HasPrefix(out, "items:\n  - type: type.googleapis.com/envoy.config.cluster.v3.Cluster\n    name: c\n") || !strings.Contains(out, "alt_stat_name: new") || !strings.Contains(out, "\n    type_version: v3\n") {
				t.Errorf("%d %s", code, out)
			}
			if code, out := o.run("dump", "--key", "edge", "-o", "json"); code != 0 || strings.Count(out, `"@type"`) != 3 {
				t.Errorf("%d %s", code, out)
			}
			for _, c := range [][]string{
				{"key other is not in use", "--key", "other"},
				{"the relay has no version of the type", "--key", "edge", "--type", "LDS"},
				{`the relay has no resource with the name "x"`, "--key", "edge", "--name", "x"},
				{`must be a URL or a short name such as CDS`, "--key", "edge", "--type", "XYZ"},
				{`required flag(s) "key" not set`},
			} {
				if code, out := o.run(append([]string{"dump"}, c[1:]...)...); code != 1 || !strings.Contains(out, c[0]) {
					t.Errorf("%v: %d %s", c, code, out)
				}
			}
		})
	}
}

// diff shows a response that has no answer yet.
func TestDiffOfAnUnansweredResponse(t *testing.T) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		t.Run(v.String(), func(t *testing.T) {
			o := operate(t, "")
			slow := o.client("slow", "edge", v)
			o.until([]string{"status"}, "STALE v1")
			o.until([]string{"diff", "--node", "slow"}, "the client has not answered version v1; it has no version", "+alt_stat_name: one")
			slow.take().answer("")
			o.until([]string{"status"}, "SYNCED v1")
			o.gives("v2", "a", "two", "b", "one")
			two := slow.take()
			o.until([]string{"diff", "--node", "slow"}, "has not answered version v2; it has version v1", "-alt_stat_name: one\n+alt_stat_name: two")
			o.gives("v3", "a", "three", "b", "one")
			o.until([]string{"status", "-o", "json"}, `"unsent": true`, `"unanswered_since"`)
			// More than the windows of HTTP/2 take: the client reads nothing.
			o.gives("v4", "a", strings.Repeat("x", 1<<20), "b", "one")
			o.until([]string{"keys", "-o", "json"}, `"origin_version": "v4"`)
			two.answer("")
			o.until([]string{"diff", "--node", "slow"}, "the relay has been sending version v4 for ", " MB of 1.0 MB, and has version v2\n")
		})
	}
}

// Without flags and a file the default address is asked; a file that exists has the address.
func TestWhichRelayIsAsked(t *testing.T) {
	t.Chdir(t.TempDir())
	asked := func(want string, args ...string) {
		t.Helper()
		c := new(runningFlags)
		cmd := &cobra.Command{SilenceUsage: true, SilenceErrors: true, RunE: func(*cobra.Command, []string) error {
			to, err := c.client()
			if err != nil {
				return err
			}
			if to.Base != want {
				t.Errorf("%v: %s, want %s", args, to.Base, want)
			}
			return nil
		}}
		*c = *addRunningFlags(cmd)
		cmd.SetArgs(args)
		if err := cmd.Execute(); err != nil && want != "" {
			t.Errorf("%v: %v", args, err)
		}
	}
	asked("http://127.0.0.1:19000")
	asked("http://127.0.0.1:1", "--admin", "127.0.0.1:1")
	asked("", "--config", "none.yaml")
	if err := os.MkdirAll("config", 0o700); err != nil {
		t.Fatal(err)
	}
	xdstest.WriteFile(t, config.DefaultFile, origins+"admin: {address: '127.0.0.2:2'}\n")
	asked("http://127.0.0.2:2")
	asked("http://127.0.0.1:1", "--admin", "127.0.0.1:1")
}

// The error for a gRPC port explains the mistake.
func TestAdminAddressOfSomethingElse(t *testing.T) {
	o := operate(t, "")
	code, out, errs := runRelay("status", "--admin", o.relay.ClientAddresses())
	if want := "relay: --admin: http://" + o.relay.ClientAddresses() + " is not an admin address: "; code != 1 || out != "" || !strings.HasPrefix(errs, want) {
		t.Errorf("%d %s%s", code, out, errs)
	}
}

// A configuration with faults still gives the running relay's address.
func TestAdminAddressOfABrokenFile(t *testing.T) {
	o := operate(t, "")
	for _, c := range []struct{ text, want string }{
		{"log: {level: loud}\nupstream: {origins: []}\naggregation: {rules: [{key: nope}]}\nadmin: {address: 'ADMIN'}\n", "no clients"},
		{"nope: 1\nadmin: {address: 'ADMIN', token_file: none}\n", "broken.yaml:2: admin.token_file: open "},
		{"admin: {adress: 'ADMIN'}\n", "broken.yaml:1: admin.adress: unknown key; did you mean address?"},
		{"admin: {address: [1]}\n", "broken.yaml:1: admin.address: must be a string"},
		{"admin: {address: 'ADMIN', tls: {cert_file: x}}\nlog: {level: loud}\n", "broken.yaml:1: admin.tls"},
		{"log: {level: loud\nadmin: {address: 'ADMIN'}\n", "broken.yaml:"},
	} {
		file := filepath.Join(o.dir, "broken.yaml")
		xdstest.WriteFile(t, file, strings.ReplaceAll(c.text, "ADMIN", o.admin))
		_, out, errs := runRelay("status", "--config", file)
		if said := out + errs; !strings.Contains(said, c.want) || strings.Contains(said, "loud\"") {
			t.Errorf("%s: %s, want %s", c.text, said, c.want)
		}
	}
}

// An error about the token names its source: the configuration's key or the flag.
func TestTokenOfTheConfiguration(t *testing.T) {
	dir := xdstest.Files(t, map[string]string{
		"relay.yaml": "upstream: {origins: [{address: 'file:.'}]}\ndownstream: {address: '127.0.0.1:0', drain: 0s}\nlog: {level: error}\nadmin: {address: '127.0.0.1:0', token_file: token}\n",
		"token":      "right", "empty": "", "damaged": "a token\nof two lines", "wrong": "wrong",
	})
	at := running(t, filepath.Join(dir, "relay.yaml"))
	for name, want := range map[string]string{
		"empty":   "KEY: DIR/empty: must have one token of printable ASCII characters without spaces\n",
		"damaged": "KEY: DIR/damaged: must have one token of printable ASCII characters without spaces\n",
		"none":    "KEY: open DIR/none: ",
		"wrong":   "KEY: the relay at http://" + at + " rejects the token in DIR/wrong\n",
	} {
		file, token := filepath.Join(dir, "other.yaml"), filepath.Join(dir, name)
		xdstest.WriteFile(t, file, "upstream: {origins: [{address: 'file:.'}]}\nadmin:\n  address: '"+at+"'\n  token_file: "+name+"\n")
		for _, c := range []struct {
			key  string
			args []string
		}{
			{"DIR/other.yaml:4: admin.token_file", []string{"status", "-c", file}},
			{"DIR/other.yaml:4: admin.token_file", []string{"explain", "--diff", file}},
			{"--token-file", []string{"status", "-c", file, "--token-file", token}},
			{"--token-file", []string{"status", "--admin", at, "--token-file", token}},
		} {
			code, out, errs := runRelay(c.args...)
			want := "relay: " + strings.Replace(want, "KEY", c.key, 1)
			if said := strings.ReplaceAll(errs, dir, "DIR"); code != 1 || out != "" || !strings.HasPrefix(said, want) {
				t.Errorf("%v: %d %s%s, want %s", c.args, code, out, said, want)
			}
		}
	}
}
