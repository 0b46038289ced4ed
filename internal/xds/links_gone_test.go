package xds

import "testing"

// An alias whose resource is gone is absent to who asks by it, and not unknown: it was
// told that there is one.
func TestP26_AnAliasWhoseResourceIsGoneIsAbsent(t *testing.T) {
	const typ = widget
	for name, gone := range map[string]Update{
		"removed":      {Removed: []string{"n"}},
		"other alias":  {Changed: []*Resource{goesBy(t, typ, "n", "1", "b")}},
		"no alias any": {Changed: []*Resource{goesBy(t, typ, "n", "1")}},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBuilder(TypeOf(typ))
			asked := NewNameSet("a", "b")
			sub := &Subscription{Names: NewNameSet("a")}
			b.Apply(Update{Changed: []*Resource{goesBy(t, typ, "n", "1", "a")}})
			b.Settle(asked)
			s, _ := b.Snapshot(nil, 1)
			if _, is := s.Look(sub, "a"); is != Elsewhere {
				t.Fatalf("it leads nowhere: %v", is)
			}
			b.Apply(gone)
			b.Settle(asked)
			s, _ = b.Snapshot(s, 2)
			if _, is := s.Look(sub, "a"); is != Absent {
				t.Errorf("it is %v", is)
			}
		})
	}
}
