package admin

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.yaml.in/yaml/v3"

	"xdsrelay/internal/admin/jsonyaml"
	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
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

// A page ends after diffTime, with at least one item. A budget that is spent leaves the rest of a
// row out.
func TestSlowPagesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := []string{"a", "b", "c", "d", "e"}
		slow := func(takes time.Duration) page {
			_, p := paged(httptest.NewRequest("GET", "/x", nil), all, func(s *string) string { return *s }, func(s *string) (any, bool) {
				time.Sleep(takes)
				return s, true
			})
			return p.(page)
		}
		for takes, want := range map[time.Duration]int{0: 5, diffTime/2 + 1: 2, time.Hour: 1} {
			if p := slow(takes); len(p.Items) != want || (p.Next == "") != (want == 5) {
				t.Errorf("rows of %s: %d items, next %q", takes, len(p.Items), p.Next)
			}
		}
		b := newBudget()
		differences := history.NewRejected([]snapshot.Difference{{Name: "a"}, {Name: "b"}}, 3, true)
		if r := showRejected(differences, b); len(r.Resources) != 2 || r.More != 3 {
			t.Errorf("%+v", r)
		}
		time.Sleep(diffTime + 1)
		if r := showRejected(differences, b); r.Resources == nil || len(r.Resources) != 0 || r.More != 5 {
			t.Errorf("after the time: %+v", r)
		}
	})
}
