package snapshot

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/xds"
)

// A snapshot has the origin's newest version. An update of another origin drops it. Without one,
// the version is made from the content (P61).
func TestP61_VersionOfASnapshot(t *testing.T) {
	b := NewBuilder(xds.TypeOf(xds.ClusterType))
	var s *Snapshot
	for i, c := range []struct {
		u    Update
		want string // "" for the version made from the content
	}{
		{Update{Origin: "a", Wildcard: true}, ""},
		{Update{Origin: "a", Wildcard: true, Version: "v1", Changed: []*xds.Resource{newRes(t, xds.ClusterType, "c", "")}}, "v1"},
		{Update{Origin: "a", Wildcard: true, Version: "v2"}, "v2"},
		{Update{Origin: "a", Removed: []string{"x"}}, "v2"},
		{Update{Origin: "a", Wildcard: true, Unversioned: true, Changed: []*xds.Resource{newRes(t, xds.ClusterType, "c", "2")}}, ""},
		{Update{Origin: "a", Wildcard: true, Changed: []*xds.Resource{newRes(t, xds.ClusterType, "c", "3")}}, ""},
		{Update{Origin: "b", Wildcard: true}, ""},
		{Update{Origin: "b", Wildcard: true, Version: "1"}, "1"},
	} {
		b.Apply(c.u)
		if s, _ = b.Snapshot(s, uint64(i)); c.want == "" {
			c.want = b.sum.String()
		}
		name, domain := s.Part(c.u.Scope()).Origin()
		if s.Version != c.want || s.Origin != c.u.Origin || name != c.u.Origin || domain != c.u.Origin {
			t.Errorf("%d: version %q of %q, want %q", i, s.Version, s.Origin, c.want)
		}
	}
}

// The version of a set must never change. Another program computed this value (P61).
func TestP61_GoldenVersionOfASet(t *testing.T) {
	var rs []*xds.Resource
	for _, name := range []string{"c2", "c1"} {
		body, err := proto.Marshal(&anypb.Any{TypeUrl: string(xds.ClusterType), Value: append([]byte{10, 2}, name...)})
		if err != nil {
			t.Fatal(err)
		}
		r, err := xds.NewResource(xds.TypeOf(xds.ClusterType), name, body)
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
	}
	b := NewBuilder(xds.TypeOf(xds.ClusterType))
	b.Apply(Update{Wildcard: true, Changed: rs})
	if s, _ := b.Snapshot(nil, 1); s.Version != "d5bacc503b711d30288b3174a1838740" {
		t.Errorf("set of c1 and c2: %s", s.Version)
	}
}

// Equal content is no change, whatever its version (P33).
func TestP33_EqualContentIsNoChange(t *testing.T) {
	b := NewBuilder(xds.TypeOf(xds.ClusterType))
	at := time.Unix(1, 0)
	if !b.Apply(Update{Wildcard: true, Version: "1", Received: at, Changed: []*xds.Resource{newRes(t, xds.ClusterType, "c", "x")}}) {
		t.Error("the first resource is no change")
	}
	s, names := b.Snapshot(nil, 1)
	if !slices.Equal(names, []string{"c"}) {
		t.Errorf("changed %v", names)
	}
	if b.Apply(Update{Wildcard: true, Version: "2", Received: time.Unix(2, 0), Changed: []*xds.Resource{newRes(t, xds.ClusterType, "c", "x")}}) {
		t.Error("the same content is a change")
	}
	next, names := b.Snapshot(s, 2)
	if next == s || next.Version != "2" || len(names) != 0 || len(next.Changes(s, wildcardSub())) != 0 {
		t.Errorf("%+v, changed %v", next, names)
	}
	if next.Received != at {
		t.Error("the snapshot counts as newer than its newest change")
	}
	// A resource that is removed and comes back between two snapshots did not change.
	b.Apply(Update{Wildcard: true, Version: "2", Removed: []string{"c"}})
	b.Apply(Update{Wildcard: true, Version: "2", Changed: []*xds.Resource{next.Resource("c")}})
	if last, names := b.Snapshot(next, 3); last != next || len(names) != 0 {
		t.Errorf("removed and back: %+v, changed %v", last, names)
	}
}

