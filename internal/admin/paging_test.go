package admin

import (
	"encoding/json"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"xdsrelay/internal/admin/jsonyaml"
)

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
		"large": {`["` + strings.Repeat(`x","`, jsonyaml.MaxIndented/4) + `x"]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			for what, v := range map[string]any{"alone": json.RawMessage(c.json), "in a page": page{Items: []json.RawMessage{[]byte(c.json)}}} {
				j, err := jsonyaml.Indented(v)
				if err != nil || !json.Valid(j) || strings.Contains(string(j), "\n  ") != c.indented || len(j) > jsonyaml.MaxIndented+2*len(c.json) {
					t.Errorf("%s: %v, %d bytes of %d", what, err, len(j), len(c.json))
				}
				if c.indented && len(j) > jsonyaml.IndentedSize([]byte(c.json), 2)+40 {
					t.Errorf("%s: %d bytes, taken for %d", what, len(j), jsonyaml.IndentedSize([]byte(c.json), 2))
				}
				y, err := jsonyaml.YAML(v)
				if err != nil || len(y) > 2*jsonyaml.MaxIndented+9*len(c.json) {
					t.Errorf("%s: %v, %d bytes of %d as YAML", what, err, len(y), len(c.json))
				}
				if name == "deep" {
					continue // yaml cannot read such a depth
				}
				var asY, asJ any
				if err := yaml.Unmarshal(y, &asY); err != nil {
					t.Fatal(err)
				}
				if err := yaml.Unmarshal(j, &asJ); err != nil {
					t.Fatal(err)
				}
				a, _ := json.Marshal(asY)
				if b, _ := json.Marshal(asJ); string(a) != string(b) {
					t.Errorf("%s: YAML says something else", what)
				}
			}
		})
	}
}
