package snapshot

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"pgregory.net/rapid"

	"xdsrelay/internal/xds"
)

// model computes the content of a Snapshot with plain maps and linear searches.
type model struct {
	wild, named     map[string]modelResource
	withoutResource map[string]string // of a name without a resource: "removed", or the id of the origin's answer that it has none
	answered        bool

	maybeNotRequested, lostAliases map[string]bool
}

// modelResource is a resource and its aliases.
type modelResource struct {
	r       *xds.Resource
	aliases []string
}

func (g modelResource) requestedByAlias(names *xds.NameSet) bool {
	return slices.ContainsFunc(g.aliases, names.Has)
}

func (g modelResource) same(o modelResource) bool {
	return (g.r == nil) == (o.r == nil) && (g.r == nil || g.r.Same(o.r)) && slices.Equal(g.aliases, o.aliases)
}

func newModel() *model {
	return &model{wild: map[string]modelResource{}, named: map[string]modelResource{}, withoutResource: map[string]string{}, maybeNotRequested: map[string]bool{}, lostAliases: map[string]bool{}}
}

func (m *model) clone() *model {
	return &model{wild: maps.Clone(m.wild), named: maps.Clone(m.named), withoutResource: maps.Clone(m.withoutResource), answered: m.answered}
}

func (m *model) isAlias(alias string) bool {
	for _, g := range m.named {
		if slices.Contains(g.aliases, alias) {
			return true
		}
	}
	return false
}

// put sets the named resource of this name and notes the aliases that it lost.
func (m *model) put(name string, g modelResource) {
	for _, h := range m.named[name].aliases {
		if !slices.Contains(g.aliases, h) {
			m.lostAliases[h] = true
		}
	}
	for _, h := range g.aliases {
		if !slices.Contains(m.named[name].aliases, h) {
			delete(m.withoutResource, h)
		}
	}
	if m.named[name] = g; g.r == nil {
		delete(m.named, name)
	}
}

func (m *model) apply(u Update) {
	if u.Wildcard {
		m.answered = true
		for _, n := range u.Removed {
			delete(m.wild, n)
		}
		for _, r := range u.Changed {
			m.wild[r.Name] = modelResource{r, r.AliasesAndGlob()}
		}
		return
	}
	for _, k := range u.Removed {
		_, own := m.named[k]
		for n, g := range m.named {
			if !own && slices.Contains(g.aliases, k) {
				m.put(n, modelResource{g.r.WithoutAlias(k), slices.DeleteFunc(slices.Clone(g.aliases), func(h string) bool { return h == k })})
				m.maybeNotRequested[n] = true
			}
		}
		m.put(k, modelResource{})
		m.withoutResource[k], m.maybeNotRequested[k] = "removed", true
	}
	for _, r := range u.Changed {
		delete(m.withoutResource, r.Name)
		m.put(r.Name, modelResource{r, r.AliasesAndGlob()})
	}
	for _, w := range u.Unresolved {
		for _, k := range w.Names {
			if _, has := m.named[k]; !has && !m.isAlias(k) {
				m.withoutResource[k] = fmt.Sprint(w.Resource.UnresolvedID())
				delete(m.lostAliases, k) // ResolveAliases must not mark it as removed
			}
		}
	}
}

func (m *model) settle(asked *xds.NameSet) {
	for k := range m.maybeNotRequested {
		if !asked.Has(k) && !m.named[k].requestedByAlias(asked) {
			m.put(k, modelResource{})
			delete(m.withoutResource, k)
		}
	}
	for h := range m.lostAliases {
		if _, has := m.named[h]; asked.Has(h) && !has && !m.isAlias(h) {
			m.withoutResource[h] = "removed"
		}
	}
	clear(m.maybeNotRequested)
	clear(m.lostAliases)
}

func (m *model) forget(left *xds.NameSet, names []string) {
	for _, k := range names {
		drop := []string{k}
		for n, g := range m.named {
			if slices.Contains(g.aliases, k) {
				drop = append(drop, n)
			}
		}
		for _, n := range drop {
			if g, has := m.named[n]; !has || !left.Has(n) && !g.requestedByAlias(left) {
				m.put(n, modelResource{})
				delete(m.withoutResource, n)
			}
		}
	}
	clear(m.maybeNotRequested)
	clear(m.lostAliases)
}

