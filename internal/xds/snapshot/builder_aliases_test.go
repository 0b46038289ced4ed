package snapshot

import (
	"testing"

	"xdsrelay/internal/xds"
)

// If the resource with an alias is deleted or loses the alias, the alias becomes Absent and not
// Pending. The client was told that there is a resource (P26).
func TestP26_AliasOfARemovedResourceIsAbsent(t *testing.T) {
	const typ = widget
	for name, gone := range map[string]Update{
		"removed":      {Removed: []string{"n"}},
		"other alias":  {Changed: []*xds.Resource{resourceWithAliases(t, typ, "n", "1", "b")}},
		"no alias any": {Changed: []*xds.Resource{resourceWithAliases(t, typ, "n", "1")}},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBuilder(xds.TypeOf(typ))
			asked := xds.NewNameSet("a", "b")
			sub := &Subscription{Names: xds.NewNameSet("a")}
			b.Apply(Update{Changed: []*xds.Resource{resourceWithAliases(t, typ, "n", "1", "a")}})
			b.ResolveAliases(asked)
			s, _ := b.Snapshot(nil, 1)
			if _, is := s.Look(sub, "a"); is != UnderOtherName {
				t.Fatalf("the alias is %v, want Elsewhere", is)
			}
			b.Apply(gone)
			b.ResolveAliases(asked)
			s, _ = b.Snapshot(s, 2)
			if _, is := s.Look(sub, "a"); is != Absent {
				t.Errorf("it is %v", is)
			}
		})
	}
}
