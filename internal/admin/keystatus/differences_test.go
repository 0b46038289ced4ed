package keystatus

import (
	"fmt"
	"strings"
	"testing"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// What a client refused and what it has are compared by generation, also after both were replaced;
// a resource that is gone is marked.
func TestDifferences(t *testing.T) {
	bubble(t, func(w *fixture) {
		web := xds.NewKey("web")
		c := w.join("web", cds, "*")
		f := w.feed("web")
		f.give("v1", "a=1", "b=1")
		one := c.Newest()
		f.give("v2", "a=2", "c=1")
		two := c.Newest()
		f.give("v3", "a=3", "b=3")
		u := inspect.Unacknowledged{Key: web, Type: xds.TypeOf(cds), Offer: snapshot.Offer{Sub: subscription("*"), Lineage: one.Lineage, Has: one.Gen, Of: two.Gen}}
		text := func(u inspect.Unacknowledged, most int) string {
			all, more, known := w.Differences(&u, most)
			var out []string
			for _, d := range all {
				side := func(r *xds.Resource, gone bool) string {
					switch {
					case gone:
						return "?"
					case r == nil:
						return "-"
					}
					return xdstest.ContentOf(r.Any())
				}
				out = append(out, d.Name+":"+side(d.Has, d.HasGone)+">"+side(d.Offered, d.OfferedGone))
			}
			return fmt.Sprint(strings.Join(out, " "), " +", more, " ", known)
		}
		equal(t, "what differs", text(u, 10), "a:1>2 c:->1 +0 true")
		equal(t, "the first", text(u, 1), "a:1>2 +1 true")
		named := u
		named.Names = []string{"a", "b"}
		equal(t, "b was not another then", text(named, 10), "a:1>2 +0 true")
		named.Names = []string{"c"}
		equal(t, "of one name", text(named, 10), "c:->1 +0 true")
		none := u
		none.Has = 0
		equal(t, "of a client that has nothing", text(none, 10), "a:->2 b:->1 c:->1 +0 true")

		for i := range 300 {
			f.give(fmt.Sprint("w", i), fmt.Sprint("z=", i))
		}
		equal(t, "long ago", text(u, 10), " +0 false")
		named.Names = []string{"a"}
		equal(t, "by name", text(named, 10), "a:?>? +0 true")
		other := u
		other.Lineage++
		equal(t, "of another view", text(other, 10), " +0 false")
		other.Key = xds.NewKey("nobody")
		equal(t, "of no key", text(other, 10), " +0 false")
		held, ok := w.Snapshots(web)
		equal(t, "resources", fmt.Sprint(len(held), held[0].Len(), ok), "1 4 true")
		if _, ok := w.Snapshots(xds.NewKey("nobody")); ok {
			t.Error("an unknown key has resources")
		}
	})
}
