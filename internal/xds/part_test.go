package xds

import (
	"testing"
)

// What a client sees of a name, by what the wildcard and the name brought and by
// what it asks for. A removal of the one removes nothing that the other holds.
func TestP50_WhoSeesWhichCopy(t *testing.T) {
	const none, gone = "", "gone"
	both := &Subscription{Wildcard: true, Names: NewNameSet("x")}
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
		b := NewBuilder(TypeOf(ClusterType))
		b.Apply(Update{Wildcard: true})
		if c.wild != none {
			b.Apply(Update{Wildcard: true, Changed: []*Resource{newRes(t, ClusterType, "x", c.wild)}})
		}
		switch c.named {
		case none:
		case gone:
			b.Apply(Update{Changed: []*Resource{newRes(t, ClusterType, "x", "before")}})
			b.Apply(Update{Removed: []string{"x"}})
		default:
			b.Apply(Update{Changed: []*Resource{newRes(t, ClusterType, "x", c.named)}})
		}
		s, _ := b.Snapshot(nil, 1)
		for sub, want := range map[*Subscription]string{everything(): c.everything, both: c.both, byName("x"): c.alone} {
			got := "?"
			r, is := s.Look(sub, "x")
			switch {
			case is == Absent:
				got = "-"
			case is == Present && r.Same(newRes(t, ClusterType, "x", c.wild)):
				got = c.wild
			case is == Present && r.Same(newRes(t, ClusterType, "x", c.named)):
				got = c.named
			}
			if got != want {
				t.Errorf("wildcard %q, name %q: to %+v it is %q, want %q", c.wild, c.named, sub, got, want)
			}
		}
	}
}

// Once nobody asks for the wildcard, what it brought stays for those who ask for
// the name and have no answer to it, until they have; and it is no answer.
func TestP50_WhatAWildcardLeaves(t *testing.T) {
	names := []string{"pending", "waits", "gone", "there"}
	b := NewBuilder(TypeOf(ClusterType))
	b.Apply(Update{Changed: []*Resource{newRes(t, ClusterType, "there", "n")}, Removed: []string{"gone"}})
	u := Update{Wildcard: true, Changed: []*Resource{newRes(t, ClusterType, "unasked", "w")}}
	for _, n := range names {
		u.Changed = append(u.Changed, newRes(t, ClusterType, n, "w"))
	}
	b.Apply(u)
	before, _ := b.Snapshot(nil, 1)
	sub := byName(append(names, "unasked")...)
	b.EndWildcard(NewNameSet(names...))
	s, _ := b.Snapshot(before, 2)
	is := func(name string, want Presence) {
		t.Helper()
		if _, got := s.Look(sub, name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	is("pending", Present)
	is("waits", Present)
	is("gone", Absent) // its own answer counts, now that nobody brings the other
	is("there", Present)
	is("unasked", Pending)
	if _, got := s.Look(everything(), "pending"); got != Pending {
		t.Errorf("to the next wildcard it is %d", got)
	}
	for _, n := range []string{"pending", "waits"} {
		if s.Part(false).Held(n) != nil || s.Part(false).Known(n) || !s.Part(false).Lent(n) {
			t.Errorf("%s counts as an answer to the name", n)
		}
	}
	if s.Len() != 3 || s.Part(true).Known("pending") {
		t.Errorf("%d held", s.Len())
	}

	// An answer takes it away.
	b.Apply(Update{Removed: []string{"pending"}, Changed: []*Resource{newRes(t, ClusterType, "waits", "n")}})
	s, _ = b.Snapshot(s, 4)
	is("pending", Absent)
	if r, _ := s.Look(sub, "waits"); !r.Same(newRes(t, ClusterType, "waits", "n")) {
		t.Error("the wildcard's copy outlives the answer to the name")
	}
	// Nor does it outlive who asks.
	b.Apply(Update{Wildcard: true, Changed: []*Resource{newRes(t, ClusterType, "a", ""), newRes(t, ClusterType, "b", "")}})
	b.EndWildcard(NewNameSet("a", "b"))
	b.Forget("a")
	if s, _ = b.Snapshot(s, 5); s.Known("a") || !s.Known("b") {
		t.Error("not forgotten with its name, or another was")
	}
}
