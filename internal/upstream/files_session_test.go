package upstream

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

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

// A group that applies what it is told holds what the files say, of all that it
// asks for, after any changes of both, also if it forgets what it lets go and
// comes from another origin; and it is told nothing twice.
func TestP80_AGroupHoldsWhatTheFilesSay(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f"}
	pool := map[string][]*xds.Resource{}
	for _, n := range names {
		for c := range 3 {
			pool[n] = append(pool[n], widget(t, n, fmt.Sprint(c)))
		}
	}
	some := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 6, func(n string) string { return n })
	rapid.Check(t, func(t *rapid.T) {
		sink, c := newTestSink(), newCell()
		var interest xds.TypeInterest
		if rapid.Bool().Draw(t, "another origin before") {
			var rs []*xds.Resource
			for _, n := range some.Draw(t, "its names") {
				rs = append(rs, pool[n][0])
			}
			was := named(odd, names...)
			if rapid.Bool().Draw(t, "its wildcard") {
				was = all(odd)
			}
			c.set(sink.want(was))
			interest = was
			_, _ = sink.Update(context.Background(), xds.Update{Type: odd, Origin: "other", Wildcard: was.Wildcard, Changed: rs})
		}
		now, state := nothing, &told{at: nothing}
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "files change") {
				next := &fileType{version: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "version"), resources: map[string]*xds.Resource{}}
				for _, n := range some.Draw(t, "files' names") {
					next.resources[n] = rapid.SampledFrom(pool[n]).Draw(t, "content")
				}
				now = next
			}
			for range rapid.IntRange(0, 3).Draw(t, "interests") {
				if interest = named(odd, some.Draw(t, "names")...); rapid.Bool().Draw(t, "wildcard") {
					interest = all(odd)
				}
				c.set(sink.want(interest))
			}
			i, lapsed := c.take()
			if i == nil || empty(interest) {
				state = &told{at: nothing}
				continue
			}
			if u, any := state.update(interest, lapsed[odd], now, sink.Held(odd), time.Unix(1, 0)); any {
				if !slices.IsSortedFunc(u.Changed, func(a, b *xds.Resource) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) }) || !slices.IsSorted(u.Removed) {
					t.Fatalf("not in order: %+v", u)
				}
				for _, r := range u.Changed {
					if !u.Wildcard && !interest.Names.Has(r.Name) {
						t.Fatalf("%s was not asked for", r.Name)
					}
				}
				if _, err := sink.Update(context.Background(), u); err != nil {
					t.Fatal(err)
				}
			}
			if again, any := state.update(interest, nil, now, sink.Held(odd), time.Unix(1, 0)); any {
				t.Fatalf("told twice: %+v", again)
			}
			held := sink.Held(odd)
			if interest.Wildcard {
				var got []*xds.Resource
				held.Covered(&xds.Subscription{Wildcard: true}, func(r *xds.Resource) bool { got = append(got, r); return true })
				if len(got) != len(now.resources) || !held.Answered {
					t.Fatalf("the wildcard holds %d of %d, answered %v", len(got), len(now.resources), held.Answered)
				}
				for _, r := range got {
					if !now.resources[r.Name].Same(r) {
						t.Fatalf("the wildcard holds another %s", r.Name)
					}
				}
			}
			for n := range interest.Names.All() {
				r, is := held.Look(&xds.Subscription{Names: xds.NewNameSet(n)}, n)
				want := now.resources[n]
				if want != nil && (is != xds.Present || !r.Same(want)) || want == nil && is != xds.Absent {
					t.Fatalf("%s: %v %d, want %v", n, r, is, want)
				}
			}
		}
	})
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
