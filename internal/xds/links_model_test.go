package xds

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"
)

// cutOf makes what an incremental origin sends of a type, as it is cut.
func cutOf(t testing.TB, typ TypeURL, r *discoveryv3.Resource) *Raw {
	t.Helper()
	wire, err := proto.Marshal(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(typ), Nonce: "n", Resources: []*discoveryv3.Resource{r}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseResponse(Delta, wire)
	if err != nil {
		t.Fatal(err)
	}
	return &got.Resources[0]
}

// goesBy makes a resource with aliases.
func goesBy(t testing.TB, typ TypeURL, name, content string, aliases ...string) *Resource {
	t.Helper()
	body := &anypb.Any{TypeUrl: string(typ), Value: wire(1, name, 2, content)}
	return cutOf(t, typ, &discoveryv3.Resource{Name: name, Aliases: aliases, Resource: body}).Take(TypeOf(typ), nil)
}

// handleModel is what a Snapshot should be where resources go by more than
// their names, as plain maps that are searched from end to end.
type handleModel struct {
	wild, named map[string]going
	said        map[string]string // of what is not there: "gone", "guessed" or a word
	answered    bool

	unsettled, unlinked map[string]bool
}

// going is a resource and what it goes by.
type going struct {
	r  *Resource
	by []string
}

func (m *handleModel) clone() *handleModel {
	return &handleModel{wild: maps.Clone(m.wild), named: maps.Clone(m.named), said: maps.Clone(m.said), answered: m.answered}
}

func (g going) handled(names *NameSet) bool { return slices.ContainsFunc(g.by, names.Has) }

func (m *handleModel) leads(handle string) bool {
	for _, g := range m.named {
		if slices.Contains(g.by, handle) {
			return true
		}
	}
	return false
}

// put and drop change what came for a name, and note what it goes by no more.
func (m *handleModel) put(name string, g going) {
	for _, h := range m.named[name].by {
		if !slices.Contains(g.by, h) {
			m.unlinked[h] = true
		}
	}
	for _, h := range g.by {
		if !slices.Contains(m.named[name].by, h) {
			delete(m.said, h)
		}
	}
	if m.named[name] = g; g.r == nil {
		delete(m.named, name)
	}
}

func (m *handleModel) apply(u Update) {
	m.answered = m.answered || u.Wildcard
	if u.Wildcard {
		for _, n := range u.Removed {
			delete(m.wild, n)
		}
		for _, r := range u.Changed {
			m.wild[r.Name] = going{r, r.Handles()}
		}
		return
	}
	for _, k := range u.Removed {
		_, own := m.named[k]
		for n, g := range m.named {
			if !own && slices.Contains(g.by, k) {
				m.put(n, going{g.r, slices.DeleteFunc(slices.Clone(g.by), func(h string) bool { return h == k })})
				m.unsettled[n] = true
			}
		}
		m.put(k, going{})
		m.said[k], m.unsettled[k] = "gone", true
	}
	for _, r := range u.Changed {
		delete(m.said, r.Name)
		m.put(r.Name, going{r, r.Handles()})
	}
	for _, w := range u.Unresolved {
		for _, k := range w.Names {
			if _, has := m.named[k]; !has && !m.leads(k) {
				m.said[k] = fmt.Sprint(w.Resource.Word())
				delete(m.unlinked, k) // that it leads nowhere is said already
			}
		}
	}
}

func (m *handleModel) settle(asked *NameSet) {
	for k := range m.unsettled {
		if !asked.Has(k) && !m.named[k].handled(asked) {
			m.put(k, going{})
			delete(m.said, k)
		}
	}
	for h := range m.unlinked {
		if _, has := m.named[h]; asked.Has(h) && !has && !m.leads(h) {
			m.said[h] = "gone"
		}
	}
	clear(m.unsettled)
	clear(m.unlinked)
}

func (m *handleModel) forget(left *NameSet, names []string) {
	for _, k := range names {
		drop := []string{k}
		for n, g := range m.named {
			if slices.Contains(g.by, k) {
				drop = append(drop, n)
			}
		}
		for _, n := range drop {
			if g, has := m.named[n]; has && (left.Has(n) || g.handled(left)) {
				continue
			}
			m.put(n, going{})
			delete(m.said, n)
		}
	}
	clear(m.unsettled)
	clear(m.unlinked)
}

func (m *handleModel) visible(sub *Subscription, name string) *Resource {
	w, hasWild := m.wild[name]
	d, hasNamed := m.named[name]
	listed := sub.Names.Has(name)
	hasWild = hasWild && (sub.Wildcard || listed || w.handled(sub.Names))
	hasNamed = hasNamed && (listed || d.handled(sub.Names))
	switch {
	case hasWild && (sub.Wildcard || !hasNamed):
		return w.r
	case hasNamed:
		return d.r
	}
	return nil
}

// linked are the names of all that goes by a handle.
func (m *handleModel) linked(handle string) []string {
	var names []string
	for _, part := range []map[string]going{m.wild, m.named} {
		for n, g := range part {
			if slices.Contains(g.by, handle) {
				names = append(names, n)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (m *handleModel) look(sub *Subscription, name string) (*Resource, Presence) {
	listed := sub.Names.Has(name)
	if r := m.visible(sub, name); r != nil {
		return r, Present
	}
	if !listed && !sub.Wildcard {
		return nil, Pending
	}
	if slices.ContainsFunc(m.linked(name), func(n string) bool { return m.visible(sub, n) != nil }) {
		return nil, Elsewhere
	}
	switch said := m.said[name]; {
	case listed && (said == "gone" || said == "guessed"):
		return nil, Absent
	case listed && said != "":
		return nil, Unresolvable
	case sub.Wildcard && !listed && m.answered:
		return nil, Absent
	}
	return nil, Pending
}

// check holds what s says of all names against the model.
func (m *handleModel) check(t *rapid.T, s *Snapshot, names []string, sub *Subscription) {
	var covered []string
	for _, n := range names {
		want, wantIs := m.look(sub, n)
		got, is := s.Look(sub, n)
		if is != wantIs || is == Present && !got.Same(want) || is == Unresolvable && fmt.Sprint(got.Word()) != m.said[n] {
			t.Fatalf("gen %d: Look(%q) is %v %d, want %v %d", s.Gen, n, got, is, want, wantIs)
		}
		if is == Present {
			covered = append(covered, n)
		}
		if got, want := s.Linked(n), m.linked(n); !slices.Equal(got, want) {
			t.Fatalf("gen %d: %q leads to %v, want %v", s.Gen, n, got, want)
		}
		all := m.linked(n)
		if m.wild[n].r != nil || m.named[n].r != nil {
			all = append(all, n)
		}
		sole, one := s.Sole(n)
		if one != (len(all) == 1) || one && sole != all[0] {
			t.Fatalf("gen %d: the sole one of %q is %q %v, of %v", s.Gen, n, sole, one, all)
		}
		_, has := m.named[n]
		part := s.Part(false)
		if got := part.Answers(n); got != (has || m.leads(n)) {
			t.Fatalf("gen %d: %q is answered: %v", s.Gen, n, got)
		}
		if got := part.Owed(n); got != (!has && !m.leads(n) && m.said[n] == "") {
			t.Fatalf("gen %d: an answer to %q is owed: %v", s.Gen, n, got)
		}
		if got := part.Asked(n, sub.Names); got != (sub.Names.Has(n) || m.named[n].handled(sub.Names)) {
			t.Fatalf("gen %d: %q is asked for: %v", s.Gen, n, got)
		}
	}
	slices.Sort(covered)
	var got []string
	s.Covered(sub, func(r *Resource) bool { got = append(got, r.Name); return true })
	if !slices.Equal(got, covered) {
		t.Fatalf("gen %d: covered are %v, want %v", s.Gen, got, covered)
	}
}

// changes holds what lies between two snapshots against the models.
func (m *handleModel) changes(t *rapid.T, from, to *Snapshot, is *handleModel, names []string, sub *Subscription) {
	got := to.Changes(from, sub)
	if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Fatalf("Changes is not sorted or not unique: %v", got)
	}
	for _, n := range names {
		a, was := m.look(sub, n)
		b, now := is.look(sub, n)
		if was != Present && now != Present && !sub.Names.Has(n) {
			continue
		}
		differ := was != now || now == Present && !a.Same(b) || now == Unresolvable && m.said[n] != is.said[n]
		if differ && !slices.Contains(got, n) {
			t.Fatalf("Changes from %d to %d leaves out %q: %v %d, then %v %d", from.Gen, to.Gen, n, a, was, b, now)
		}
		// Who had it is told that it went, once anything is known of what it asked for.
		if was == Present && now == Pending && from != nil {
			had, _ := from.Look(sub, n)
			want := false
			for _, h := range had.Handles() {
				if !sub.Names.Has(h) {
					continue
				}
				if _, of := is.look(sub, h); of != Pending {
					want = true
				}
			}
			if sub.Wildcard || sub.Names.Has(n) {
				want = false
			}
			if gone := to.Gone(sub, had); gone != want {
				t.Fatalf("%q is gone to %v: %v, want %v", n, slices.Collect(sub.Names.All()), gone, want)
			}
		}
	}
}

// Names, aliases and globs lead to what they should, whatever is applied in
// whatever order, and for good.
func TestP26_HandlesAgainstMaps(t *testing.T) {
	var resources []string
	for i := range 5 {
		resources = append(resources, fmt.Sprint("n", i))
	}
	for i := range 4 {
		resources = append(resources, fmt.Sprint("xdstp://o/T/c/", i), fmt.Sprint("xdstp://o/T/d/", i, "?p=1"))
	}
	aliases := []string{"a0", "a1", "a2", "a3", "n0", "n1", "xdstp://o/T/c/*"} // some are names and globs as well
	keys := slices.Concat(resources, aliases[:4], []string{"xdstp://o/T/c/*", "xdstp://o/T/d/*?p=1", "other"})
	slices.Sort(keys)
	keys = slices.Compact(keys)
	rapid.Check(t, func(rt *rapid.T) {
		some := rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 0, 6, rapid.ID[string])
		which := rapid.SliceOfNDistinct(rapid.SampledFrom(resources), 0, 5, rapid.ID[string])
		goes := rapid.SliceOfNDistinct(rapid.SampledFrom(aliases), 0, 3, rapid.ID[string])
		subs := rapid.Custom(func(rt *rapid.T) *Subscription {
			return &Subscription{Wildcard: rapid.Bool().Draw(rt, "wildcard"), Names: NewNameSet(some.Draw(rt, "names")...)}
		})
		b := NewBuilder(TypeOf(widget))
		m := &handleModel{wild: map[string]going{}, named: map[string]going{}, said: map[string]string{}, unsettled: map[string]bool{}, unlinked: map[string]bool{}}
		type point struct {
			s *Snapshot
			m *handleModel
		}
		history := []point{{nil, m.clone()}}
		asked := NewNameSet(some.Draw(rt, "asked")...)
		var s *Snapshot
		for step := range rapid.IntRange(1, 15).Draw(rt, "steps") {
			for range rapid.IntRange(0, 2).Draw(rt, "updates") {
				if rapid.IntRange(0, 3).Draw(rt, "what") == 0 {
					left := NewNameSet(some.Draw(rt, "asked")...)
					var gone []string
					for n, added := range asked.Diff(left) {
						if !added {
							gone = append(gone, n)
						}
					}
					b.ForgetBut(left, gone...)
					m.forget(left, gone)
					asked = left
					continue
				}
				u := Update{Wildcard: rapid.Bool().Draw(rt, "of the wildcard")}
				taken := map[string]bool{}
				for _, n := range which.Draw(rt, "changed") {
					taken[n] = true
					r := goesBy(t, widget, n, rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "content"), goes.Draw(rt, "aliases")...)
					if u.Wildcard || r.AskedBy(asked) {
						u.Changed = append(u.Changed, r)
					}
				}
				for _, n := range some.Draw(rt, "removed") {
					if !taken[n] && (u.Wildcard || asked.Has(n) || m.named[n].handled(asked)) {
						u.Removed = append(u.Removed, n)
					}
				}
				if names := goes.Draw(rt, "unresolved"); !u.Wildcard && len(names) > 0 {
					if w, ok := cutOf(t, widget, &discoveryv3.Resource{Name: "x", Aliases: names}).TakeUnresolved(asked); ok {
						u.Unresolved = append(u.Unresolved, w)
					}
				}
				b.Apply(u)
				m.apply(u)
				b.Settle(asked)
				m.settle(asked)
			}
			s, _ = b.Snapshot(s, uint64(step))
			history = append(history, point{s, m.clone()})
		}
		for _, p := range history[1:] {
			p.m.check(rt, p.s, keys, subs.Draw(rt, "sub"))
		}
		for range 15 {
			from, to := rapid.SampledFrom(history).Draw(rt, "from"), rapid.SampledFrom(history[1:]).Draw(rt, "to")
			from.m.changes(rt, from.s, to.s, to.m, keys, subs.Draw(rt, "sub"))
		}
		// Without what is asked for nothing is left behind.
		b.ForgetBut(nil, slices.Collect(asked.All())...)
		b.Settle(nil)
		for _, g := range m.wild {
			b.Apply(Update{Wildcard: true, Removed: []string{g.r.Name}})
		}
		if s, _ = b.Snapshot(s, 99); b.entries.Len() > 0 || s.AnyHandles() {
			rt.Fatalf("%d entries are left, handles: %v", b.entries.Len(), s.AnyHandles())
		}
	})
}
