package snapshot

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"xdsrelay/internal/xds"
)

// A resource whose TTL is over is served to no client, and is not Absent either. Not even an answer
// to the wildcard that leaves it out makes it Absent (P62).
func TestP62_Expiry(t *testing.T) {
	for _, wild := range []bool{false, true} {
		t.Run(fmt.Sprint("wildcard ", wild), func(t *testing.T) {
			b := NewBuilder(xds.TypeOf(xds.EndpointType))
			sub := namesSub("a", "b", "c")
			if wild {
				sub = wildcardSub()
			}
			b.Apply(Update{Wildcard: wild, Changed: []*xds.Resource{
				timed(t, "a", "", 10*time.Second, noon), timed(t, "b", "", 5*time.Second, noon), newRes(t, xds.EndpointType, "c", ""),
			}})
			s, _ := b.Snapshot(nil, 1)
			if !s.HasTTLs() || b.NextExpiry() != noon.Add(5*time.Second) {
				t.Fatalf("next %v", b.NextExpiry())
			}
			// a heartbeat for b and none for a
			if b.Apply(Update{Wildcard: wild, Changed: []*xds.Resource{s.Resource("b").StartTTL(noon.Add(4 * time.Second))}}) {
				t.Error("a heartbeat is a change")
			}
			if got := b.NextExpiry(); got != noon.Add(9*time.Second) {
				t.Errorf("next %v", got)
			}
			if n := b.Expire(noon.Add(9*time.Second - 1)); n != 0 {
				t.Errorf("%d expired too early", n)
			}
			if n := b.Expire(noon.Add(10 * time.Second)); n != 2 {
				t.Errorf("%d expired", n)
			}
			s, names := b.Snapshot(s, 2)
			if !slices.Equal(names, []string{"a", "b"}) || s.Len() != 1 || s.HasTTLs() || !b.NextExpiry().IsZero() || len(b.expiryQueue.index) != 0 {
				t.Errorf("changed %v, %d left, next %v", names, s.Len(), b.NextExpiry())
			}
			r, is := s.Look(sub, "a")
			if is != Expired || s.Resource("a") != nil || !r.ExpiresBefore(newRes(t, xds.EndpointType, "a", "")) ||
				!r.ExpiresBefore(timed(t, "a", "", 11*time.Second, noon)) || r.ExpiresBefore(timed(t, "a", "", 10*time.Second, noon)) {
				t.Errorf("a is %d", is)
			}
			var lapsed []string
			for n := range s.Part(ScopeOf(wild)).ExpiredNames {
				lapsed = append(lapsed, n)
			}
			if !slices.Equal(lapsed, []string{"a", "b"}) {
				t.Errorf("lapsed %v", lapsed)
			}
			// The origin sends one again and removes the other.
			b.Apply(Update{Wildcard: wild, Changed: []*xds.Resource{timed(t, "a", "", time.Second, noon)}, Removed: []string{"b"}})
			s, names = b.Snapshot(s, 3)
			_, a := s.Look(sub, "a")
			_, bIs := s.Look(sub, "b")
			if a != Present || bIs != Absent || !slices.Equal(names, []string{"a", "b"}) {
				t.Errorf("a %d, b %d, changed %v", a, bIs, names)
			}
			if s.expired != 0 || b.expiredWildcard != 0 {
				t.Errorf("%d %d lapsed", s.expired, b.expiredWildcard)
			}
		})
	}
}

// The number of marks has a limit, because a wildcard may bring new names for ever (P62).
func TestP62_ExpiredMarksAreBounded(t *testing.T) {
	b := NewBuilder(xds.TypeOf(xds.EndpointType))
	for i := range maxExpired + 10 {
		b.Apply(Update{Wildcard: true, Changed: []*xds.Resource{timed(t, fmt.Sprint(i), "", time.Second, noon)}})
		b.Expire(noon.Add(time.Minute))
	}
	if b.entries.Len() != maxExpired || b.expiredWildcard != maxExpired {
		t.Errorf("%d entries, %d lapsed", b.entries.Len(), b.expiredWildcard)
	}
	b.EndWildcard()
	if b.entries.Len() != 0 || b.expiredWildcard != 0 {
		t.Errorf("%d entries, %d lapsed", b.entries.Len(), b.expiredWildcard)
	}
}

