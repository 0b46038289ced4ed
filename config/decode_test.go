package config

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// all returns the faults of err as "line:column: key: reason".
func all(t *testing.T, err error) []string {
	t.Helper()
	var faults Faults
	if err != nil && !errors.As(err, &faults) {
		t.Fatal(err)
	}
	var out []string
	for _, f := range faults {
		s := f.Error()
		// Cut the file's path, but keep a variable's or flag's name.
		if i := strings.Index(s, ".yaml:"); i >= 0 {
			s = s[i+len(".yaml:"):]
		}
		out = append(out, s)
	}
	return out
}

func TestDecodeFaults(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing":  {"", []string{`1:1: upstream.origins: must have at least one origin, such as [{address: "127.0.0.1:18000"}]`}},
		"comments": {"# nothing\n", []string{`1:1: upstream.origins: must have at least one origin, such as [{address: "127.0.0.1:18000"}]`}},
		"unknown":  {origin + "  varaint: sotw\nzzz: 1\n", []string{"3:3: upstream.varaint: unknown key; did you mean variant?", "4:1: zzz: unknown key"}},
		"unknown in a list": {"upstream:\n  origins:\n  - {adress: a}\n",
			[]string{"3:6: upstream.origins[0].adress: unknown key; did you mean address?"}},
		"duplicate": {origin + "log: {level: info, level: warn}\nlog: {}\n",
			[]string{"3:20: log.level: duplicate key; line 3 has it already", "4:1: log: duplicate key; line 3 has it already"}},
		"types": {origin + `name: 123
downstream:
  long_poll: 30
  ack_timeout: soon
  address: [a]
  limits: {keys: "5", streams: 1.5, node_bytes: 99999999999999999999}
  tls: yes
metrics: {key_label: 1}
tracing: {sample: much}
`, []string{
			"3:7: name: must be a string, but is the integer 123; put it in quotes",
			"5:14: downstream.long_poll: must be a duration with a unit, such as 30s",
			`6:16: downstream.ack_timeout: must be a duration such as 30s, but is "soon"`,
			"7:12: downstream.address: must be a string, but is a list",
			`8:18: downstream.limits.keys: must be an integer, but is the string "5"`,
			"8:32: downstream.limits.streams: must be an integer, but is the number 1.5",
			"8:49: downstream.limits.node_bytes: must be an integer, but is the number 99999999999999999999",
			`9:8: downstream.tls: must be a mapping, but is the string "yes"`,
			"10:22: metrics.key_label: must be true or false, but is the integer 1",
			`11:19: tracing.sample: must be a number, but is the string "much"`,
		}},
		"lists": {"upstream: {origins: {address: a}}\naggregation: {rules: [x, null, {key: [[a], {b: c}]}]}\n", []string{
			"1:21: upstream.origins: must be a list, but is a mapping",
			`2:23: aggregation.rules[0]: must be a mapping, but is the string "x"`,
			"2:26: aggregation.rules[1]: the element has no value",
			"2:39: aggregation.rules[2].key[0]: must be a string, but is a list",
			"2:44: aggregation.rules[2].key[1]: must be a string, but is a mapping; put a text with a colon in quotes",
		}},
		"reserved": {origin + "  routes: []\noverrides: []\nrollout: {}\nstore: {url: x}\n", []string{
			"3:3: upstream.routes: is not supported yet; the name is reserved",
			"4:1: overrides: is not supported yet; the name is reserved",
			"5:1: rollout: is not supported yet; the name is reserved",
			"6:9: store.url: is not supported yet; the name is reserved",
		}},
		"reserved in a list": {"upstream: {origins: [{address: \"a:1\", variant: sotw}]}\n",
			[]string{"1:39: upstream.origins[0].variant: is not supported yet; the name is reserved"}},
		"syntax":          {"name: [\n", []string{"1: a value is missing, or a [ or { is not closed (did not find expected node content)"}},
		"tab":             {"name:\n\tx: 1\n", []string{"2: a tab: indent with spaces (found character that cannot start any token)"}},
		"not a mapping":   {"- a\n", []string{"1:1: must be a mapping, but is a list"}},
		"second document": {origin + "---\nname: x\n", []string{"3:1: the file has a second YAML document, but must have only one"}},
		"merge":           {"log: &l {level: warn}\n" + origin + "downstream:\n  <<: *l\n", []string{"5:3: downstream: each key must be a plain name; merge keys (<<) are not supported"}},
		"no name":         {origin + "? [a]\n: b\n", []string{"3:3: each key must be a plain name; merge keys (<<) are not supported"}},
	} {
		_, err := Load(write(t, c.text), nil)
		if got := all(t, err); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", name, got, c.want)
		}
	}
}

