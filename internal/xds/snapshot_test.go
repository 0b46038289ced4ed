package xds

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func everything() *Subscription { return &Subscription{Wildcard: true} }

func byName(names ...string) *Subscription { return &Subscription{Names: NewNameSet(names...)} }

// The origin's newest version goes out verbatim; with another origin the old
// one's is gone; where none was given it is made from the content.
func TestP61_VersionOfASnapshot(t *testing.T) {
	b := NewBuilder(TypeOf(ClusterType))
	var s *Snapshot
	for i, c := range []struct {
		u    Update
		want string // "" for the content's
	}{
		{Update{Origin: "a", Wildcard: true}, ""},
		{Update{Origin: "a", Wildcard: true, Version: "v1", Changed: []*Resource{newRes(t, ClusterType, "c", "")}}, "v1"},
		{Update{Origin: "a", Wildcard: true, Version: "v2"}, "v2"},
		{Update{Origin: "a", Removed: []string{"x"}}, "v2"},
		{Update{Origin: "a", Wildcard: true, Unversioned: true, Changed: []*Resource{newRes(t, ClusterType, "c", "2")}}, ""},
		{Update{Origin: "a", Wildcard: true, Changed: []*Resource{newRes(t, ClusterType, "c", "3")}}, ""},
		{Update{Origin: "b", Wildcard: true}, ""},
		{Update{Origin: "b", Wildcard: true, Version: "1"}, "1"},
	} {
		b.Apply(c.u)
		if s, _ = b.Snapshot(s, uint64(i)); c.want == "" {
			c.want = b.sum.String()
		}
		if s.Version != c.want || s.Origin != c.u.Origin || s.Part(c.u.Wildcard).Origin() != c.u.Origin {
			t.Errorf("%d: version %q of %q, want %q", i, s.Version, s.Origin, c.want)
		}
	}
}

// Equal content is no change, under whatever version.
func TestP33_EqualContentIsNoChange(t *testing.T) {
	b := NewBuilder(TypeOf(ClusterType))
	at := time.Unix(1, 0)
	if !b.Apply(Update{Wildcard: true, Version: "1", Received: at, Changed: []*Resource{newRes(t, ClusterType, "c", "x")}}) {
		t.Error("the first resource is no change")
	}
	s, names := b.Snapshot(nil, 1)
	if !slices.Equal(names, []string{"c"}) {
		t.Errorf("changed %v", names)
	}
	if b.Apply(Update{Wildcard: true, Version: "2", Received: time.Unix(2, 0), Changed: []*Resource{newRes(t, ClusterType, "c", "x")}}) {
		t.Error("the same content is a change")
	}
	next, names := b.Snapshot(s, 2)
	if next == s || next.Version != "2" || len(names) != 0 || len(next.Changes(s, everything())) != 0 {
		t.Errorf("%+v, changed %v", next, names)
	}
	if next.Received != at {
		t.Error("the snapshot counts as newer than its newest change")
	}
	// Gone and back between two snapshots is none either.
	b.Apply(Update{Wildcard: true, Version: "2", Removed: []string{"c"}})
	b.Apply(Update{Wildcard: true, Version: "2", Changed: []*Resource{next.Held("c")}})
	if last, names := b.Snapshot(next, 3); last != next || len(names) != 0 {
		t.Errorf("gone and back: %+v, changed %v", last, names)
	}
}

func TestP25_Presence(t *testing.T) {
	b := NewBuilder(TypeOf(EndpointType))
	b.Apply(Update{Changed: []*Resource{newRes(t, EndpointType, "there", "")}, Removed: []string{"absent"}})
	s, _ := b.Snapshot(nil, 1)
	sub := byName("there", "absent", "pending")
	for name, want := range map[string]Presence{"there": Present, "absent": Absent, "pending": Pending, "not asked for": Pending} {
		if _, is := s.Look(sub, name); is != want {
			t.Errorf("%s: %d, want %d", name, is, want)
		}
	}
	if _, is := (*Snapshot)(nil).Look(sub, "there"); is != Pending {
		t.Error("a nil snapshot knows something")
	}
	// It is delivered the moment it appears.
	b.Apply(Update{Changed: []*Resource{newRes(t, EndpointType, "absent", "")}})
	next, _ := b.Snapshot(s, 2)
	if _, is := next.Look(sub, "absent"); is != Present || !slices.Equal(next.Changes(s, sub), []string{"absent"}) {
		t.Errorf("%d, changes %v", is, next.Changes(s, sub))
	}
	// What the answer to the wildcard leaves out is no answer to the name, with
	// the wildcard or without.
	b.Apply(Update{Wildcard: true})
	last, _ := b.Snapshot(next, 3)
	both := &Subscription{Wildcard: true, Names: sub.Names}
	for _, sub := range []*Subscription{sub, both} {
		if _, is := last.Look(sub, "pending"); is != Pending || len(last.Changes(next, sub)) != 0 {
			t.Errorf("%d, changes %v by the wildcard's answer", is, last.Changes(next, sub))
		}
	}
	if _, is := last.Look(everything(), "pending"); is != Absent {
		t.Errorf("what the wildcard leaves out is %d to who asked for it", is)
	}
	if next.Answered || !last.Answered {
		t.Error("Answered is wrong")
	}
}