// SupersededBytes counts what old snapshots may keep alive: replaced resources, and what each
// generation has of its own (P16).
func TestP16_SupersededBytes(t *testing.T) {
	b := NewBuilder(xds.TypeOf(xds.EndpointType))
	var s *Snapshot
	grown := func(rs ...*xds.Resource) int64 {
		before := SupersededBytes()
		b.Apply(Update{Changed: rs})
		s, _ = b.Snapshot(s, 1)
		return SupersededBytes() - before
	}
	large := newRes(t, xds.EndpointType, strings.Repeat("a", 1000), "")
	if n := grown(large); n != snapshotBytes {
		t.Errorf("the first generation counts %d bytes", n)
	}
	if n, want := grown(newRes(t, xds.EndpointType, large.Name, "2")), snapshotBytes+large.Size(); n != want {
		t.Errorf("the next counts %d bytes, want %d", n, want)
	}
	if s.Retired != large.Size() {
		t.Errorf("the lineage retired %d bytes, want %d", s.Retired, large.Size())
	}
}

// Concurrent callers of Derived may each compute a value, but all get the same. Derived computes no
// other value before Release.
func TestDerivedIsOneForAll(t *testing.T) {
	s, _ := NewBuilder(xds.TypeOf(xds.ClusterType)).Snapshot(nil, 1)
	var wg sync.WaitGroup
	got := make([]any, 8)
	for i := range got {
		wg.Go(func() { got[i] = s.Derived(func() any { return new(int) }) })
	}
	wg.Wait()
	for _, g := range got {
		if g != got[0] {
			t.Fatal("two callers got different values")
		}
	}
	if s.Derived(func() any { t.Error("computed again"); return nil }) != got[0] {
		t.Error("not the same value")
	}
	s.Release()
	if s.Derived(func() any { return new(int) }) == got[0] {
		t.Error("the same value after Release")
	}
}

func TestState(t *testing.T) {
	c, _ := NewBuilder(xds.TypeOf(xds.ClusterType)).Snapshot(nil, 1)
	e, _ := NewBuilder(xds.TypeOf(xds.EndpointType)).Snapshot(nil, 1)
	in := []*Snapshot{c, e}
	s := NewState(3, 7, in)
	in[0] = nil
	if s.Group != 3 || s.Number != 7 || s.Snapshot(xds.ClusterType) != c || s.Snapshot(xds.EndpointType) != e || s.Snapshot(widget) != nil {
		t.Errorf("%+v", s)
	}
	if (*State)(nil).Snapshot(xds.ClusterType) != nil {
		t.Error("the nil State has a snapshot")
	}
	if _, is := (*Snapshot)(nil).Look(namesSub("a"), "a"); is != Pending {
		t.Error("a nil snapshot does not return Pending")
	}
	if c.Lineage == e.Lineage {
		t.Error("two builders have one lineage")
	}
}

// Old snapshots can be read while the builder makes new ones (for the race detector), and their
// content is consistent.
func TestReadersOfOldSnapshots(t *testing.T) {
	const names, gens, readers = 200, 400, 4
	b := NewBuilder(xds.TypeOf(xds.EndpointType))
	pool := make([][]*xds.Resource, 2)
	for i := range pool {
		for n := range names {
			pool[i] = append(pool[i], newRes(t, xds.EndpointType, fmt.Sprintf("n%03d", n), fmt.Sprint(i)))
		}
	}
	b.Apply(Update{Wildcard: true, Changed: pool[0]})
	first, _ := b.Snapshot(nil, 0)
	var newest atomic.Pointer[Snapshot]
	newest.Store(first)
	var wg sync.WaitGroup
	sub := &Subscription{Wildcard: true, Names: xds.NewNameSet("n005", "none")}
	for range readers {
		wg.Go(func() {
			last := first
			for s := newest.Load(); ; s = newest.Load() {
				var sum xds.Version
				n := 0
				s.Covered(sub, func(r *xds.Resource) bool { n++; sum = sum.Add(r.Member); return true })
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

// BenchmarkOneChange measures a change of one resource, up to the names that changed.
func BenchmarkOneChange(b *testing.B) {
	for _, size := range []int{100, 100_000} {
		b.Run(fmt.Sprintf("among=%d", size), func(b *testing.B) {
			builder := NewBuilder(xds.TypeOf(xds.ClusterType))
			u := Update{Wildcard: true}
			for i := range size {
				u.Changed = append(u.Changed, newRes(b, xds.ClusterType, fmt.Sprintf("cluster-%06d", i), ""))
			}
			builder.Apply(u)
			s, _ := builder.Snapshot(nil, 1)
			turn := []*xds.Resource{newRes(b, xds.ClusterType, "cluster-000050", "1"), newRes(b, xds.ClusterType, "cluster-000050", "2")}
			sub := wildcardSub()
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