// held returns what Snapshot.Held must return.
func (m *model) held(name string) *xds.Resource {
	if g, has := m.wild[name]; has {
		return g.r
	}
	return m.named[name].r
}

func (m *model) visible(sub *Subscription, name string) *xds.Resource {
	w, hasWild := m.wild[name]
	d, hasNamed := m.named[name]
	listed := sub.Names.Has(name)
	hasWild = hasWild && (sub.Wildcard || listed || w.requestedByAlias(sub.Names))
	hasNamed = hasNamed && (listed || d.requestedByAlias(sub.Names))
	switch {
	case hasWild && (sub.Wildcard || !hasNamed):
		return w.r
	case hasNamed:
		return d.r
	}
	return nil
}

// namesWithAlias returns the sorted names of the resources with this alias.
func (m *model) namesWithAlias(alias string) []string {
	names := map[string]bool{}
	for _, part := range []map[string]modelResource{m.wild, m.named} {
		for n, g := range part {
			if slices.Contains(g.aliases, alias) {
				names[n] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func (m *model) look(sub *Subscription, name string) (*xds.Resource, Presence) {
	listed := sub.Names.Has(name)
	if r := m.visible(sub, name); r != nil {
		return r, Present
	}
	switch said := m.withoutResource[name]; {
	case !listed && !sub.Wildcard:
		return nil, Pending
	case slices.ContainsFunc(m.namesWithAlias(name), func(n string) bool { return m.visible(sub, n) != nil }):
		return nil, UnderOtherName
	case listed && said == "removed":
		return nil, Absent
	case listed && said != "":
		return nil, Unresolvable
	case sub.Wildcard && !listed && m.answered:
		return nil, Absent
	}
	return nil, Pending
}

// differs reports whether a client can see a difference in name between m and o.
func (m *model) differs(o *model, name string) bool {
	return !m.wild[name].same(o.wild[name]) || !m.named[name].same(o.named[name]) || m.withoutResource[name] != o.withoutResource[name]
}

// check compares what s says of all names with the model.
func (m *model) check(t *rapid.T, s *Snapshot, names []string, sub *Subscription) {
	is := func(what string, got, want any) {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("generation %d: %s is %v, want %v", s.Gen, what, got, want)
		}
	}
	var bytes int64
	var sum xds.Version
	var held, covered, wild, named []string
	stated, unresolved := 0, 0
	for _, n := range names {
		want, presence := m.look(sub, n)
		got, now := s.Look(sub, n)
		is(n, now, presence)
		if now == Present {
			is(n, got.Same(want), true)
			covered = append(covered, n)
		} else if now == Unresolvable {
			is(n, got.UnresolvedID(), m.withoutResource[n])
		}
		w, inWild := m.wild[n]
		d, inNamed := m.named[n]
		if inWild {
			wild = append(wild, n)
		}
		if inNamed {
			named = append(named, n)
		}
		r := m.held(n)
		if r != nil {
			held = append(held, n)
			bytes += r.Size()
			sum = sum.Add(r.Member)
		}
		if m.withoutResource[n] == "removed" {
			stated++
		} else if m.withoutResource[n] != "" {
			unresolved++
		}
		is("what is held of "+n, s.Resource(n).Same(r), true)
		is("what is known of "+n, s.Known(n), r != nil || m.withoutResource[n] != "")
		linked := m.namesWithAlias(n)
		is("what goes by "+n, s.NamesByAlias(n), linked)
		if r != nil {
			linked = append(linked, n)
		}
		if sole, one := s.OnlyNameFor(n); one != (len(linked) == 1) || one && sole != linked[0] {
			t.Fatalf("generation %d: the sole one of %q is %q %v, of %v", s.Gen, n, sole, one, linked)
		}
		part := s.Part(ByName)
		answered := inNamed || m.isAlias(n)
		is("an answer to "+n, part.Answers(n), answered)
		is("an answer owed to "+n, part.Unanswered(n), !answered && m.withoutResource[n] == "")
		is("the request for "+n, part.Requested(n, sub.Names), sub.Names.Has(n) || d.requestedByAlias(sub.Names))
		share := d.r
		if !inNamed {
			share = w.r
		}
		is("what shares memory with "+n, part.SharedWith(n).Same(share), true)
	}
	all := func(yield func(func(*xds.Resource) bool)) (names []string) {
		yield(func(r *xds.Resource) bool { names = append(names, r.Name); return true })
		return names
	}
	is("all", all(s.Resources), held)
	is("the wildcard's part", all(s.Part(ByWildcard).Resources), wild)
	is("the names' part", all(s.Part(ByName).Resources), named)
	is("what is covered", all(func(yield func(*xds.Resource) bool) { s.Covered(sub, yield) }), covered)
	is("the account", []any{s.Len(), s.Bytes, s.AbsentNames(), s.unresolved, s.Answered, s.Version},
		[]any{len(held), bytes, stated, unresolved, m.answered, sum.String()})
}

// changes compares Changes between two snapshots with their models.
func (m *model) changes(t *rapid.T, from, to *Snapshot, is *model, names []string, sub *Subscription) {
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
		differ := was != now || now == Present && !a.Same(b) || now == Unresolvable && m.withoutResource[n] != is.withoutResource[n]
		if differ && !slices.Contains(got, n) {
			t.Fatalf("Changes from %d to %d leaves out %q: %v %d, then %v %d", from.Gen, to.Gen, n, a, was, b, now)
		}
		// A client that had the resource by an alias is told of its removal, once the origin has
		// answered for one of its aliases.
		if was == Present && now == Pending {
			had, _ := from.Look(sub, n)
			want := !sub.Wildcard && !sub.Names.Has(n) && slices.ContainsFunc(had.AliasesAndGlob(), func(h string) bool {
				_, of := is.look(sub, h)
				return sub.Names.Has(h) && of != Pending
			})
			if gone := to.IsRemoved(sub, had); gone != want {
				t.Fatalf("Gone of %q with %v: %v, want %v", n, slices.Collect(sub.Names.All()), gone, want)
			}
		}
	}
}

// A snapshot says what plain maps say, whatever was applied in whatever order, and never changes.
// The test covers names, aliases and globs of both parts. The version depends on the content alone
// (P61).
func TestP26_P50_P61_Model(t *testing.T) {
	resources := []string{"n0", "n1", "n2", "n3"}
	for i := range 3 {
		resources = append(resources, fmt.Sprint("xdstp://o/T/c/", i), fmt.Sprint("xdstp://o/T/d/", i, "?p=1"))
	}
	aliases := []string{"a0", "a1", "a2", "n0", "n1", "xdstp://o/T/c/*"} // some of them are names and globs too
	keys := slices.Concat(resources, aliases[:3], []string{"xdstp://o/T/c/*", "xdstp://o/T/d/*?p=1", "other"})
	slices.Sort(keys)
	rapid.Check(t, func(rt *rapid.T) {
		some := rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 0, 6, rapid.ID[string])
		which := rapid.SliceOfNDistinct(rapid.SampledFrom(resources), 0, 5, rapid.ID[string])
		goes := rapid.SliceOfNDistinct(rapid.SampledFrom(aliases), 0, 3, rapid.ID[string])
		subs := rapid.Custom(func(rt *rapid.T) *Subscription {
			return &Subscription{Wildcard: rapid.Bool().Draw(rt, "wildcard"), Names: xds.NewNameSet(some.Draw(rt, "names")...)}
		})
		type point struct {
			s *Snapshot
			m *model
		}
		var points []point
		for range rapid.IntRange(1, 2).Draw(rt, "lineages") {
			b, m := NewBuilder(xds.TypeOf(widget)), newModel()
			asked := xds.NewNameSet(some.Draw(rt, "asked")...)
			s, _ := b.Snapshot(nil, 0)
			prev := m.clone()
			for step := range rapid.IntRange(1, 15).Draw(rt, "steps") {
				for range rapid.IntRange(0, 2).Draw(rt, "updates") {
					switch rapid.IntRange(0, 9).Draw(rt, "what") {
					case 0, 1:
						left := xds.NewNameSet(some.Draw(rt, "asked")...)
						_, gone := namesDiff(asked, left)
						b.Forget(left, gone...)
						m.forget(left, gone)
						asked = left
					case 2:
						b.EndWildcard()
						m.wild, m.answered = map[string]modelResource{}, false
					default:
						u := m.update(t, rt, asked, which, some, goes)
						before := m.clone()
						m.apply(u)
						seen := before.answered != m.answered || slices.ContainsFunc(keys, func(n string) bool { return m.differs(before, n) })
						// Apply does not report an alias that is lost because its name is removed
						// again. Snapshot does.
						again := slices.ContainsFunc(u.Removed, func(n string) bool { return before.withoutResource[n] == "removed" })
						if got := b.Apply(u); got != seen && (got || !again) {
							rt.Fatalf("Apply reports %v", got)
						}
						b.ResolveAliases(asked)
						m.settle(asked)
					}
				}
				next, changed := b.Snapshot(s, uint64(step))
				if next != s && (next.Gen != s.Gen+1 || next.Lineage != s.Lineage || next.StateNumber != uint64(step) || next.Retired < s.Retired) {
					rt.Fatalf("%+v after %+v", next, s)
				}
				// Snapshot must return exactly the names that differ.
				var want []string
				for _, n := range keys {
					if m.differs(prev, n) || len(m.namesWithAlias(n)) > 0 != (len(prev.namesWithAlias(n)) > 0) {
						want = append(want, n)
					}
				}
				if !slices.Equal(changed, want) {
					rt.Fatalf("Snapshot reports %v, want %v", changed, want)
				}
				s, prev = next, m.clone()
				points = append(points, point{s, prev})
			}
			// After all names are dropped, nothing is left.
			b.Forget(nil, slices.Collect(asked.All())...)
			b.ResolveAliases(nil)
			for n := range m.wild {
				b.Apply(Update{Wildcard: true, Removed: []string{n}})
			}
			if s, _ = b.Snapshot(s, 99); b.entries.Len() > 0 || s.HasAliases() {
				rt.Fatalf("%d entries are left, aliases: %v", b.entries.Len(), s.HasAliases())
			}
		}
		for _, p := range points {
			p.m.check(rt, p.s, keys, subs.Draw(rt, "sub"))
		}
		for range 15 {
			from, to := rapid.SampledFrom(points).Draw(rt, "from"), rapid.SampledFrom(points).Draw(rt, "to")
			from.m.changes(rt, from.s, to.s, to.m, keys, subs.Draw(rt, "sub"))
		}
	})
}

// update draws what an origin may say if asked has the requested names.
func (m *model) update(t *testing.T, rt *rapid.T, asked *xds.NameSet, which, some, goes *rapid.Generator[[]string]) Update {
	u := Update{Wildcard: rapid.Bool().Draw(rt, "of the wildcard")}
	taken := map[string]bool{}
	for _, n := range which.Draw(rt, "changed") {
		taken[n] = true
		r := resourceWithAliases(t, widget, n, rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "without OriginVersions: not the content's version"), goes.Draw(rt, "aliases")...)
		if rapid.Bool().Draw(rt, "a version of the origin's") {
			twin := *r
			twin.OriginVersion = "7"
			r = &twin
		}
		if u.Wildcard || r.RequestedBy(asked) {
			u.Changed = append(u.Changed, r)
		}
	}
	for _, n := range some.Draw(rt, "removed") {
		if !taken[n] && (u.Wildcard || asked.Has(n) || m.named[n].requestedByAlias(asked)) {
			u.Removed = append(u.Removed, n)
		}
	}
	if names := goes.Draw(rt, "unresolved"); !u.Wildcard && len(names) > 0 {
		if w, ok := parsedResource(t, widget, &discoveryv3.Resource{Name: "x", Aliases: names}).TakeUnresolved(asked); ok {
			u.Unresolved = append(u.Unresolved, w)
		}
	}
	return u
}
