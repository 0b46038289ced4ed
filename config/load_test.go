package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

const origin = "upstream:\n  origins: [{address: \"127.0.0.1:18000\"}]\n"

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func load(t *testing.T, text string) *Config {
	t.Helper()
	cfg, err := Load(write(t, text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// relay.yaml has every key with its default.
func TestDefaultFileHasEveryKeyAndItsDefault(t *testing.T) {
	annotated, err := Load("relay.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leaves() {
		if !annotated.Places.Given(l.key) {
			t.Errorf("relay.yaml does not have %s", l.key)
		}
	}
	for _, key := range []string{"name", "tls.ca_file", "tls.cert_file", "tls.key_file", "tls.server_name", "balance"} {
		if !annotated.Places.Given("upstream.origins[0]." + key) {
			t.Errorf("relay.yaml does not have upstream.origins[0].%s", key)
		}
	}
	demo, err := filepath.Abs("demo")
	if err != nil {
		t.Fatal(err)
	}
	if want := []Origin{{Address: "file://" + demo, Name: "file:demo", TLS: &ClientTLS{}, Balance: BalanceRoundRobin}}; !reflect.DeepEqual(annotated.Upstream.Origins, want) {
		t.Errorf("origins %+v, want %+v", annotated.Upstream.Origins, want)
	}
	bare := load(t, origin)
	annotated.Upstream.Origins, bare.Upstream.Origins = nil, nil
	annotated.Places, bare.Places = nil, nil
	// An empty list counts as none.
	annotated.Downstream.Several, annotated.Downstream.Tokens.Audiences, annotated.Aggregation.Rules[0].Types = nil, nil, nil
	if !reflect.DeepEqual(annotated, bare) {
		t.Errorf("relay.yaml gives\n%+v\nthe defaults are\n%+v", annotated, bare)
	}
}

// The defaults are those in the documentation.
func TestDefaults(t *testing.T) {
	cfg := load(t, origin)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Name = host
	want.Upstream.Origins = []Origin{{Address: "127.0.0.1:18000", Name: "127.0.0.1:18000", Balance: "round_robin"}}
	want.Aggregation.Rules = []Rule{{Key: Strings{"node.cluster"}}}
	want.Places = cfg.Places
	if !reflect.DeepEqual(*cfg, want) {
		t.Errorf("got  %+v\nwant %+v", *cfg, want)
	}
	if cfg.Downstream.AckTimeout != 15*time.Second || cfg.Downstream.Limits.RequestBytes != 16777216 ||
		cfg.Store.MaxBytes != 10737418240 || cfg.Downstream.Limits.PinnedBytes != 1073741824 || cfg.Upstream.MaxRequestBytes != 4194304 {
		t.Errorf("defaults %+v", cfg)
	}
}

func TestFlagsOverEnvironmentOverFileOverDefaults(t *testing.T) {
	file := write(t, origin+"  variant: sotw\n  linger: 1s\n  idle_ttl: 1m\nlog: {level: warn}\n")
	t.Setenv("RELAY_UPSTREAM_LINGER", "2s")
	t.Setenv("RELAY_UPSTREAM_IDLE_TTL", "2m")
	t.Setenv("RELAY_UPSTREAM_ORIGINS", `[{address: "a:1", name: first}, {address: "b:2", balance: pick_first}]`)
	t.Setenv("RELAY_AGGREGATION_RULES", `[{key: [node.id, node.cluster], types: EDS}]`)
	t.Setenv("RELAY_METRICS_KEY_LABEL", "true")
	t.Setenv("RELAY_TRACING_SAMPLE", "0.5")
	t.Setenv("RELAY_NAME", "123")               // a string, whatever YAML would make of it
	t.Setenv("RELAY_PORT", "tcp://10.0.0.1:80") // Kubernetes' own
	t.Setenv("RELAY_SERVICE_HOST", "10.0.0.1")  // the same
	t.Setenv("RELAY_LOG_FORMAT", "")            // set to nothing: not set
	fs := pflag.NewFlagSet("relay", pflag.ContinueOnError)
	AddFlags(fs)
	if err := fs.Parse([]string{"--upstream.idle_ttl=3m", "--downstream.limits.keys", "7"}); err != nil {
		t.Fatal(err)
	}
	cfg, err := Load(file, fs)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Name = "123"
	want.Upstream.Variant = "sotw"
	want.Upstream.Linger = 2 * time.Second
	want.Upstream.IdleTTL = 3 * time.Minute
	want.Upstream.Origins = []Origin{
		{Address: "a:1", Name: "first", Balance: "round_robin"}, {Address: "b:2", Name: "b:2", Balance: "pick_first"},
	}
	want.Downstream.Limits.Keys = 7
	want.Aggregation.Rules = []Rule{{Key: Strings{"node.id", "node.cluster"}, Types: Strings{"EDS"}}}
	want.Log.Level = "warn"
	want.Metrics.KeyLabel = true
	want.Tracing.Sample = 0.5
	want.Places = cfg.Places
	if !reflect.DeepEqual(*cfg, want) {
		t.Errorf("got  %+v\nwant %+v", *cfg, want)
	}
	for key, want := range map[string]string{
		"upstream.variant":                file + ":3:12",
		"upstream.idle_ttl":               "--upstream.idle_ttl",
		"upstream.linger":                 "RELAY_UPSTREAM_LINGER",
		"aggregation.rules[0].key[1]":     "RELAY_AGGREGATION_RULES:1:18",
		"upstream.origins[1].tls.ca_file": "RELAY_UPSTREAM_ORIGINS:1:33",
		"admin.address":                   file + ":1:1",
	} {
		if got := cfg.Places.Of(key).String(); got != want {
			t.Errorf("place of %s: %s, want %s", key, got, want)
		}
	}
}

// A number or boolean means the same in the file, in a variable and in a flag.
func TestVariablesMeanWhatTheFileMeans(t *testing.T) {
	for _, key := range []string{"downstream.limits.keys", "metrics.key_label", "tracing.sample"} {
		for _, text := range []string{"010000", "0x10", "1_000", "1e0", "0.5", "1", "0", "true", "True", "yes", "t", "null", "~", "9999999999999999999"} {
			read := func(file string, flag ...string) string {
				fs := pflag.NewFlagSet("relay", pflag.ContinueOnError)
				AddFlags(fs)
				if err := fs.Parse(flag); err != nil {
					t.Fatal(err)
				}
				cfg, err := Load(write(t, origin+file), fs)
				if err != nil {
					return "a fault"
				}
				return fmt.Sprint(cfg.Downstream.Limits.Keys, cfg.Metrics.KeyLabel, cfg.Tracing.Sample)
			}
			parts := strings.Split(key, ".")
			inFile := read(strings.Join(parts, ": {") + ": " + text + strings.Repeat("}", len(parts)-1) + "\n")
			if text == "null" || text == "~" {
				inFile = "a fault" // in the file it is a key that is left out
			}
			inFlag := read("", "--"+key+"="+text)
			t.Setenv(EnvName(key), text)
			inVariable := read("")
			t.Setenv(EnvName(key), "")
			if inVariable != inFile || inFlag != inFile {
				t.Errorf("%s: %s: %s in the file, %s in a variable, %s in a flag", key, text, inFile, inVariable, inFlag)
			}
		}
	}
}

func TestEveryKeyHasItsOwnVariable(t *testing.T) {
	seen := map[string]string{}
	for _, l := range leaves() {
		if first, ok := seen[EnvName(l.key)]; ok {
			t.Errorf("%s and %s are both %s", first, l.key, EnvName(l.key))
		}
		seen[EnvName(l.key)] = l.key
	}
}

func TestPathsAreRelativeToTheFile(t *testing.T) {
	file := write(t, `
downstream:
  listeners: [{address: "127.0.0.1:1", tls: {cert_file: a.pem, key_file: /etc/a.key}}]
upstream:
  origins:
    - {address: "file:x/y"}
    - {address: "file:/abs", name: abs}
    - {address: "file:///also 100%", name: also}
    - {address: "dns:///o:1", tls: {ca_file: ca.pem}}
    - {address: "unix:o.sock"}
    - {address: "unix:/run/o.sock", name: absolute}
    - {address: "unix-abstract:o"}
aggregation: {file: rules.yaml}
store: {path: state}
admin: {token_file: ../token}
`)
	t.Setenv("RELAY_ADMIN_TLS_CERT_FILE", "here.pem")
	t.Setenv("RELAY_ADMIN_TLS_KEY_FILE", "here.key")
	cfg, err := Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(file)
	for _, c := range []struct{ got, want string }{
		{cfg.Downstream.Listen()[0].TLS.CertFile, dir + "/a.pem"},
		{cfg.Downstream.Listen()[0].TLS.KeyFile, "/etc/a.key"},
		{cfg.Upstream.Origins[0].Address, "file://" + dir + "/x/y"},
		{cfg.Upstream.Origins[0].Name, "file:x/y"},
		{cfg.Upstream.Origins[1].Address, "file:///abs"},
		{cfg.Upstream.Origins[2].Address, "file:///also 100%"},
		{cfg.Upstream.Origins[3].TLS.CAFile, dir + "/ca.pem"},
		{cfg.Upstream.Origins[4].Address, "unix://" + dir + "/o.sock"},
		{cfg.Upstream.Origins[4].Name, "unix:o.sock"},
		{cfg.Upstream.Origins[5].Address, "unix:///run/o.sock"},
		{cfg.Upstream.Origins[6].Address, "unix-abstract:o"},
		{cfg.Aggregation.File, dir + "/rules.yaml"},
		{cfg.Store.Path, dir + "/state"},
		{cfg.Admin.TokenFile, filepath.Dir(dir) + "/token"},
		{cfg.Admin.TLS.CertFile, "here.pem"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
	if d, ok := cfg.Upstream.Origins[1].Dir(); !ok || d != "/abs" {
		t.Errorf("Dir %q, %v", d, ok)
	}
	if _, ok := cfg.Upstream.Origins[3].Dir(); ok {
		t.Error("a gRPC target is taken for a directory")
	}
}

func TestListeners(t *testing.T) {
	one := load(t, origin+"downstream: {address: \"127.0.0.1:1\", identity: \"true\", secrets: deny}\n")
	if got := one.Downstream.Listen(); len(got) != 1 || !reflect.DeepEqual(got[0], Listener{Address: "127.0.0.1:1", Identity: "true", Secrets: "deny", Tokens: Tokens{OnExpiry: OnExpiryKeep}, Key: "downstream"}) {
		t.Errorf("one: %+v", got)
	}
	two := load(t, origin+"downstream:\n  listeners:\n  - address: 127.0.0.1:1\n  - {address: \":2\", secrets: allow}\n")
	if got := two.Downstream.Listen(); len(got) != 2 || got[0].Secrets != "mtls" || got[1].Secrets != "allow" || got[1].Key != "downstream.listeners[1]" {
		t.Errorf("two: %+v", got)
	}
}

// A section or list with only comments counts as left out.
func TestKeyWithoutValueIsLeftOut(t *testing.T) {
	cfg := load(t, origin+"downstream:\naggregation:\n  rules:\n  #- key: node.id\nlog: {level: }\n")
	if cfg.Downstream.Address != "127.0.0.1:15010" || cfg.Aggregation.Rules[0].Key[0] != "node.cluster" || cfg.Log.Level != "info" {
		t.Errorf("%+v", cfg)
	}
}

func TestAnchorsAndAliases(t *testing.T) {
	cfg := load(t, "upstream:\n  origins: [{address: \"a:1\", tls: &t {ca_file: /c}}, {address: \"b:1\", tls: *t}]\n")
	if cfg.Upstream.Origins[1].TLS.CAFile != "/c" {
		t.Errorf("%+v", cfg.Upstream.Origins)
	}
}

func TestMissingFile(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.yaml"), nil)
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("%v", err)
	}
}

func TestCheckFiles(t *testing.T) {
	file := write(t, "upstream:\n  origins:\n  - {address: \"file:none\", tls: }\n  - {address: \"file:.\"}\nstore: {path: later}\nadmin:\n  token_file: none\n")
	cfg, err := Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	var faults Faults
	if !errors.As(cfg.CheckFiles(), &faults) || len(faults) != 1 || faults[0].Key != "admin.token_file" || faults[0].Line != 7 {
		t.Errorf("%v", faults)
	}
}

// limits.connections is a number or auto, in the file and in the environment.
func TestConnections(t *testing.T) {
	for _, text := range []string{"auto", "0", "500", "-1", "many", "1.5"} {
		var faults [2]string
		var got [2]Count
		for i, file := range []string{origin + "downstream: {limits: {connections: " + text + "}}\n", origin} {
			if i == 1 {
				t.Setenv("RELAY_DOWNSTREAM_LIMITS_CONNECTIONS", text)
			}
			cfg, err := Load(write(t, file), nil)
			if cfg != nil {
				got[i] = cfg.Downstream.Limits.Connections
			}
			if err != nil {
				_, faults[i], _ = strings.Cut(err.Error(), "downstream.limits.connections: ")
			}
			t.Setenv("RELAY_DOWNSTREAM_LIMITS_CONNECTIONS", "")
		}
		want, ok := map[string]Count{"auto": Auto, "0": 0, "500": 500}[text]
		fault := ""
		if !ok {
			fault = fmt.Sprintf("must be auto or a number from 0 on, but is %q", text)
		}
		for i := range faults {
			if fault == "" && got[i] != want || !strings.HasPrefix(faults[i], fault) || (fault == "") != (faults[i] == "") {
				t.Errorf("%s: %v and %q, want %v and %q", text, got[i], faults[i], want, fault)
			}
		}
	}
}
