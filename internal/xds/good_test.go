package xds

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// goodModel is what Good should say, as plain maps: of the wildcard the newest state
// taken as a whole, with what was taken of its names since; of names what was taken
// last of each, and of which generation.
type goodModel struct {
	whole map[string]*Resource // nil: none
	gen   uint64               // of whole
	later map[string]taken
	named map[string]taken
	since uint64 // the generation collected last: of names that were not in it, what was taken before is old
}

func (m *goodModel) all(s *Snapshot) {
	if m.whole != nil && s.Gen <= m.gen {
		return
	}
	m.whole, m.gen = make(map[string]*Resource), s.Gen
	for r := range s.Part(true).Resources {
		m.whole[r.Name] = r
	}
	for n, t := range m.later {
		if t.gen <= s.Gen || m.whole[n] == nil {
			delete(m.later, n)
		}
	}
}

func (m *goodModel) take(t Took, gen uint64) {
	name, into := t.Resource.Name, m.named
	have, is := into[name]
	if !is {
		have.gen = m.since
	}
	if t.Wild {
		if into = m.later; m.whole[name] == nil {
			return
		}
		if have, is = into[name]; !is {
			have.gen = m.gen
		}
	}
	if gen > have.gen {
		into[name] = taken{t.Resource, gen}
	}
}

func (m *goodModel) collect(held *Snapshot) (out []string) {
	for n, r := range m.whole {
		if t, is := m.later[n]; is {
			r = t.Resource
		}
		out = append(out, spellTook(Took{r, true}))
	}
	next := make(map[string]taken)
	for r := range held.Part(false).Resources {
		have, is := m.named[r.Name]
		if !is {
			have.gen = m.since
		}
		next[r.Name] = have
		if r.alike(have.Resource) {
			next[r.Name] = taken{r, held.Gen}
		}
		if have.Resource != nil {
			out = append(out, spellTook(Took{Resource: have.Resource}))
		}
	}
	m.named, m.since = next, held.Gen
	slices.Sort(out)
	return out
}

func spellTook(t Took) string {
	return fmt.Sprintf("%s wild=%v %s", t.Resource.Name, t.Wild, t.Resource.Version)
}

// Whatever clients take, in whichever order: kept is the newest of each resource
// that somebody took, and nothing that nobody did.
func TestGoodModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBuilder(TypeOf(ClusterType))
		var snaps []*Snapshot
		m := &goodModel{later: make(map[string]taken), named: make(map[string]taken)}
		g := new(Good)
		names := []string{"a", "b", "c"}
		version := 0
		var now *Snapshot
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch op := rapid.SampledFrom([]string{"change", "change", "all", "some", "collect"}).Draw(t, "op"); {
			case op == "change" || now == nil:
				wild := rapid.Bool().Draw(t, "wild")
				u := Update{Type: ClusterType, Origin: "o", Wildcard: wild, Received: time.Unix(1, 0)}
				for _, n := range names {
					switch rapid.IntRange(0, 3).Draw(t, n) {
					case 0:
						version++
						u.Changed = append(u.Changed, taking(t, n, fmt.Sprint(version)))
					case 1:
						u.Removed = append(u.Removed, n)
					}
				}
				b.Apply(u)
				if s, _ := b.Snapshot(now, 0); s != now {
					now = s
					snaps = append(snaps, s)
				}
			case op == "all":
				s := rapid.SampledFrom(snaps).Draw(t, "of")
				if !s.Answered {
					continue
				}
				if !g.KnowsAll(s) {
					g.TakeAll(s)
				}
				m.all(s)
			case op == "some":
				s := rapid.SampledFrom(snaps).Draw(t, "of")
				var took []Took
				for _, wild := range []bool{true, false} {
					for r := range s.Part(wild).Resources {
						if rapid.Bool().Draw(t, "takes") {
							took = append(took, Took{r, wild})
							m.take(Took{r, wild}, s.Gen)
						}
					}
				}
				g.Take(new(Receipt), s.Gen, took, false)
			case op == "collect":
				took, wild := g.Collect(now, false, time.Unix(1, 0))
				want := m.collect(now)
				var got []string
				for _, k := range took {
					got = append(got, spellTook(k))
				}
				slices.Sort(got)
				if !slices.Equal(got, want) || wild != (m.whole != nil) {
					t.Fatalf("generation %d: kept\n%v, wildcard %v, want\n%v, %v", now.Gen, got, wild, want, m.whole != nil)
				}
			}
		}
	})
}

// taking makes a cluster of some content.
func taking(t rapid.TB, name, content string) *Resource {
	r, err := NewResource(TypeOf(ClusterType), name, anyWire(ClusterType, wire(1, name, 3, content)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Who takes something while it is collected does not wait, and is not lost.
func TestGoodIsTakenWhileItIsCollected(t *testing.T) {
	b := NewBuilder(TypeOf(ClusterType))
	const generations, names = 200, 20
	var snaps []*Snapshot
	for g := range generations {
		u := Update{Type: ClusterType, Origin: "o", Wildcard: true, Received: time.Unix(1, 0)}
		for n := range names {
			if g == 0 || (g+n)%7 == 0 {
				u.Changed = append(u.Changed, cluster(t, fmt.Sprint(n), fmt.Sprint(g)))
			}
		}
		b.Apply(u)
		var last *Snapshot
		if g > 0 {
			last = snaps[g-1]
		}
		s, _ := b.Snapshot(last, 0)
		snaps = append(snaps, s)
	}
	g := new(Good)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for i, s := range snaps {
				if i%3 == 0 && !g.KnowsAll(s) {
					g.TakeAll(s)
					continue
				}
				var took []Took
				for r := range s.Resources {
					took = append(took, Took{r, true})
				}
				g.Take(new(Receipt), s.Gen, took, false)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		g.Collect(snaps[len(snaps)-1], false, time.Unix(1, 0))
	}
	took, wildcard := g.Collect(snaps[len(snaps)-1], false, time.Unix(1, 0))
	if !wildcard || len(took) != names {
		t.Fatalf("kept %d, wildcard %v", len(took), wildcard)
	}
	for _, k := range took {
		if want := snaps[len(snaps)-1].Held(k.Resource.Name); k.Resource != want {
			t.Errorf("%s is kept as it was before", k.Resource.Name)
		}
	}
}
