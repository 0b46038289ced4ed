package xds

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// model is what a Snapshot should be, as plain maps.
type model struct {
	wild, named map[string]*Resource
	absent      map[string]bool // said of names asked for
	stated      map[string]bool // those said
	answered    bool
}

func newModel() *model {
	return &model{map[string]*Resource{}, map[string]*Resource{}, map[string]bool{}, map[string]bool{}, false}
}

func (m *model) clone() *model {
	return &model{maps.Clone(m.wild), maps.Clone(m.named), maps.Clone(m.absent), maps.Clone(m.stated), m.answered}
}

func (m *model) apply(u Update) {
	m.answered = m.answered || u.Wildcard
	for _, r := range u.Changed {
		if u.Wildcard {
			m.wild[r.Name] = r
		} else {
			m.forget([]string{r.Name})
			m.named[r.Name] = r
		}
	}
	for _, n := range u.Removed {
		switch {
		case u.Wildcard:
			delete(m.wild, n)
		default:
			m.forget([]string{n})
			m.absent[n], m.stated[n] = true, true
		}
	}
}

func (m *model) forget(names []string) {
	for _, n := range names {
		delete(m.named, n)
		delete(m.absent, n)
		delete(m.stated, n)
	}
}

func (m *model) endWildcard() { m.wild, m.answered = map[string]*Resource{}, false }

// held is the resource that whoever asks for everything is given.
func (m *model) held(name string) *Resource {
	if r := m.wild[name]; r != nil {
		return r
	}
	return m.named[name]
}

func (m *model) look(sub *Subscription, name string) (*Resource, Presence) {
	byName := sub.Names.Has(name)
	if !byName && !sub.Wildcard {
		return nil, Pending
	}
	var copies []*Resource
	if sub.Wildcard {
		copies = append(copies, m.wild[name])
	}
	if byName {
		copies = append(copies, m.named[name], m.wild[name])
	}
	for _, r := range copies {
		if r != nil {
			return r, Present
		}
	}
	if byName && m.absent[name] || !byName && m.answered {
		return nil, Absent
	}
	return nil, Pending
}

// check holds everything that s says against the model.
func (m *model) check(t interface{ Fatalf(string, ...any) }, s *Snapshot, names []string, sub *Subscription) {
	var bytes int64
	var sum Version
	var held, covered []string
	parts := map[bool][]string{}
	for _, n := range names {
		for wild, want := range map[bool]*Resource{true: m.wild[n], false: m.named[n]} {
			part := s.Part(wild)
			if got := part.Held(n); got != want {
				t.Fatalf("gen %d: part %v has %v under %s, want %v", s.Gen, wild, got, n, want)
			}
			if got := part.Known(n); got != (want != nil || !wild && m.absent[n]) {
				t.Fatalf("gen %d: part %v knows %s: %v", s.Gen, wild, n, got)
			}
			share := want
			if share == nil {
				share = m.held(n)
			}
			if got := part.Share(n); got != share {
				t.Fatalf("gen %d: part %v shares %v, want %v", s.Gen, wild, got, share)
			}
			if want != nil {
				parts[wild] = append(parts[wild], n)
			}
		}
		want, is := m.look(sub, n)
		if r, got := s.Look(sub, n); r != want || got != is {
			t.Fatalf("gen %d: Look(%s) is %v %d, want %v %d", s.Gen, n, r, got, want, is)
		}
		if is == Present {
			covered = append(covered, n)
		}
		r := m.held(n)
		if s.Held(n) != r {
			t.Fatalf("gen %d: Held(%s) is %v, want %v", s.Gen, n, s.Held(n), r)
		}
		if known := r != nil || m.absent[n]; s.Known(n) != known {
			t.Fatalf("gen %d: Known(%s) is %v", s.Gen, n, !known)
		}
		if r != nil {
			held = append(held, n)
			bytes += r.Size()
			sum = sum.add(memberVersion(n, r.Version))
		}
	}
	if s.Len() != len(held) || s.Bytes != bytes || s.Answered != m.answered {
		t.Fatalf("gen %d: %d resources of %d bytes, answered %v; want %d, %d, %v",
			s.Gen, s.Len(), s.Bytes, s.Answered, len(held), bytes, m.answered)
	}
	stated := 0
	for _, said := range m.stated {
		if said {
			stated++
		}
	}
	if s.Stated() != stated {
		t.Fatalf("gen %d: %d absences stated, want %d", s.Gen, s.Stated(), stated)
	}
	if s.Version != sum.String() {
		t.Fatalf("gen %d: the version is %s, of the content it is %s", s.Gen, s.Version, sum)
	}
	for _, wild := range []bool{false, true} {
		var got []string
		for r := range s.Part(wild).Resources {
			got = append(got, r.Name)
		}
		if !slices.Equal(got, parts[wild]) || s.Part(wild).Answered() != (wild && m.answered) {
			t.Fatalf("gen %d: part %v is %v, want %v", s.Gen, wild, got, parts[wild])
		}
	}
	var all, got []string
	s.Resources(func(r *Resource) bool { all = append(all, r.Name); return true })
	s.Covered(sub, func(r *Resource) bool { got = append(got, r.Name); return true })
	if !slices.Equal(all, held) || !slices.Equal(got, covered) {
		t.Fatalf("gen %d: Resources %v, want %v; Covered %v, want %v", s.Gen, all, held, got, covered)
	}
}

