package snapshot

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"xdsrelay/internal/xds"
)

// Snapshots know which resources of which part the origin sent under a new version, and keep fewer
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
				held[ScopeOf(wild)] = append(held[ScopeOf(wild)], n)
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
				if slices.Contains(held[u.Scope()], n) {
					pushes = append(pushes, push{s.Gen, u.Wildcard, n})
				}
			}
			if n := len(s.pushes.list); n > 0 && len(s.pushes.list[n-1].names) > 10 {
				rt.Fatalf("%d names are kept of a push", len(s.pushes.list[n-1].names))
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

// A push counts, whatever else its response or later ones change. What is no longer known counts as
// pushed. The list of pushes has a limit.
func TestP15_PushesAreNotForgotten(t *testing.T) {
	var rest []string
	for i := range 2 * minLogNames {
		rest = append(rest, fmt.Sprint(i))
	}
	one := namesSub("one")
	for what, c := range map[string]struct {
		first      []string // pushed with the first change of all others
		others     int      // later pushes
		each       int      // names in each
		kept, want bool
	}{
		"all in one response":            {first: append([]string{"one"}, rest...), kept: true, want: true},
		"alone":                          {first: []string{"one"}, kept: true, want: true},
		"not in the response":            {first: rest, kept: true},
		"many responses later":           {first: []string{"one"}, others: maxPushes, each: 1, want: true},
		"many names later":               {first: []string{"one"}, others: 3, each: len(rest) / 2, want: true},
		"other resources, for long":      {first: rest[:1], others: maxPushes, each: 1, want: true},
		"other resources, for less time": {first: rest[:1], others: maxPushes - 1, each: 1, kept: true},
	} {
		t.Run(what, func(t *testing.T) {
			b := NewBuilder(xds.TypeOf(xds.EndpointType))
			push := func(s *Snapshot, content string, pushed []string) *Snapshot {
				u := Update{Pushed: pushed}
				for _, n := range rest {
					if content != "" {
						u.Changed = append(u.Changed, newRes(t, xds.EndpointType, n, content))
					}
				}
				b.Apply(u)
				s, _ = b.Snapshot(s, 1)
				return s
			}
			b.Apply(Update{Changed: []*xds.Resource{newRes(t, xds.EndpointType, "one", "")}})
			first := push(push(nil, "0", nil), "1", nil) // the log has one change of all others
			s := push(first, "2", c.first)
			for range c.others {
				s = push(s, "", rest[:c.each])
			}
			if got := s.AnyPushedSince(s.Lineage, first.Gen, one, []string{"one"}); got != c.want {
				t.Errorf("pushed: %v", got)
			}
			if kept := s.pushes.dropped == 0; kept != c.kept || len(s.pushes.list) > maxPushes || s.pushes.names > max(minLogNames, len(rest)+1) {
				t.Errorf("kept: %v, %d pushes with %d names", kept, len(s.pushes.list), s.pushes.names)
			}
			if s.AnyPushedSince(s.Lineage, first.Gen, namesSub("none"), []string{"none"}) || s.AnyPushedSince(s.Lineage, s.Gen, one, nil) {
				t.Error("what was not pushed counts")
			}
		})
	}
}
