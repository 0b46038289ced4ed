package snapshot

import (
	"slices"
	"testing"
	"time"

	"xdsrelay/internal/xds"
)

// builderWithStored returns a builder with stored resources: a and b for the wildcard, c and d by
// name.
func builderWithStored(t *testing.T) (*Builder, *Snapshot) {
	t.Helper()
	b := NewBuilder(xds.TypeOf(xds.ClusterType))
	b.ApplyStored(Update{Type: xds.ClusterType, Origin: "o", Version: "7", Wildcard: true, Received: time.Unix(1, 0),
		Changed: []*xds.Resource{newRes(t, xds.ClusterType, "a", ""), newRes(t, xds.ClusterType, "b", "")}})
	b.ApplyStored(Update{Type: xds.ClusterType, Origin: "o", Version: "7", Received: time.Unix(1, 0),
		Changed: []*xds.Resource{newRes(t, xds.ClusterType, "c", ""), newRes(t, xds.ClusterType, "d", "")}})
	s, _ := b.Snapshot(nil, 1)
	if !s.Stale || s.Len() != 4 || !s.Answered || s.Version != "7" {
		t.Fatalf("stale %v, %d resources, answered %v, version %q", s.Stale, s.Len(), s.Answered, s.Version)
	}
	return b, s
}

// The origin's answers replace stored resources name by name. The snapshot is stale until the
// origin has answered for all of them (P66).
func TestP66_StoredIsStaleUntilItIsAnswered(t *testing.T) {
	b, s := builderWithStored(t)
	names := xds.NewNameSet("c", "d")
	without, with := &Subscription{Wildcard: true, Names: names}, &Subscription{Wildcard: true, Names: names, Resumes: true}
	sees := func(sub *Subscription, name string) Presence {
		_, is := s.Look(sub, name)
		return is
	}
	apply := func(u Update, stale bool) {
		t.Helper()
		u.Type, u.Origin, u.Received = xds.ClusterType, "o", time.Unix(2, 0)
		b.Apply(u)
		s, _ = b.Snapshot(s, s.StateNumber+1)
		if s.Stale != stale {
			t.Errorf("stale is %v, want %v", s.Stale, stale)
		}
	}
	all := []string{"a", "b", "c", "d"}
	for _, n := range all {
		if sees(without, n) != Present || sees(with, n) != Pending {
			t.Errorf("%s: %v, and %v to a client with state", n, sees(without, n), sees(with, n))
		}
	}
	if !s.AnswersWildcard(without) || s.AnswersWildcard(with) {
		t.Error("a stored answer to the wildcard for a client with state, or none for one without")
	}
	was := s
	apply(Update{Wildcard: true, Changed: []*xds.Resource{newRes(t, xds.ClusterType, "a", "")}}, true)
	if got := s.Changes(was, with); !slices.Equal(got, []string{"a"}) || !s.AnswersWildcard(with) {
		t.Errorf("changed %v, answered %v", got, s.AnswersWildcard(with))
	}
	if sees(with, "a") != Present || sees(with, "b") != Pending || sees(with, "e") != Absent {
		t.Errorf("a client with state sees a %v, b %v, e %v", sees(with, "a"), sees(with, "b"), sees(with, "e"))
	}
	apply(Update{Wildcard: true, Removed: []string{"b"}}, true)
	apply(Update{Changed: []*xds.Resource{newRes(t, xds.ClusterType, "c", "2")}}, true)
	apply(Update{Removed: []string{"d"}}, false)
	for n, want := range map[string]Presence{"a": Present, "b": Absent, "c": Present, "d": Absent} {
		if sees(without, n) != want || sees(with, n) != want {
			t.Errorf("%s: %v, and %v to a client with state, want %v", n, sees(without, n), sees(with, n), want)
		}
	}
}

// A stored resource that no client subscribes to leaves no mark (P66).
func TestP66_StoredIsForgotten(t *testing.T) {
	b, s := builderWithStored(t)
	b.Forget(nil, "c", "d")
	b.EndWildcard()
	if s, _ = b.Snapshot(s, 2); s.Stale || s.Len() != 0 {
		t.Errorf("stale %v, %d resources", s.Stale, s.Len())
	}
}
