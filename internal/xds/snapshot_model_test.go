package xds

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"pgregory.net/rapid"
)

// model is what a Snapshot should be, as plain maps that are searched from end to end.
type model struct {
	wild, named map[string]going
	said        map[string]string // of a name without a resource: "gone", or the origin's word on an alias
	answered    bool

	unsettled, unlinked map[string]bool
}

// going is a resource and the handles by which it goes.
type going struct {
	r  *Resource
	by []string
}

func (g going) handled(names *NameSet) bool { return slices.ContainsFunc(g.by, names.Has) }

func (g going) same(o going) bool {
	return (g.r == nil) == (o.r == nil) && (g.r == nil || g.r.Same(o.r)) && slices.Equal(g.by, o.by)
}

func newModel() *model {
	return &model{wild: map[string]going{}, named: map[string]going{}, said: map[string]string{}, unsettled: map[string]bool{}, unlinked: map[string]bool{}}
}

func (m *model) clone() *model {
	return &model{wild: maps.Clone(m.wild), named: maps.Clone(m.named), said: maps.Clone(m.said), answered: m.answered}
}

func (m *model) leads(handle string) bool {
	for _, g := range m.named {
		if slices.Contains(g.by, handle) {
			return true
		}
	}
	return false
}

// put changes what came for a name, and notes the handles that it lost.
func (m *model) put(name string, g going) {
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

func (m *model) apply(u Update) {
	if u.Wildcard {
		m.answered = true
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
				m.put(n, going{g.r.without(k), slices.DeleteFunc(slices.Clone(g.by), func(h string) bool { return h == k })})
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

func (m *model) settle(asked *NameSet) {
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

func (m *model) forget(left *NameSet, names []string) {
	for _, k := range names {
		drop := []string{k}
		for n, g := range m.named {
			if slices.Contains(g.by, k) {
				drop = append(drop, n)
			}
		}
		for _, n := range drop {
			if g, has := m.named[n]; !has || !left.Has(n) && !g.handled(left) {
				m.put(n, going{})
				delete(m.said, n)
			}
		}
	}
	clear(m.unsettled)
	clear(m.unlinked)
}

// held is the resource that a client that asks for everything by name is given.
func (m *model) held(name string) *Resource {
	if g, has := m.wild[name]; has {
		return g.r
	}
	return m.named[name].r
}

func (m *model) visible(sub *Subscription, name string) *Resource {
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
func (m *model) linked(handle string) []string {
	names := map[string]bool{}
	for _, part := range []map[string]going{m.wild, m.named} {
		for n, g := range part {
			if slices.Contains(g.by, handle) {
				names[n] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func (m *model) look(sub *Subscription, name string) (*Resource, Presence) {
	listed := sub.Names.Has(name)
	if r := m.visible(sub, name); r != nil {
		return r, Present
	}
	switch said := m.said[name]; {
	case !listed && !sub.Wildcard:
		return nil, Pending
	case slices.ContainsFunc(m.linked(name), func(n string) bool { return m.visible(sub, n) != nil }):
		return nil, Elsewhere
	case listed && said == "gone":
		return nil, Absent
	case listed && said != "":
		return nil, Unresolvable
	case sub.Wildcard && !listed && m.answered:
		return nil, Absent
	}
	return nil, Pending
}

// differs reports whether a client can see that name is another than in o.
func (m *model) differs(o *model, name string) bool {
	return !m.wild[name].same(o.wild[name]) || !m.named[name].same(o.named[name]) || m.said[name] != o.said[name]
}

// check holds what s says of all names against the model.
func (m *model) check(t *rapid.T, s *Snapshot, names []string, sub *Subscription) {
	is := func(what string, got, want any) {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("generation %d: %s is %v, want %v", s.Gen, what, got, want)
		}
	}
	var bytes int64
	var sum Version
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
			is(n, got.Word(), m.said[n])
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
			sum = sum.add(memberVersion(n, r.Version))
		}
		if m.said[n] == "gone" {
			stated++
		} else if m.said[n] != "" {
			unresolved++
		}
		is("what is held of "+n, s.Held(n).Same(r), true)
		is("what is known of "+n, s.Known(n), r != nil || m.said[n] != "")
		linked := m.linked(n)
		is("what goes by "+n, s.Linked(n), linked)
		if r != nil {
			linked = append(linked, n)
		}
		if sole, one := s.Sole(n); one != (len(linked) == 1) || one && sole != linked[0] {
			t.Fatalf("generation %d: the sole one of %q is %q %v, of %v", s.Gen, n, sole, one, linked)
		}
		part := s.Part(false)
		answered := inNamed || m.leads(n)
		is("an answer to "+n, part.Answers(n), answered)
		is("an answer owed to "+n, part.Owed(n), !answered && m.said[n] == "")
		is("the request for "+n, part.Asked(n, sub.Names), sub.Names.Has(n) || d.handled(sub.Names))
		share := d.r
		if !inNamed {
			share = w.r
		}
		is("what shares memory with "+n, part.Share(n).Same(share), true)
	}
	all := func(yield func(func(*Resource) bool)) (names []string) {
		yield(func(r *Resource) bool { names = append(names, r.Name); return true })
		return names
	}
	is("all", all(s.Resources), held)
	is("the wildcard's part", all(s.Part(true).Resources), wild)
	is("the names' part", all(s.Part(false).Resources), named)
	is("what is covered", all(func(yield func(*Resource) bool) { s.Covered(sub, yield) }), covered)
	is("the account", []any{s.Len(), s.Bytes, s.Stated(), s.unresolved, s.Answered, s.Version},
		[]any{len(held), bytes, stated, unresolved, m.answered, sum.String()})
}

// changes holds what lies between two snapshots against the models.
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
		differ := was != now || now == Present && !a.Same(b) || now == Unresolvable && m.said[n] != is.said[n]
		if differ && !slices.Contains(got, n) {
			t.Fatalf("Changes from %d to %d leaves out %q: %v %d, then %v %d", from.Gen, to.Gen, n, a, was, b, now)
		}
		// A client that had it is told that it went, once anything is known of what it asked for.
		if was == Present && now == Pending {
			had, _ := from.Look(sub, n)
			want := !sub.Wildcard && !sub.Names.Has(n) && slices.ContainsFunc(had.Handles(), func(h string) bool {
				_, of := is.look(sub, h)
				return sub.Names.Has(h) && of != Pending
			})
			if gone := to.Gone(sub, had); gone != want {
				t.Fatalf("%q is gone to %v: %v, want %v", n, slices.Collect(sub.Names.All()), gone, want)
			}
		}
	}
}

// A snapshot behaves as plain maps do, whatever is applied in whatever order, and
// for good: names, aliases and globs of the wildcard's part and of the names' part.
// The version follows from the content alone (P61).
func TestP26_P50_P61_Model(t *testing.T) {
	resources := []string{"n0", "n1", "n2", "n3"}
	for i := range 3 {
		resources = append(resources, fmt.Sprint("xdstp://o/T/c/", i), fmt.Sprint("xdstp://o/T/d/", i, "?p=1"))
	}
	aliases := []string{"a0", "a1", "a2", "n0", "n1", "xdstp://o/T/c/*"} // some are names and globs as well
	keys := slices.Concat(resources, aliases[:3], []string{"xdstp://o/T/c/*", "xdstp://o/T/d/*?p=1", "other"})
	slices.Sort(keys)
	rapid.Check(t, func(rt *rapid.T) {
		some := rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 0, 6, rapid.ID[string])
		which := rapid.SliceOfNDistinct(rapid.SampledFrom(resources), 0, 5, rapid.ID[string])
		goes := rapid.SliceOfNDistinct(rapid.SampledFrom(aliases), 0, 3, rapid.ID[string])
		subs := rapid.Custom(func(rt *rapid.T) *Subscription {
			return &Subscription{Wildcard: rapid.Bool().Draw(rt, "wildcard"), Names: NewNameSet(some.Draw(rt, "names")...)}
		})
		type point struct {
			s *Snapshot
			m *model
		}
		var points []point
		for range rapid.IntRange(1, 2).Draw(rt, "lineages") {
			b, m := NewBuilder(TypeOf(widget)), newModel()
			asked := NewNameSet(some.Draw(rt, "asked")...)
			s, _ := b.Snapshot(nil, 0)
			prev := m.clone()
			for step := range rapid.IntRange(1, 15).Draw(rt, "steps") {
				for range rapid.IntRange(0, 2).Draw(rt, "updates") {
					switch rapid.IntRange(0, 9).Draw(rt, "what") {
					case 0, 1:
						left := NewNameSet(some.Draw(rt, "asked")...)
						_, gone := diffNames(asked, left)
						b.ForgetBut(left, gone...)
						m.forget(left, gone)
						asked = left
					case 2:
						b.EndWildcard()
						m.wild, m.answered = map[string]going{}, false
					default:
						u := m.update(t, rt, asked, which, some, goes)
						before := m.clone()
						m.apply(u)
						seen := before.answered != m.answered || slices.ContainsFunc(keys, func(n string) bool { return m.differs(before, n) })
						// Apply does not report that an alias goes because its name is removed again. The
						// snapshot has it.
						again := slices.ContainsFunc(u.Removed, func(n string) bool { return before.said[n] == "gone" })
						if got := b.Apply(u); got != seen && (got || !again) {
							rt.Fatalf("Apply reports %v", got)
						}
						b.Settle(asked)
						m.settle(asked)
					}
				}
				next, changed := b.Snapshot(s, uint64(step))
				if next != s && (next.Gen != s.Gen+1 || next.Lineage != s.Lineage || next.StateGen != uint64(step) || next.Retired < s.Retired) {
					rt.Fatalf("%+v after %+v", next, s)
				}
				// What is reported is what differs, exactly.
				var want []string
				for _, n := range keys {
					if m.differs(prev, n) || len(m.linked(n)) > 0 != (len(prev.linked(n)) > 0) {
						want = append(want, n)
					}
				}
				if !slices.Equal(changed, want) {
					rt.Fatalf("Snapshot reports %v, want %v", changed, want)
				}
				s, prev = next, m.clone()
				points = append(points, point{s, prev})
			}
			// Without what is asked for nothing is left behind.
			b.ForgetBut(nil, slices.Collect(asked.All())...)
			b.Settle(nil)
			for n := range m.wild {
				b.Apply(Update{Wildcard: true, Removed: []string{n}})
			}
			if s, _ = b.Snapshot(s, 99); b.entries.Len() > 0 || s.AnyHandles() {
				rt.Fatalf("%d entries are left, handles: %v", b.entries.Len(), s.AnyHandles())
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

// update draws what an origin may say where these names are asked for.
func (m *model) update(t *testing.T, rt *rapid.T, asked *NameSet, which, some, goes *rapid.Generator[[]string]) Update {
	u := Update{Wildcard: rapid.Bool().Draw(rt, "of the wildcard")}
	taken := map[string]bool{}
	for _, n := range which.Draw(rt, "changed") {
		taken[n] = true
		r := goesBy(t, widget, n, rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "content"), goes.Draw(rt, "aliases")...)
		if rapid.Bool().Draw(rt, "a version of the origin's") {
			twin := *r
			twin.OriginVersion = "7"
			r = &twin
		}
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
	return u
}

// diffNames are the names that b has and a has not, and the other way round.
func diffNames(a, b *NameSet) (add, drop []string) {
	for n, added := range a.Diff(b) {
		if added {
			add = append(add, n)
		} else {
			drop = append(drop, n)
		}
	}
	return add, drop
}

// The log is bounded in generations and in names. Beyond it the contents are compared,
// with the same answer.
func TestChangesBeyondTheLog(t *testing.T) {
	var names []string
	for i := range minLogNames + 100 {
		names = append(names, fmt.Sprintf("n%04d", i))
	}
	for what, c := range map[string]struct {
		each, gens int
		beats      bool
	}{
		"many generations": {each: 1, gens: maxLogGens + 100},
		"many names":       {each: 90, gens: 40},
		"all at once":      {each: len(names), gens: 5},
		"heartbeats":       {each: 90, gens: 40, beats: true},
		"nothing visible":  {each: 0, gens: maxLogGens + 100},
	} {
		t.Run(what, func(t *testing.T) {
			b := NewBuilder(TypeOf(EndpointType))
			first := Update{Wildcard: true}
			for _, n := range names {
				first.Changed = append(first.Changed, newRes(t, EndpointType, n, "0"))
			}
			b.Apply(first)
			s, _ := b.Snapshot(nil, 1)
			history := []*Snapshot{s}
			at := 0
			for gen := range c.gens {
				u := Update{Wildcard: true, Origin: fmt.Sprint(gen)} // each is a generation
				for range c.each {
					at = (at + 1) % len(names)
					r := newRes(t, EndpointType, names[at], fmt.Sprint(gen))
					if c.beats {
						r = s.Held(names[at]).Renew(time.Hour, time.Unix(int64(gen), 0))
					}
					u.Changed = append(u.Changed, r)
				}
				b.Apply(u)
				s, _ = b.Snapshot(s, uint64(gen))
				history = append(history, s)
				logged := 0
				for i, c := range s.log {
					if logged += len(c.names) + len(c.beats); c.gen != s.Gen-uint64(len(s.log)-1-i) {
						t.Fatalf("generation %d: the log has a gap", gen)
					}
				}
				if n := gen + 1; !c.beats && n <= maxLogGens && n*c.each <= max(minLogNames, len(names)) && len(s.log) != n {
					t.Fatalf("generation %d: the log has %d generations", gen, len(s.log))
				}
				if len(s.log) > maxLogGens || logged > max(minLogNames, len(names)) || logged != b.logNames {
					t.Fatalf("generation %d: the log has %d generations with %d names, counted %d", gen, len(s.log), logged, b.logNames)
				}
			}
			if _, ok := between(history[0], s); ok {
				t.Error("the log reaches to the beginning")
			}
			if c.beats {
				return // a heartbeat is no change
			}
			last := len(history) - 1
			for _, from := range []int{0, 1, last / 2, last - 1, last} {
				for _, to := range []int{0, last / 2, last} {
					for _, sub := range []*Subscription{everything(), byName(names[:5]...), {Wildcard: true, Names: NewNameSet("n0003", "none")}} {
						a, b := history[from], history[to]
						var want []string
						for _, n := range names {
							was, _ := a.Look(sub, n)
							if is, _ := b.Look(sub, n); is != was {
								want = append(want, n)
							}
						}
						if got := b.Changes(a, sub); !slices.Equal(got, want) {
							t.Errorf("from %d to %d: %d names changed, want %d", from, to, len(got), len(want))
						}
					}
				}
			}
		})
	}
}