// checkChanges holds what lies between two snapshots against the models.
func checkChanges(t interface{ Fatalf(string, ...any) }, from, to *Snapshot, was, is *model, names []string, sub *Subscription) {
	got := to.Changes(from, sub)
	if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Fatalf("Changes is not sorted or not unique: %v", got)
	}
	for _, n := range got {
		if !sub.Covers(n) {
			t.Fatalf("Changes has %s, which is not covered", n)
		}
	}
	for _, n := range names {
		a, wasIs := was.look(sub, n)
		b, isIs := is.look(sub, n)
		// Of a name that is not asked for and of which there is nothing before
		// and after, nobody wants to know whether it is absent.
		if wasIs != Present && isIs != Present && !sub.Names.Has(n) {
			continue
		}
		if (wasIs != isIs || !a.Same(b)) && !slices.Contains(got, n) {
			t.Fatalf("Changes leaves out %s: %v %d, then %v %d", n, a, wasIs, b, isIs)
		}
	}
}

// Snapshots behave as plain maps, whatever is applied in whatever order, and
// for good: old ones are looked at again at the end.
func TestP50_SnapshotsAgainstMaps(t *testing.T) {
	var names []string
	for i := range 24 {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	// Each name has a few contents; of each there are two equal resources, one
	// of them with a version of the origin.
	pool := map[string][]*Resource{}
	for _, n := range names {
		for c := range 3 {
			r := newRes(t, EndpointType, n, fmt.Sprint(c))
			twin := *r
			twin.OriginVersion = "7"
			pool[n] = append(pool[n], r, &twin)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 8, func(n string) string { return n })
		subs := rapid.Custom(func(t *rapid.T) *Subscription {
			return &Subscription{Wildcard: rapid.Bool().Draw(t, "wildcard"), Names: NewNameSet(some.Draw(t, "names")...)}
		})
		type point struct {
			s *Snapshot
			m *model
		}
		var lineages [][]point
		for range rapid.IntRange(1, 2).Draw(t, "lineages") {
			b, m := NewBuilder(TypeOf(EndpointType)), newModel()
			history := []point{{nil, newModel()}}
			var prev *Snapshot
			for step := range rapid.IntRange(1, 25).Draw(t, "steps") {
				for range rapid.IntRange(0, 3).Draw(t, "updates") {
					switch rapid.IntRange(0, 9).Draw(t, "what") {
					case 0:
						n := some.Draw(t, "forget")
						b.ForgetBut(nil, n...)
						m.forget(n)
					case 1:
						b.EndWildcard()
						m.endWildcard()
					default:
						u := Update{Wildcard: rapid.Bool().Draw(t, "of the wildcard"), Received: time.Unix(int64(step), 0)}
						for _, n := range some.Draw(t, "names") {
							if i := rapid.IntRange(0, 8).Draw(t, "content"); i < 6 {
								u.Changed = append(u.Changed, pool[n][i])
							} else {
								u.Removed = append(u.Removed, n)
							}
						}
						before := m.clone()
						m.apply(u)
						visible := before.answered != m.answered
						for _, n := range names {
							visible = visible || !before.wild[n].Same(m.wild[n]) || !before.named[n].Same(m.named[n]) ||
								before.absent[n] != m.absent[n]
						}
						if got := b.Apply(u); got != visible {
							t.Fatalf("Apply reports %v", got)
						}
					}
				}
				was := history[len(history)-1]
				s, changed := b.Snapshot(prev, uint64(step))
				if s == prev {
					if changed != nil {
						t.Fatalf("no new snapshot, but changes %v", changed)
					}
				} else if prev != nil && (s.Gen != prev.Gen+1 || s.Lineage != prev.Lineage || s.StateGen != uint64(step) || s.Retired < prev.Retired) {
					t.Fatalf("%+v after %+v", s, prev)
				}
				// What is reported is what differs, exactly.
				var want []string
				for _, n := range names {
					if !was.m.wild[n].Same(m.wild[n]) || !was.m.named[n].Same(m.named[n]) || was.m.absent[n] != m.absent[n] {
						want = append(want, n)
					}
				}
				if !slices.Equal(changed, want) {
					t.Fatalf("Snapshot reports %v, want %v", changed, want)
				}
				if prev != nil && prev.Answered == s.Answered && s != prev {
					all := &Subscription{Wildcard: true, Names: NewNameSet(names...)}
					if got := s.Changes(prev, all); !slices.Equal(got, want) {
						t.Fatalf("Changes to the next one %v, want %v", got, want)
					}
				}
				prev = s
				history = append(history, point{s, m.clone()})
			}
			lineages = append(lineages, history)
		}
		for _, history := range lineages {
			for _, p := range history[1:] {
				p.m.check(t, p.s, names, subs.Draw(t, "sub"))
			}
		}
		all := slices.Concat(lineages...)
		for range 30 {
			from, to := rapid.SampledFrom(all).Draw(t, "from"), rapid.SampledFrom(all).Draw(t, "to")
			checkChanges(t, from.s, to.s, from.m, to.m, names, subs.Draw(t, "sub"))
		}
	})
}

