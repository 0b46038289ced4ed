package jsonyaml

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"xdsrelay/internal/xdstest"
)

// Every YAML reader reads them as strings; most names need no quotes.
func TestStringsInYAML(t *testing.T) {
	for s, quoted := range map[string]bool{
		"type.googleapis.com/envoy.config.cluster.v3.Cluster": false, "v2": false, "web-0": false, "outbound|80||reviews": false, "a:b": false, "/x": false,
		"yes": true, "On": true, "NULL": true, "1": true, "1e3": true, "0x1": true, "2026-11-22": true, "": true, "a:": true, "a: b": true, "a #b": true,
		"- a": true, "~": true, "a\nb": true, "a b": true, ".inf": true, "{a": true, "é": true, "a,b": true,
	} {
		b, err := YAML(map[string]string{"k": s})
		if want := map[bool]string{false: "k: " + s + "\n", true: `k: "`}[quoted]; err != nil || !strings.HasPrefix(string(b), want) {
			t.Errorf("%q: %q", s, b)
		}
		var out map[string]any
		if err := yaml.Unmarshal(b, &out); err != nil || out["k"] != s {
			t.Errorf("%q: %v %v", s, err, out)
		}
	}
}

// Both encodings escape what a terminal hides, in names and in content that is JSON already, and
// readers get the same strings.
func TestHiddenCharacters(t *testing.T) {
	const text = "a\u202eb\u2028c\u2029d\u200be\u009bf\u007fg\u061chi\ufeffj\né\U0001f600"
	quoted := xdstest.Must(json.Marshal(text))(t)
	for name, encode := range map[string]func(any) ([]byte, error){"JSON": JSON, "Indented": Indented, "YAML": YAML} {
		b := xdstest.Must(encode(map[string]any{text: text, "raw": json.RawMessage(quoted)}))(t)
		if i := bytes.IndexFunc(b, func(r rune) bool { return r != '\n' && Hidden(r) }); i >= 0 {
			t.Errorf("%s: %q", name, b[i:])
		}
		var out map[string]string
		if err := yaml.Unmarshal(b, &out); err != nil || name != "YAML" && json.Unmarshal(b, &out) != nil || out[text] != text || out["raw"] != text {
			t.Errorf("%s: %s: %q, %v", name, b, out, err)
		}
	}
}

// People see which characters a text has.
func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"": "", " ": `" "`, "\u00a0": `"\u00a0"`, "a b": "a b", "a\u202eb": `a\u202eb`, "\x1b[31m\n": `\x1b[31m\n`, "\U000e0041": `\U000e0041`, "a\xff": "a\uFFFD", "é 边": "é 边",
	} {
		if got := Visible(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A deeply nested answer stays small in each format, and says the same with and without
// indentation.
func TestAnswersAreBoundedWhateverTheirDepth(t *testing.T) {
	nested := func(depth int, inner string) string {
		return strings.Repeat(`{"a":[`, depth) + inner + strings.Repeat("]}", depth)
	}
	for name, c := range map[string]struct {
		json     string
		indented bool
	}{
		"small": {`{"b":1,"a":["x: \"{[,\\",{"c":{}}]}`, true},
		"deep":  {nested(2000, "1"), false},
		"large": {`["` + strings.Repeat(`x","`, maxIndented/4) + `x"]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			for what, v := range map[string]any{"alone": json.RawMessage(c.json), "in a page": map[string]any{"items": []json.RawMessage{[]byte(c.json)}}} {
				j, err := Indented(v)
				if err != nil || !json.Valid(j) || strings.Contains(string(j), "\n  ") != c.indented || len(j) > maxIndented+2*len(c.json) {
					t.Errorf("%s: %v, %d bytes of %d", what, err, len(j), len(c.json))
				}
				if c.indented && len(j) > indentedSize([]byte(c.json), 2)+40 {
					t.Errorf("%s: %d bytes, taken for %d", what, len(j), indentedSize([]byte(c.json), 2))
				}
				y, err := YAML(v)
				if err != nil || len(y) > 2*maxIndented+9*len(c.json) {
					t.Errorf("%s: %v, %d bytes of %d as YAML", what, err, len(y), len(c.json))
				}
				if name == "deep" {
					continue // yaml cannot read such a depth
				}
				var asY, asJ any
				xdstest.NoError(t, yaml.Unmarshal(y, &asY))
				xdstest.NoError(t, yaml.Unmarshal(j, &asJ))
				a, _ := json.Marshal(asY)
				if b, _ := json.Marshal(asJ); string(a) != string(b) {
					t.Errorf("%s: YAML says something else", what)
				}
			}
		})
	}
}
