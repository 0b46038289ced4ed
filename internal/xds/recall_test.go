package xds

import (
	"slices"
	"testing"
	"time"
)

// stored is a builder with what was stored: a and b by the wildcard, c and d by their names.
func stored(t *testing.T) (*Builder, *Snapshot) {
	t.Helper()
	b := NewBuilder(TypeOf(ClusterType))
	b.Recall(Update{Type: ClusterType, Origin: "o", Version: "7", Wildcard: true, Received: time.Unix(1, 0),
		Changed: []*Resource{cluster(t, "a", ""), cluster(t, "b", "")}})
	b.Recall(Update{Type: ClusterType, Origin: "o", Version: "7", Received: time.Unix(1, 0),
		Changed: []*Resource{cluster(t, "c", ""), cluster(t, "d", "")}})
	s, _ := b.Snapshot(nil, 1)
	if !s.Stale || s.Len() != 4 || !s.Answered || s.Version != "7" {
		t.Fatalf("stale %v, %d resources, answered %v, version %q", s.Stale, s.Len(), s.Answered, s.Version)
	}
	return b, s
}

func cluster(t *testing.T, name, content string) *Resource {
	t.Helper()
	r, err := NewResource(TypeOf(ClusterType), name, anyWire(ClusterType, wire(1, name, 28, content)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The origin's answers replace what was stored name by name, and the snapshot is stale
// until all of it was answered.
func TestP66_StoredIsStaleUntilItIsAnswered(t *testing.T) {
	b, s := stored(t)
	names := NewNameSet("c", "d")
	without, with := &Subscription{Wildcard: true, Names: names}, &Subscription{Wildcard: true, Names: names, HasState: true}
	sees := func(sub *Subscription, name string) Presence {
		_, is := s.Look(sub, name)
		return is
	}
	apply := func(u Update, stale bool) {
		t.Helper()
		u.Type, u.Origin, u.Received = ClusterType, "o", time.Unix(2, 0)
		b.Apply(u)
		s, _ = b.Snapshot(s, s.StateGen+1)
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
		t.Error("the stored answer to the wildcard is for clients without state alone")
	}
	was := s
	apply(Update{Wildcard: true, Changed: []*Resource{cluster(t, "a", "")}}, true)
	if got := s.Changes(was, with); !slices.Equal(got, []string{"a"}) || !s.AnswersWildcard(with) {
		t.Errorf("changed %v, answered %v", got, s.AnswersWildcard(with))
	}
	if sees(with, "a") != Present || sees(with, "b") != Pending || sees(with, "e") != Absent {
		t.Errorf("a client with state sees a %v, b %v, e %v", sees(with, "a"), sees(with, "b"), sees(with, "e"))
	}
	apply(Update{Wildcard: true, Removed: []string{"b"}}, true)
	apply(Update{Changed: []*Resource{cluster(t, "c", "2")}}, true)
	apply(Update{Removed: []string{"d"}}, false)
	for n, want := range map[string]Presence{"a": Present, "b": Absent, "c": Present, "d": Absent} {
		if sees(without, n) != want || sees(with, n) != want {
			t.Errorf("%s: %v, and %v to a client with state, want %v", n, sees(without, n), sees(with, n), want)
		}
	}
}

// What was stored and nobody asks for any more leaves no mark.
func TestP66_StoredIsForgotten(t *testing.T) {
	b, s := stored(t)
	b.ForgetBut(nil, "c", "d")
	b.EndWildcard()
	if s, _ = b.Snapshot(s, 2); s.Stale || s.Len() != 0 {
		t.Errorf("stale %v, %d resources", s.Stale, s.Len())
	}
}
