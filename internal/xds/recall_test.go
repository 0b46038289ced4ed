package xds

import (
	"slices"
	"testing"
	"time"
)

// recalled is a builder with the last known good: a and b by the wildcard, c and d by
// their names.
func recalled(t *testing.T) (*Builder, *Snapshot) {
	t.Helper()
	b := NewBuilder(TypeOf(ClusterType))
	b.Recall(Update{Type: ClusterType, Origin: "o", Version: "7", Wildcard: true, Received: time.Unix(1, 0),
		Changed: []*Resource{cluster(t, "a", ""), cluster(t, "b", "")}})
	b.Recall(Update{Type: ClusterType, Origin: "o", Version: "7", Received: time.Unix(1, 0),
		Changed: []*Resource{cluster(t, "c", ""), cluster(t, "d", "")}})
	s, _ := b.Snapshot(nil, 1)
	if !s.Stale || s.Len() != 4 || !s.Answered || s.Version != "7" {
		t.Fatalf("recalled: stale %v, %d resources, answered %v, version %q", s.Stale, s.Len(), s.Answered, s.Version)
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

// The last known good is stale until the origin has spoken of all of it, and what
// it says again changes nothing for anybody.
func TestP53_RecalledIsStaleUntilTheOriginSpoke(t *testing.T) {
	b, s := recalled(t)
	all := &Subscription{Wildcard: true, Names: NewNameSet("c", "d")}
	apply := func(u Update, stale bool, changed ...string) {
		t.Helper()
		u.Type, u.Origin, u.Received = ClusterType, "o", time.Unix(2, 0)
		b.Apply(u)
		was := s
		s, _ = b.Snapshot(s, s.StateGen+1)
		if s.Stale != stale {
			t.Errorf("stale is %v, want %v", s.Stale, stale)
		}
		if got := s.Changes(was, all); !slices.Equal(got, changed) {
			t.Errorf("changed %v, want %v", got, changed)
		}
	}
	apply(Update{Wildcard: true, Changed: []*Resource{cluster(t, "a", ""), cluster(t, "b", "2")}}, true, "b")
	apply(Update{Changed: []*Resource{cluster(t, "c", "")}}, true)
	if r, is := s.Look(all, "d"); is != Present || r == nil {
		t.Error("silence has taken away what was held")
	}
	apply(Update{Removed: []string{"d"}}, false, "d")
}

// A wildcard answered by nothing is an answer: what was recalled and is not told to
// be gone stays, but is not stale any more.
func TestP53_RecalledWildcardIsAnsweredAsAWhole(t *testing.T) {
	b, s := recalled(t)
	b.Apply(Update{Type: ClusterType, Origin: "o", Wildcard: true, Removed: []string{"a", "b"}, Received: time.Unix(2, 0)})
	b.Forget("c", "d")
	if s, _ = b.Snapshot(s, 2); s.Stale || s.Len() != 0 || !s.Answered {
		t.Errorf("stale %v, %d resources, answered %v", s.Stale, s.Len(), s.Answered)
	}
}

// What is taken back was never there; what the origin has spoken of since stays.
func TestP53_RecalledIsTakenBack(t *testing.T) {
	b, s := recalled(t)
	b.Apply(Update{Type: ClusterType, Origin: "o", Changed: []*Resource{cluster(t, "c", "2")}, Received: time.Unix(2, 0)})
	b.Recant()
	s, _ = b.Snapshot(s, 2)
	if s.Stale || s.Answered || s.Len() != 1 || s.Held("c") == nil {
		t.Errorf("stale %v, answered %v, %d resources", s.Stale, s.Answered, s.Len())
	}
}

// What nobody asks for any more leaves nothing behind.
func TestRecalledIsForgotten(t *testing.T) {
	b, s := recalled(t)
	b.Forget("c", "d")
	b.EndWildcard(nil)
	if s, _ = b.Snapshot(s, 2); s.Stale || s.Len() != 0 || len(b.recalled) > 0 {
		t.Errorf("stale %v, %d resources, %d marks", s.Stale, s.Len(), len(b.recalled))
	}
}
