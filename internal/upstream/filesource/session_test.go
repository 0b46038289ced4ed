package filesource

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"xdsrelay/internal/upstream/upstreamtest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// The first update has everything, later ones only changes. A new version alone is sent too, and
// is a push of all resources (P15).
func TestP80_UpdatesAreDifferences(t *testing.T) {
	a, b, a2 := upstreamtest.Widget(t, "a", "1"), upstreamtest.Widget(t, "b", "1"), upstreamtest.Widget(t, "a", "2")
	one := &typeContents{version: "1", resources: map[string]*xds.Resource{"a": a, "b": b}}
	two := &typeContents{version: "2", resources: map[string]*xds.Resource{"a": a2, "b": b}}
	three := &typeContents{version: "3", resources: map[string]*xds.Resource{"a": a2, "b": b}}
	four := &typeContents{version: "3", resources: map[string]*xds.Resource{"b": b}}
	show := func(u snapshot.Update, any bool) string {
		var names []string
		for _, r := range u.Changed {
			names = append(names, r.Name)
		}
		if !any {
			return ""
		}
		slices.Sort(u.Pushed)
		return fmt.Sprintf("%s%t%v%v%v", u.Version, u.Wildcard, names, u.Removed, u.Pushed)
	}
	for what, c := range map[string]struct {
		want  snapshot.TypeInterest
		steps []string
	}{
		"wildcard": {all(upstreamtest.Unknown), []string{"1true[a b][][]", "2true[a][][a b]", "3true[][][a b]", "3true[][a][]", "true[][b][]"}},
		"names":    {named(upstreamtest.Unknown, "a", "x"), []string{"1false[a][x][]", "2false[a][][a]", "3false[][][a]", "3false[][a][]", "false[][][]"}},
	} {
		state := &sentState{contents: noContents}
		for i, now := range []*typeContents{one, two, three, four, noContents} {
			if got := show(state.update(c.want, nil, now, nil, time.Unix(1, 0))); got != c.steps[i] {
				t.Errorf("%s, step %d: %q, want %q", what, i, got, c.steps[i])
			}
		}
	}
	// A wildcard on a type without a file gets an empty answer.
	if got := show((&sentState{contents: noContents}).update(all(upstreamtest.Unknown), nil, noContents, nil, time.Unix(1, 0))); got != "true[][][]" {
		t.Errorf("no file: %q", got)
	}
}