func TestP51_OnlyWhatWasAskedFor(t *testing.T) {
	b := NewBuilder(TypeOf(EndpointType))
	b.Apply(Update{Wildcard: true, Changed: []*Resource{newRes(t, EndpointType, "w", ""), newRes(t, EndpointType, "both", "wild")}})
	b.Apply(Update{Changed: []*Resource{newRes(t, EndpointType, "n", ""), newRes(t, EndpointType, "both", "named")}})
	s, _ := b.Snapshot(nil, 1)
	covered := func(sub *Subscription) (names []string) {
		s.Covered(sub, func(r *Resource) bool { names = append(names, r.Name); return true })
		return names
	}
	if got := covered(everything()); !slices.Equal(got, []string{"both", "w"}) {
		t.Errorf("the wildcard covers %v: names that only others asked for are not the wildcard's", got)
	}
	if got := covered(byName("n")); !slices.Equal(got, []string{"n"}) {
		t.Errorf("n covers %v", got)
	}
	// P50: who has both is given the wildcard's copy.
	wild, _ := s.Look(&Subscription{Wildcard: true, Names: NewNameSet("both")}, "both")
	named, _ := s.Look(byName("both"), "both")
	if wild.Same(named) || !wild.Same(newRes(t, EndpointType, "both", "wild")) {
		t.Error("another copy than the wildcard's")
	}
	stop := 0
	s.Resources(func(*Resource) bool { stop++; return false })
	s.Covered(everything(), func(*Resource) bool { stop++; return false })
	if stop != 2 {
		t.Errorf("told to stop, yet %d calls", stop)
	}
}

func TestP65_Forget(t *testing.T) {
	b := NewBuilder(TypeOf(EndpointType))
	b.Apply(Update{Changed: []*Resource{newRes(t, EndpointType, "a", "")}, Removed: []string{"b"}})
	s, _ := b.Snapshot(nil, 1)
	b.ForgetBut(nil, "a", "b", "unknown")
	next, names := b.Snapshot(s, 2)
	if !slices.Equal(names, []string{"a", "b"}) || next.Known("a") || next.Known("b") || next.entries.Len() != 0 {
		t.Errorf("changed %v, left %d", names, next.entries.Len())
	}
	if !s.Known("a") || s.Len() != 1 || next.Retired != s.Bytes {
		t.Errorf("the old snapshot changed, or %d bytes retired", next.Retired)
	}
}

// What old snapshots may keep alive is counted: what was replaced, and what each
// generation has of its own.
func TestP16_WhatMayBeOldIsCounted(t *testing.T) {
	b := NewBuilder(TypeOf(EndpointType))
	grown := func(rs ...*Resource) int64 {
		before := Spent()
		b.Apply(Update{Changed: rs})
		b.Snapshot(nil, 1)
		return Spent() - before
	}
	large := newRes(t, EndpointType, strings.Repeat("a", 1000), "")
	if n := grown(large); n != generationBytes {
		t.Errorf("the first generation counts %d bytes", n)
	}
	if n, want := grown(newRes(t, EndpointType, large.Name, "2")), generationBytes+large.Size(); n != want {
		t.Errorf("the next counts %d bytes, want %d", n, want)
	}
}