// A fault hides no independent fault, and a fault that follows from another is not reported.
func TestAllKindsOfFaultsAtOnce(t *testing.T) {
	_, err := Load(write(t, `upstream:
  origins:
    - {adress: "a:1"}
    - {address: "b:1", balance: some}
  varaint: delta
  linger: soon
  backoff: {base: 60s}
downstream: {tls: yes, ack_timeout: -1s}
admin: {tls: {cert_file: c, key_file: [k]}}
aggregation: {rules: [{kye: node.id}, {key: ""}]}
`), nil)
	want := []string{
		"3:8: upstream.origins[0].adress: unknown key; did you mean address?",
		`4:33: upstream.origins[1].balance: must be round_robin or pick_first, but is "some"`,
		"5:3: upstream.varaint: unknown key; did you mean variant?",
		`6:11: upstream.linger: must be a duration such as 30s, but is "soon"`,
		"7:19: upstream.backoff.base: must be at most upstream.backoff.max (30s), but is 1m0s",
		`8:19: downstream.tls: must be a mapping, but is the string "yes"`,
		"8:37: downstream.ack_timeout: must be more than 0s, but is -1s",
		"9:39: admin.tls.key_file: must be a string, but is a list",
		"10:24: aggregation.rules[0].kye: unknown key; did you mean key?",
		"10:45: aggregation.rules[1].key[0]: is empty; the relay would refuse every node",
	}
	if got := all(t, err); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestEnvironmentAndFlagFaults(t *testing.T) {
	t.Setenv("RELAY_UPSTREAM_LINGER", "10")
	t.Setenv("RELAY_METRICS_KEY_LABEL", "maybe")
	t.Setenv("RELAY_TRACING_SAMPLE", "x")
	t.Setenv("RELAY_DOWNSTREAM_LIMITS_KEYS", "1k")
	t.Setenv("RELAY_UPSTREAM_VARIANT", "grpc")
	t.Setenv("RELAY_AGGREGATION_RULES", "[{kye: node.id}]")
	t.Setenv("RELAY_DOWNSTREAM_LISTENERS", "127.0.0.1:80")
	_, err := Load(write(t, origin), nil)
	want := []string{
		"RELAY_AGGREGATION_RULES:1:3: aggregation.rules[0].kye: unknown key; did you mean key?",
		`RELAY_DOWNSTREAM_LIMITS_KEYS: downstream.limits.keys: must be an integer, but is "1k"`,
		`RELAY_DOWNSTREAM_LISTENERS:1:1: downstream.listeners: must be a list, but is the string "127.0.0.1:80"`,
		`RELAY_METRICS_KEY_LABEL: metrics.key_label: must be true or false, but is "maybe"`,
		`RELAY_TRACING_SAMPLE: tracing.sample: must be a number, but is "x"`,
		`RELAY_UPSTREAM_LINGER: upstream.linger: must be a duration such as 30s, but is "10"`,
		`RELAY_UPSTREAM_VARIANT: upstream.variant: must be delta or sotw, but is "grpc"`,
	}
	if got := all(t, err); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, name := range []string{"LINGER", "VARIANT"} {
		t.Setenv("RELAY_UPSTREAM_"+name, "")
	}
	for _, name := range []string{"METRICS_KEY_LABEL", "TRACING_SAMPLE", "DOWNSTREAM_LIMITS_KEYS", "AGGREGATION_RULES", "DOWNSTREAM_LISTENERS"} {
		t.Setenv("RELAY_"+name, "")
	}
	t.Setenv("RELAY_LOG_LEVEL", "loud")
	_, err = Load(write(t, origin), nil)
	want = []string{`RELAY_LOG_LEVEL: log.level: must be debug, info, warn or error, but is "loud"`}
	if got := all(t, err); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Aliases that contain themselves, or expand to very many values, end.
func TestAliasesAreBounded(t *testing.T) {
	type nest struct {
		A *nest  `yaml:"a"`
		L []nest `yaml:"l"`
	}
	for _, text := range []string{
		"a: &x {a: *x}\n",
		"l: &a [{l: &b [{}, {}]}, {l: *a}, {l: *a}]\n",
		"l: &x [{l: *x}, {l: *x}]\n",
	} {
		var n nest
		_, err := Decode("f.yaml", []byte(text), "", &n)
		if err == nil || !strings.Contains(err.Error(), "nested too deep") {
			t.Errorf("%s: no fault", text)
		}
	}
}

func TestDecodeProtoNames(t *testing.T) {
	var v struct {
		AndMatch struct {
			Rules []string `yaml:"rules"`
		} `yaml:"and_match"`
	}
	if _, err := DecodeProto("f.yaml", []byte("andMatch: {rules: [x]}\n"), &v); err != nil || len(v.AndMatch.Rules) != 1 {
		t.Errorf("%v %v", v, err)
	}
	_, err := DecodeProto("f.yaml", []byte("andMatch: {}\nand_match: {}\n"), &v)
	if got := all(t, err); len(got) != 1 || got[0] != "2:1: and_match: duplicate key; line 1 has it already" {
		t.Errorf("%q", got)
	}
	if _, err := Decode("f.yaml", []byte("andMatch: {}\n"), "", &v); err == nil {
		t.Error("a JSON name is taken where none is wanted")
	}
}

// Inside finds a character's place, or that of the value if YAML folds the value's lines.
func TestPlacesInsideValues(t *testing.T) {
	for name, c := range map[string]struct {
		text         string
		line, column int // in the value
		want         string
	}{
		"plain":             {"k: node.abc\n", 1, 6, "1:9"},
		"single quotes":     {"k: 'a ''b'' X'\n", 1, 7, "1:13"},
		"double quotes":     {`k: "a \"b\" \u00e9X"` + "\n", 1, 8, "1:19"},
		"literal":           {"k: |\n  one\n  two X\n", 2, 5, "3:7"},
		"literal, chomped":  {"k: |-\n    one\n    X\n", 2, 1, "3:5"},
		"literal, indented": {"k: |\n  one\n\n    two\n  X\n", 3, 3, "4:5"},
		"folded":            {"k: >\n  one\n  X\n", 1, 5, "1:4"},
		"plain, folded":     {"k: one\n  X y\n", 1, 5, "1:4"},
		"beyond the end":    {"k: abc\n", 1, 99, "1:4"},
		"empty":             {"k:", 1, 9, "1:1"},
		"wide characters":   {"k: 'é\u4e16X'\n", 1, 3, "1:7"},
	} {
		var v struct {
			K string `yaml:"k"`
		}
		places, err := Decode("f", []byte(c.text), "", &v)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := places.Inside("k", c.line, c.column).String(); got != "f:"+c.want {
			t.Errorf("%s: %s, want %s (value %q)", name, got, c.want, v.K)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", origin, "name: [", "a: &a [*a]", "upstream: {origins: [{address: x, name: y}, {address: x, name: y}]}",
		"downstream: {listeners: [{address: \":1\"}], identity: |\n  x\n}", "aggregation:\n  rules:\n  - key: [a, b]\n    types: EDS\n",
		"? {a: b}\n: c", "<<: {a: b}", "name: !!binary aGk=", "log: {level: \"\\x41\"}", "store: {interval: 1e9}\n---\n", "\xff", "a: \t",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		cfg, err := Parse("f.yaml", src, nil)
		var faults Faults
		switch {
		case err == nil:
			if len(cfg.Upstream.Origins) == 0 || len(cfg.Downstream.Listen()) == 0 || cfg.Name == "" {
				t.Errorf("accepted: %+v", cfg)
			}
		case !errors.As(err, &faults) || len(faults) == 0:
			t.Errorf("not a list of faults: %v", err)
		default:
			for _, f := range faults {
				if f.File != "f.yaml" || f.Line < 1 || f.Reason == "" {
					t.Errorf("fault %+v", f)
				}
			}
		}
	})
}

func TestSetTextKnowsEveryLeaf(t *testing.T) {
	for _, l := range leaves() {
		v := reflect.New(l.value.Type()).Elem()
		text := map[reflect.Kind]string{reflect.Bool: "true", reflect.Int: "1", reflect.Int64: "1", reflect.Float64: "1"}[v.Kind()]
		if v.Type() == reflect.TypeFor[time.Duration]() {
			text = "1s"
		}
		if _, faults := fromText(l.key, "X", text, v.Type(), newPlaces("")); len(faults) > 0 {
			t.Errorf("%s: %v", l.key, faults)
		}
	}
}
