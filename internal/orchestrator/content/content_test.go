package content

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// notes is a History that has the generations of snapshots.
type notes struct{ gens []uint64 }

func (n *notes) Note(_, s *snapshot.Snapshot, _ []string) { n.gens = append(n.gens, s.Gen) }

func resource(t testing.TB, typ xds.Type, name, value string) *xds.Resource {
	t.Helper()
	r, err := xds.NewResource(typ, name, xdstest.NamedAny(string(typ.URL), name, value))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// shown returns what a client sees of names, sorted, such as "a=1 b=-": "-" is absent, "?" unknown.
func shown(s *snapshot.Snapshot, sub *snapshot.Subscription, names ...string) string {
	var out []string
	for _, n := range names {
		value := "?"
		switch r, is := s.Look(sub, n); is {
		case snapshot.Present:
			value = xdstest.ContentOf(r.Any())
		case snapshot.Absent:
			value = "-"
		}
		out = append(out, n+"="+value)
	}
	return strings.Join(out, " ")
}

// What leaves the subscription leaves nothing, whatever happened before: no resource, no deletion that
// waits, no addition, no omitted name (P65). Each snapshot is in the history once.
func TestP65_ForgottenNamesLeaveNothing(t *testing.T) {
	universe := []string{"a", "b", "c", "d"}
	rapid.Check(t, func(rt *rapid.T) {
		h := new(notes)
		content, now := New(rapid.Bool().Draw(rt, "SotW")), time.Now()
		content.Add(xds.TypeOf(xds.ClusterType), h)
		content.Add(xds.TypeOf(xds.EndpointType), new(notes))
		subscribe := func(ty *TypeContent, to *xds.NameSet, wildcard bool) {
			var forgotten []string
			for name, added := range ty.names.Diff(to) {
				if !added {
					forgotten = append(forgotten, name)
				}
			}
			ty.SetSubscribed(to, wildcard, forgotten)
		}
		some := rapid.SliceOfDistinct(rapid.SampledFrom(universe), rapid.ID[string])
		published := uint64(0)
		delay := time.Duration(rapid.IntRange(0, 2).Draw(rt, "delay")) * time.Second
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			ty := content.types[rapid.IntRange(0, 1).Draw(rt, "type")]
			switch rapid.SampledFrom([]string{"subscribe", "update", "update", "ack", "wait", "publish"}).Draw(rt, "do") {
			case "subscribe":
				subscribe(ty, xds.NewNameSet(some.Draw(rt, "names")...), rapid.Bool().Draw(rt, "wildcard"))
			case "update":
				u := snapshot.Update{Type: ty.typ.URL, Wildcard: ty.wildcard && rapid.Bool().Draw(rt, "of the wildcard"), Received: now}
				for _, n := range some.Draw(rt, "changed") {
					u.Changed = append(u.Changed, resource(t, ty.typ, n, fmt.Sprint(rapid.IntRange(0, 3).Draw(rt, "value"))))
				}
				u.Removed = slices.DeleteFunc(some.Draw(rt, "removed"), func(n string) bool {
					return slices.ContainsFunc(u.Changed, func(r *xds.Resource) bool { return r.Name == n })
				})
				ty.Apply(u, Stream{1, now, true}, now, delay)
			case "ack":
				if s := ty.Newest(); s != nil {
					ty.Acked(s.Gen)
				}
			case "wait":
				now = now.Add(time.Second)
				ty.Remove(now, delay)
			case "publish":
				published++
				if s := content.Publish(1); s.Number != published {
					rt.Fatalf("State %d, want %d", s.Number, published)
				}
			}
			if err := content.Check(); err != nil {
				rt.Fatal(err)
			}
		}
		for _, ty := range content.types {
			subscribe(ty, nil, false)
			if s := ty.Newest(); s.Len() > 0 || s.AbsentNames() > 0 {
				rt.Fatalf("%d resources and %d absent names are left", s.Len(), s.AbsentNames())
			}
			if n := len(ty.removals.waiting) + len(ty.removals.added) + len(ty.omitted); n > 0 {
				rt.Fatalf("%d deletions, additions and omitted names are left", n)
			}
		}
		if err := content.Check(); err != nil {
			rt.Fatal(err)
		}
		for _, ty := range slices.Clone(content.types) {
			content.Remove(ty)
			if content.Publish(1).Snapshot(ty.typ.URL) != nil {
				rt.Fatal("a type that was removed is published")
			}
		}
		if !slices.IsSorted(h.gens) || len(slices.Compact(h.gens)) != len(h.gens) {
			rt.Fatalf("generations in the history: %v", h.gens)
		}
	})
}
