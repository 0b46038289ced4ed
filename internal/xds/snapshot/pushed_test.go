package snapshot

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"xdsrelay/internal/xds"
)

// The log knows which resources of which part the origin sent under a new version, and keeps fewer
// names than a part has.
func TestP15_PushedSince(t *testing.T) {
	var all []string
	for i := range 20 {
		all = append(all, fmt.Sprintf("n%02d", i))
	}
	subs := map[*Subscription]bool{wildcardSub(): true, namesSub(all...): false}
	rapid.Check(t, func(rt *rapid.T) {
		b := NewBuilder(xds.TypeOf(xds.ClusterType))
		var held [2][]string
		for _, wild := range []bool{false, true} {
			u := Update{Wildcard: wild}
			for _, n := range rapid.SliceOfDistinct(rapid.SampledFrom(all), rapid.ID[string]).Draw(rt, "held") {
				u.Changed = append(u.Changed, newRes(t, xds.ClusterType, n, "1"))
				held[boolToInt(wild)] = append(held[boolToInt(wild)], n)
			}
			b.Apply(u)
		}
		s, _ := b.Snapshot(nil, 1)
		type push struct {
			gen  uint64
			wild bool
			name string
		}
		var pushes []push
		for range rapid.IntRange(0, 5).Draw(rt, "pushes") {
			u := Update{Wildcard: rapid.Bool().Draw(rt, "wildcard"), Pushed: rapid.SliceOfDistinct(rapid.SampledFrom(all), rapid.ID[string]).Draw(rt, "pushed")}
			b.Apply(u)
			s, _ = b.Snapshot(s, 1)
			for _, n := range u.Pushed {
				if slices.Contains(held[boolToInt(u.Wildcard)], n) {
					pushes = append(pushes, push{s.Gen, u.Wildcard, n})
				}
			}
			if n := len(s.log); n > 0 && s.log[n-1].size() > 10 {
				rt.Fatalf("the log keeps %d names", s.log[n-1].size())
			}
		}
		for since := uint64(1); since <= s.Gen; since++ {
			any := slices.ContainsFunc(pushes, func(p push) bool { return p.gen > since })
			if got := s.PushedSince(s.Lineage, since); got != any {
				rt.Fatalf("pushed since %d: %v", since, got)
			}
			for sub, wild := range subs {
				anyVisible := false
				for _, n := range all {
					// A client gets the wildcard's copy if that is all that there is.
					from := wild || !slices.Contains(held[0], n) && slices.Contains(held[1], n)
					want := slices.ContainsFunc(pushes, func(p push) bool { return p.gen > since && p.wild == from && p.name == n })
					if got := s.AnyPushedSince(s.Lineage, since, sub, []string{n}); got != want {
						rt.Fatalf("%s since %d, wildcard %v: %v", n, since, wild, got)
					}
					anyVisible = anyVisible || want
				}
				if got := s.AnyPushedSince(s.Lineage, since, sub, nil); got != anyVisible {
					rt.Fatalf("any since %d, wildcard %v: %v", since, wild, got)
				}
			}
		}
		if s.PushedSince(s.Lineage+1, 0) {
			rt.Fatal("pushed in another lineage")
		}
	})
}