// The log is bounded both ways; beyond it the contents are compared, and the
// answer is right all the same.
func TestChangesBeyondTheLog(t *testing.T) {
	var names []string
	for i := range 700 {
		names = append(names, fmt.Sprintf("n%04d", i))
	}
	for what, c := range map[string]struct{ each, gens int }{
		"many generations": {1, 1500}, "many names": {90, 200}, "all at once": {700, 60}, "nothing visible": {0, 1500},
	} {
		t.Run(what, func(t *testing.T) {
			each, gens := c.each, uint64(c.gens)
			type point struct {
				s *Snapshot
				m *model
			}
			b, m := NewBuilder(TypeOf(EndpointType)), newModel()
			first := Update{Wildcard: true}
			for _, n := range names {
				first.Changed = append(first.Changed, newRes(t, EndpointType, n, "0"))
			}
			b.Apply(first)
			m.apply(first)
			s, _ := b.Snapshot(nil, 1)
			history := []point{{s, m.clone()}}
			at := 0
			for gen := range gens {
				var u Update
				u.Wildcard, u.Origin = true, fmt.Sprint(gen) // so that each is a generation
				for range each {
					at = (at + 1) % len(names)
					u.Changed = append(u.Changed, newRes(t, EndpointType, names[at], fmt.Sprint(gen)))
				}
				b.Apply(u)
				m.apply(u)
				if s, _ = b.Snapshot(s, gen); gen%(gens/10) == 5 || gen > gens-10 {
					history = append(history, point{s, m.clone()})
				}
				if len(s.log) > maxLogGens || b.logNames > max(minLogNames, len(names)) {
					t.Fatalf("generation %d: the log has %d generations with %d names", gen, len(s.log), b.logNames)
				}
				logged := 0
				for i, c := range s.log {
					logged += len(c.names)
					if c.gen != s.Gen-uint64(len(s.log)-1-i) {
						t.Fatalf("generation %d: the log has a gap", gen)
					}
				}
				if logged != b.logNames {
					t.Fatalf("generation %d: %d names in the log, counted %d", gen, logged, b.logNames)
				}
			}
			if _, ok := between(history[0].s, s); ok {
				t.Error("the log reaches to the beginning")
			}
			subs := []*Subscription{{Wildcard: true}, {Names: NewNameSet(names[:5]...)}, {Wildcard: true, Names: NewNameSet("n0003", "none")}}
			for _, from := range history {
				for _, to := range []point{history[0], history[3], history[len(history)-3], history[len(history)-1]} {
					for _, sub := range subs {
						checkChanges(t, from.s, to.s, from.m, to.m, names, sub)
						if from.m.check(t, from.s, names, sub); each == 0 && len(to.s.Changes(from.s, sub)) > 0 {
							t.Fatal("changes, but nothing changed")
						}
					}
				}
			}
		})
	}
}

// The version of a set follows from what is in it, and not from how it came
// there, in which replica, nor from the origin's versions of its members.
func TestP61_SetVersionIsIndependentOfHistory(t *testing.T) {
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprintf("n%d", i))
	}
	rapid.Check(t, func(t *rapid.T) {
		want := map[string]*Resource{}
		for _, n := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 12, func(n string) string { return n }).Draw(t, "names") {
			r, err := NewResource(TypeOf(widget), n, anyWire(widget, wire(1, n, 2, rapid.String().Draw(t, "content"))))
			if err != nil {
				t.Fatal(err)
			}
			want[n] = r
		}
		build := func(label string) string {
			b := NewBuilder(TypeOf(widget))
			wildcard := rapid.Bool().Draw(t, label)
			var s *Snapshot
			for range rapid.IntRange(0, 4).Draw(t, label) { // detours
				u := Update{Wildcard: wildcard}
				for _, n := range rapid.SliceOfDistinct(rapid.SampledFrom(names), func(n string) string { return n }).Draw(t, label) {
					r, err := NewResource(TypeOf(widget), n, anyWire(widget, wire(1, n, 3, "x")))
					if err != nil {
						t.Fatal(err)
					}
					u.Changed = append(u.Changed, r)
				}
				b.Apply(u)
				if rapid.Bool().Draw(t, label) {
					s, _ = b.Snapshot(s, 1)
				}
			}
			for _, n := range rapid.Permutation(names).Draw(t, label) {
				u := Update{Wildcard: wildcard, Removed: []string{n}}
				if r := want[n]; r != nil {
					u.Changed, u.Removed = []*Resource{r}, nil
				}
				b.Apply(u)
			}
			s, _ = b.Snapshot(s, 1)
			return s.Version
		}
		if a, b := build("a"), build("b"); a != b {
			t.Fatalf("%s and %s for the same content", a, b)
		}
	})
}