// Callers that meet may each make one; all get the same, and nothing is made
// again before Release.
func TestDerivedIsOneForAll(t *testing.T) {
	s, _ := NewBuilder(TypeOf(ClusterType)).Snapshot(nil, 1)
	var wg sync.WaitGroup
	got := make([]any, 8)
	for i := range got {
		wg.Go(func() { got[i] = s.Derived(func() any { return new(int) }) })
	}
	wg.Wait()
	for _, g := range got {
		if g != got[0] {
			t.Fatal("two callers got different things")
		}
	}
	if s.Derived(func() any { t.Error("made again"); return nil }) != got[0] {
		t.Error("another than before")
	}
	s.Release()
	if s.Derived(func() any { return new(int) }) == got[0] {
		t.Error("still there after Release")
	}
}

func TestState(t *testing.T) {
	c, _ := NewBuilder(TypeOf(ClusterType)).Snapshot(nil, 1)
	e, _ := NewBuilder(TypeOf(EndpointType)).Snapshot(nil, 1)
	in := []*Snapshot{c, e}
	s := NewState(3, 7, in)
	in[0] = nil
	if s.Group != 3 || s.Gen != 7 || s.Snapshot(ClusterType) != c || s.Snapshot(EndpointType) != e || s.Snapshot(widget) != nil {
		t.Errorf("%+v", s)
	}
	if (*State)(nil).Snapshot(ClusterType) != nil {
		t.Error("the nil State has a snapshot")
	}
	if c.Lineage == e.Lineage {
		t.Error("two builders are one lineage")
	}
}

// Readers of old snapshots and the builder of new ones do not meet (the race
// detector is the judge), and what is read is whole.
func TestReadersOfOldSnapshots(t *testing.T) {
	const names, gens, readers = 200, 400, 4
	b := NewBuilder(TypeOf(EndpointType))
	pool := make([][]*Resource, 2)
	for i := range pool {
		for n := range names {
			pool[i] = append(pool[i], newRes(t, EndpointType, fmt.Sprintf("n%03d", n), fmt.Sprint(i)))
		}
	}
	b.Apply(Update{Wildcard: true, Changed: pool[0]})
	first, _ := b.Snapshot(nil, 0)
	var newest atomic.Pointer[Snapshot]
	newest.Store(first)
	var wg sync.WaitGroup
	sub := &Subscription{Wildcard: true, Names: NewNameSet("n005", "none")}
	for range readers {
		wg.Go(func() {
			last := first
			for s := newest.Load(); ; s = newest.Load() {
				var sum Version
				n := 0
				s.Covered(sub, func(r *Resource) bool { n++; sum = sum.add(r.member); return true })
				if n != s.Len() || sum.String() != s.Version {
					t.Errorf("generation %d: %d of %d resources, %s is not %s", s.Gen, n, s.Len(), sum, s.Version)
					return
				}
				for _, name := range s.Changes(last, sub) {
					s.Look(sub, name)
					first.Look(sub, name)
				}
				last.Changes(s, sub)
				if Generations(last, s, sub) < 1 && last != s {
					t.Errorf("no generations from %d to %d", last.Gen, s.Gen)
				}
				if last = s; s.Gen > gens {
					return
				}
			}
		})
	}
	s := first
	for gen := range uint64(gens) {
		u := Update{Wildcard: true, Changed: pool[gen%2][gen%50 : gen%50+100]}
		if gen%3 == 0 {
			u.Removed = []string{pool[0][gen%50+120].Name}
		}
		b.Apply(u)
		b.Apply(Update{Wildcard: true, Origin: fmt.Sprint(gen)})
		s, _ = b.Snapshot(s, gen)
		newest.Store(s)
	}
	wg.Wait()
}

// What a change of one resource costs, up to knowing what to send.
func BenchmarkOneChange(b *testing.B) {
	for _, size := range []int{100, 100_000} {
		b.Run(fmt.Sprintf("among=%d", size), func(b *testing.B) {
			builder := NewBuilder(TypeOf(ClusterType))
			u := Update{Wildcard: true}
			for i := range size {
				u.Changed = append(u.Changed, newRes(b, ClusterType, fmt.Sprintf("cluster-%06d", i), ""))
			}
			builder.Apply(u)
			s, _ := builder.Snapshot(nil, 1)
			turn := []*Resource{newRes(b, ClusterType, "cluster-000050", "1"), newRes(b, ClusterType, "cluster-000050", "2")}
			sub := everything()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				builder.Apply(Update{Wildcard: true, Changed: turn[i%2 : i%2+1]})
				next, _ := builder.Snapshot(s, 2)
				if got := next.Changes(s, sub); len(got) != 1 {
					b.Fatalf("changes %v", got)
				}
				s = next
			}
		})
	}
}