// A Builder has exactly one timer for each part with a TTL.
func TestP62_TimersAgainstMap(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	plain := make(map[string]*xds.Resource)
	for _, n := range names {
		plain[n] = newRes(t, xds.EndpointType, n, "")
	}
	rapid.Check(t, func(t *rapid.T) {
		b := NewBuilder(xds.TypeOf(xds.EndpointType))
		now := noon
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "name")
			wild := rapid.Bool().Draw(t, "wild")
			switch rapid.SampledFrom([]string{"put", "plain", "remove", "forget", "end", "pass"}).Draw(t, "what") {
			case "put":
				b.Apply(Update{Wildcard: wild, Changed: []*xds.Resource{plain[name].RenewTTL(time.Duration(rapid.IntRange(1, 9).Draw(t, "ttl"))*time.Second, now)}})
			case "plain":
				b.Apply(Update{Wildcard: wild, Changed: []*xds.Resource{plain[name]}})
			case "remove":
				b.Apply(Update{Wildcard: wild, Removed: []string{name}})
			case "forget":
				b.Forget(nil, name)
			case "end":
				b.EndWildcard()
			case "pass":
				now = now.Add(time.Second)
				b.Expire(now)
			}
			var first time.Time
			n := 0
			for _, name := range names {
				e, _ := b.entries.Get(name)
				for _, r := range []*xds.Resource{e.wildcard, e.named} {
					until, has := r.Expiry()
					if !r.HasBody() || !has {
						continue
					}
					if n++; first.IsZero() || until.Before(first) {
						first = until
					}
				}
			}
			if len(b.expiryQueue.heap) != n || len(b.expiryQueue.index) != n || !b.NextExpiry().Equal(first) {
				t.Fatalf("%d timers and %d index entries for %d; next %v, want %v", len(b.expiryQueue.heap), len(b.expiryQueue.index), n, b.NextExpiry(), first)
			}
		}
	})
}

// Resources that must not be cached are dropped with the stream that brought them (P63).
func TestP63_EndOfTheStream(t *testing.T) {
	never := func(name string) *xds.Resource {
		return uncacheable(t, xds.EndpointType, name)
	}
	b := NewBuilder(xds.TypeOf(xds.EndpointType))
	b.Apply(Update{Version: "1", Changed: []*xds.Resource{never("a"), newRes(t, xds.EndpointType, "b", "")}})
	b.Apply(Update{Version: "1", Wildcard: true, Changed: []*xds.Resource{never("w"), newRes(t, xds.EndpointType, "x", "")}})
	s, _ := b.Snapshot(nil, 1)
	if !slices.Equal(b.Uncacheable(ByName), []string{"a"}) || !slices.Equal(b.Uncacheable(ByWildcard), []string{"w"}) || s.Part(ByWildcard).Uncacheable() != 1 || s.Part(ByName).Uncacheable() != 1 {
		t.Fatalf("%v %v", b.Uncacheable(ByName), b.Uncacheable(ByWildcard))
	}
	if !b.Apply(Update{Ended: true}) || !slices.Equal(b.Uncacheable(ByWildcard), []string{"w"}) || len(b.Uncacheable(ByName)) > 0 {
		t.Error("wrong resources dropped at the end of the stream of names")
	}
	if !b.Apply(Update{Ended: true, Wildcard: true}) {
		t.Error("nothing dropped at the end of the wildcard's stream")
	}
	s, _ = b.Snapshot(s, 2)
	sub := &Subscription{Wildcard: true, Names: xds.NewNameSet("a", "b")}
	for name, want := range map[string]Presence{"a": Expired, "b": Present, "w": Expired, "x": Present, "y": Absent} {
		if _, is := s.Look(sub, name); is != want {
			t.Errorf("%s is %d, want %d", name, is, want)
		}
	}
	if s.Version != "1" || s.Part(ByWildcard).Uncacheable()+s.Part(ByName).Uncacheable() != 0 || b.Apply(Update{Ended: true}) || b.Apply(Update{Ended: true, Wildcard: true}) {
		t.Errorf("version %s", s.Version)
	}
}
