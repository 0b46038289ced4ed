package snapshot

import (
	"testing"

	"xdsrelay/internal/xds"
)

// What a client sees of a name depends on what both parts have and on what it subscribes to. A
// removal in one part removes nothing from the other (P50).
func TestP50_VisibleCopy(t *testing.T) {
	const none, gone = "", "gone"
	both := &Subscription{Wildcard: true, Names: xds.NewNameSet("x")}
	for _, c := range []struct {
		wild, named             string
		everything, both, alone string
	}{
		{none, none, "-", "?", "?"},
		{none, gone, "-", "-", "-"},
		{none, "n", "-", "n", "n"},
		{"w", none, "w", "w", "w"},
		{"w", gone, "w", "w", "w"},
		{"w", "n", "w", "w", "n"},
	} {
		b := NewBuilder(xds.TypeOf(xds.ClusterType))
		b.Apply(Update{Wildcard: true})
		if c.wild != none {
			b.Apply(Update{Wildcard: true, Changed: []*xds.Resource{newRes(t, xds.ClusterType, "x", c.wild)}})
		}
		switch c.named {
		case none:
		case gone:
			b.Apply(Update{Changed: []*xds.Resource{newRes(t, xds.ClusterType, "x", "before")}})
			b.Apply(Update{Removed: []string{"x"}})
		default:
			b.Apply(Update{Changed: []*xds.Resource{newRes(t, xds.ClusterType, "x", c.named)}})
		}
		s, _ := b.Snapshot(nil, 1)
		for sub, want := range map[*Subscription]string{wildcardSub(): c.everything, both: c.both, namesSub("x"): c.alone} {
			got := "?"
			r, is := s.Look(sub, "x")
			switch {
			case is == Absent:
				got = "-"
			case is == Present && r.Same(newRes(t, xds.ClusterType, "x", c.wild)):
				got = c.wild
			case is == Present && r.Same(newRes(t, xds.ClusterType, "x", c.named)):
				got = c.named
			}
			if got != want {
				t.Errorf("wildcard %q, name %q: %+v sees %q, want %q", c.wild, c.named, sub, got, want)
			}
		}
	}
}

// When no client subscribes to the wildcard any more, its part is dropped. The named part stays
// (P50).
func TestP50_EndWildcardKeepsNames(t *testing.T) {
	b := NewBuilder(xds.TypeOf(xds.ClusterType))
	b.Apply(Update{Changed: []*xds.Resource{newRes(t, xds.ClusterType, "there", "n")}, Removed: []string{"gone"}})
	u := Update{Wildcard: true}
	for _, n := range []string{"pending", "gone", "there"} {
		u.Changed = append(u.Changed, newRes(t, xds.ClusterType, n, "w"))
	}
	b.Apply(u)
	b.EndWildcard()
	s, _ := b.Snapshot(nil, 1)
	sub := namesSub("pending", "gone", "there")
	for name, want := range map[string]Presence{"pending": Pending, "gone": Absent, "there": Present} {
		if _, got := s.Look(sub, name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	if s.Len() != 1 || s.Answered || s.Known("pending") {
		t.Errorf("%d held, answered %v", s.Len(), s.Answered)
	}
}
