package filesource

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	"xdsrelay/internal/upstream/upstreamtest"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// A directory answers names, aliases, globs and the wildcard as any origin does. Files and interest
// change at random. Afterwards a group holds the resources that match its interest, and knows that
// the others are absent. No update repeats another, and another origin may have been used before.
func TestP80_FilesModel(t *testing.T) {
	resources := []string{"n0", "n1", "n2", "xdstp://o/T/c/x", "xdstp://o/T/c/y", "xdstp://o/T/d/z"}
	aliases := []string{"a0", "a1", "n0"}
	keys := append(slices.Clone(resources), "a0", "a1", "xdstp://o/T/c/*", "nowhere")
	make := func(name, content string, aliases ...string) *xds.Resource {
		body := new(anypb.Any)
		upstreamtest.MustUnmarshal(t, upstreamtest.Widget(t, name, content).Any(), body)
		msg := upstreamtest.Response{Type: upstreamtest.Unknown, Resources: []upstreamtest.Resource{{Name: name, Aliases: aliases, Any: body}}}.Encode(t, xds.Delta, "1")
		r, err := xds.ParseResponse(xds.Delta, msg)
		if err != nil {
			t.Fatal(err)
		}
		return r.Resources[0].Take(xds.TypeOf(upstreamtest.Unknown), nil)
	}
	rapid.Check(t, func(rt *rapid.T) {
		some := rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 0, 6, rapid.ID[string])
		which := rapid.SliceOfNDistinct(rapid.SampledFrom(resources), 0, 5, rapid.ID[string])
		goes := rapid.SliceOfNDistinct(rapid.SampledFrom(aliases), 0, 2, rapid.ID[string])
		sink, c := upstreamtest.NewSink(), newTestInterest()
		if before := some.Draw(rt, "held of another origin"); len(before) > 0 {
			c.SetInterest(sink.Want(named(upstreamtest.Unknown, before...)))
			u := snapshot.Update{Type: upstreamtest.Unknown, Origin: "other"}
			for _, n := range which.Draw(rt, "its names") {
				if r := make(n, "0", goes.Draw(rt, "its aliases")...); r.RequestedBy(xds.NewNameSet(before...)) {
					u.Changed = append(u.Changed, r)
				}
			}
			_, _ = sink.Update(t.Context(), u)
		}
		now, state := noContents, &sentState{contents: noContents}
		for range rapid.IntRange(1, 10).Draw(rt, "steps") {
			if rapid.Bool().Draw(rt, "files change") {
				now = &typeContents{resources: map[string]*xds.Resource{}}
				for _, n := range which.Draw(rt, "files' names") {
					now.resources[n] = make(n, rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "content"), goes.Draw(rt, "aliases")...)
				}
				now.index()
			}
			var interest snapshot.TypeInterest
			for range rapid.IntRange(1, 3).Draw(rt, "interests") {
				if interest = named(upstreamtest.Unknown, some.Draw(rt, "names")...); rapid.Bool().Draw(rt, "wildcard") {
					interest = all(upstreamtest.Unknown)
				}
				c.SetInterest(sink.Want(interest))
			}
			i, again := c.Interest()
			if interest = i.Of(upstreamtest.Unknown); interest.Empty() {
				state = &sentState{contents: noContents}
				continue
			}
			if u, any := state.update(interest, again(upstreamtest.Unknown), now, sink.Newest(upstreamtest.Unknown), time.Unix(1, 0)); any {
				if !slices.IsSortedFunc(u.Changed, func(a, b *xds.Resource) int { return strings.Compare(a.Name, b.Name) }) || !slices.IsSorted(u.Removed) {
					rt.Fatalf("not in order: %+v", u)
				}
				for _, r := range u.Changed {
					if !interest.Wildcard && !r.RequestedBy(interest.Names) {
						rt.Fatalf("%s was not asked for", r.Name)
					}
				}
				_, _ = sink.Update(t.Context(), u)
			}
			if again, any := state.update(interest, nil, now, sink.Newest(upstreamtest.Unknown), time.Unix(1, 0)); any {
				rt.Fatalf("told twice: %+v", again)
			}
			held := sink.Newest(upstreamtest.Unknown)
			var got, want []string
			for r := range held.Part(interest.Scope()).Resources {
				if got = append(got, r.Name); !r.Same(now.resources[r.Name]) {
					rt.Fatalf("another %s is held", r.Name)
				}
			}
			if interest.Wildcard && !held.Answered {
				rt.Fatal("the wildcard is not answered")
			}
			for n, r := range now.resources {
				if interest.Wildcard || r.RequestedBy(interest.Names) {
					want = append(want, n)
				}
			}
			slices.Sort(want)
			if !slices.Equal(got, want) {
				rt.Fatalf("held are %v, want %v", got, want)
			}
			for n := range interest.Names.All() {
				r, is := held.Look(&snapshot.Subscription{Names: interest.Names}, n)
				switch of := now.resources[n]; {
				case of != nil && (is != snapshot.Present || !r.Same(of)), of == nil && len(now.byAlias[n]) > 0 && is != snapshot.UnderOtherName,
					of == nil && len(now.byAlias[n]) == 0 && is != snapshot.Absent:
					rt.Fatalf("%s: %v %d, want %v, or %v", n, r, is, of, now.byAlias[n])
				}
			}
		}
	})
}
