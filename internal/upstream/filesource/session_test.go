package upstream

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"xdsrelay/internal/xds"
)

// widget is a resource of an unknown type.
func widget(t interface{ Fatal(...any) }, name, content string) *xds.Resource {
	field := func(b []byte, num protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
	}
	value := field(field(nil, 1, name), 2, content)
	r, err := xds.NewResource(xds.TypeOf(odd), name, field(field(nil, 1, string(odd)), 2, string(value)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The first answer has everything, later ones only what changed; a new version
// alone is told as well.
func TestP80_OnlyDifferences(t *testing.T) {
	a, b, a2 := widget(t, "a", "1"), widget(t, "b", "1"), widget(t, "a", "2")
	one := &fileType{version: "1", resources: map[string]*xds.Resource{"a": a, "b": b}}
	two := &fileType{version: "2", resources: map[string]*xds.Resource{"a": a2, "b": b}}
	three := &fileType{version: "3", resources: map[string]*xds.Resource{"a": a2, "b": b}}
	four := &fileType{version: "3", resources: map[string]*xds.Resource{"b": b}}
	show := func(u xds.Update, any bool) string {
		var names []string
		for _, r := range u.Changed {
			names = append(names, r.Name)
		}
		if !any {
			return ""
		}
		return fmt.Sprintf("%s%t%v%v", u.Version, u.Wildcard, names, u.Removed)
	}
	for what, c := range map[string]struct {
		want  xds.TypeInterest
		steps []string
	}{
		"wildcard": {all(odd), []string{"1true[a b][]", "2true[a][]", "3true[][]", "3true[][a]", "true[][b]"}},
		"names":    {named(odd, "a", "x"), []string{"1false[a][x]", "2false[a][]", "3false[][]", "3false[][a]", "false[][]"}},
	} {
		state := &told{at: nothing}
		for i, now := range []*fileType{one, two, three, four, nothing} {
			if got := show(state.update(c.want, nil, now, nil, time.Unix(1, 0))); got != c.steps[i] {
				t.Errorf("%s, step %d: %q, want %q", what, i, got, c.steps[i])
			}
		}
	}
	// A wildcard on a type without a file is answered with nothing.
	if got := show((&told{at: nothing}).update(all(odd), nil, nothing, nil, time.Unix(1, 0))); got != "true[][]" {
		t.Errorf("no file: %q", got)
	}
}
