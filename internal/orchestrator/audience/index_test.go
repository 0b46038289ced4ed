package audience

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func subscription(names ...string) *snapshot.Subscription {
	s := &snapshot.Subscription{Wildcard: slices.Contains(names, "*")}
	s.Names = xds.NewNameSet(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "*" })...)
	return s
}

func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%06d", prefix, i)
	}
	return out
}

// A set behaves like a map, short or long. That includes adding an element twice, and removing one
// that is missing.
func TestSetAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b set[int]
		plain := make(map[int]bool)
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			x := rapid.IntRange(0, 60).Draw(t, "x")
			if rapid.Bool().Draw(t, "remove") {
				b.remove(x)
				delete(plain, x)
			} else {
				b.add(x)
				plain[x] = true
			}
			got, want := slices.Sorted(slices.Values(b.list)), slices.Sorted(maps.Keys(plain))
			if !slices.Equal(got, want) || b.len() != len(want) {
				t.Fatalf("%v, want %v", got, want)
			}
		}
	})
}

// A set that grows by one name touches only that name, whatever its size.
func TestGrowingSetTouchesWhatChanged(t *testing.T) {
	var table Table
	x := newIndex[int]()
	set := xds.NewNameSet(names("n", 20000)...)
	was := table.Intern(&snapshot.Subscription{Names: set})
	x.replace(1, snapshot.Nothing, was, nil)
	for i := range 100 {
		set = set.Add(fmt.Sprintf("new-%d", i))
		now := table.Intern(&snapshot.Subscription{Names: set})
		// Each other name of the changed chunk always has a subscriber.
		if touched := x.replace(1, was, now, nil); len(touched) != 1 {
			t.Fatalf("%d names touched", len(touched))
		}
		was = now
	}
	equal(t, "names", len(x.names), set.Len())
	equal(t, "chunks", len(x.chunks), len(set.Chunks()))
	equal(t, "subscriptions", len(x.subs), 1)
}

// Subscribers with the same subscription are one entry of the index.
func TestIndexHasOneEntryForASubscription(t *testing.T) {
	var table Table
	x := newIndex[int]()
	for i := range 1000 {
		x.replace(i, snapshot.Nothing, table.Intern(subscription(names("n", 100)...)), nil)
	}
	equal(t, "subscriptions", len(x.subs), 1)
	for _, s := range x.names {
		if s.len() != 1 {
			t.Fatalf("%d chunks have one name", s.len())
		}
	}
}

// GrowsBy foretells how much Replace adds to the weight, whatever subscribers subscribe to.
func TestGrowsByAgainstReplace(t *testing.T) {
	var table Table
	universe := slices.Concat(names("n", 300), []string{strings.Repeat("x", 3*xds.NameUnit)})
	rapid.Check(t, func(t *rapid.T) {
		x, subs := newIndex[int](), make(map[int]*snapshot.Subscription)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			m := rapid.IntRange(0, 3).Draw(t, "subscriber")
			was, before := subs[m], x.weight
			if was == nil {
				was = snapshot.Nothing
			}
			some := rapid.SliceOfN(rapid.SampledFrom(universe), 0, rapid.SampledFrom([]int{3, 300}).Draw(t, "most")).Draw(t, "names")
			sub := table.Intern(subscription(some...))
			if sub == was {
				continue
			}
			grows := func(room int) bool { return x.growsBy(was, sub, room) }
			none, room := grows(0), rapid.IntRange(0, 300).Draw(t, "room")
			over := grows(room)
			x.replace(m, was, sub, nil)
			subs[m] = sub
			if grown := x.weight - before; none != (grown > 0) || over != (grown > room) {
				t.Fatalf("grows: %v, by more than %d: %v; but it grew by %d", none, room, over, grown)
			}
		}
	})
}
