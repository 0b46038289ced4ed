package xds

import (
	"fmt"
	"strings"
	"testing"
)

// chronicle is a type whose history is kept.
type chronicle struct {
	t    *testing.T
	b    *Builder
	h    *History
	cur  *Snapshot
	all  *Subscription
	said []map[string]string // by generation, what the wildcard had
}

func newChronicle(t *testing.T, hs *Histories) *chronicle {
	typ := TypeOf(ClusterType)
	return &chronicle{t: t, b: NewBuilder(typ), h: hs.New(typ), all: &Subscription{Wildcard: true}, said: []map[string]string{nil}}
}

func (c *chronicle) step(specs ...string) {
	u := Update{Type: ClusterType, Wildcard: true}
	for _, s := range specs {
		name, content, _ := strings.Cut(s, "=")
		if content == "-" {
			u.Removed = append(u.Removed, name)
		} else {
			u.Changed = append(u.Changed, newRes(c.t, ClusterType, name, content))
		}
	}
	c.b.Apply(u)
	next, names := c.b.Snapshot(c.cur, 1)
	if next == c.cur {
		c.t.Fatal("nothing changed")
	}
	c.h.Note(c.cur, next, names)
	c.cur = next
	had := map[string]string{}
	next.Resources(func(r *Resource) bool { had[r.Name] = r.Version.String(); return true })
	c.said = append(c.said, had)
}

// check holds what the history says of each generation against what was there, and
// returns how many are known.
func (c *chronicle) check() (known int) {
	c.t.Helper()
	past := c.h.Past(c.cur)
	for gen := 1; gen < len(c.said); gen++ {
		if !past.holds(uint64(gen)) {
			if known > 0 {
				c.t.Errorf("generation %d is not known, and one before is", gen)
			}
			continue
		}
		known++
		for _, name := range []string{"a", "b", "c"} {
			r, held := past.At(uint64(gen), c.all, name)
			want, was := c.said[gen][name]
			if !held || (r != nil) != was || r != nil && r.Version.String() != want {
				c.t.Errorf("generation %d: %s is %v, %v", gen, name, r, held)
			}
		}
		for from := 1; from <= gen; from++ {
			names, held := past.Between(uint64(from), uint64(gen), c.all)
			if !past.holds(uint64(from)) {
				if held {
					c.t.Errorf("from %d to %d is known", from, gen)
				}
				continue
			}
			for _, name := range []string{"a", "b", "c"} {
				differs := c.said[from][name] != c.said[gen][name]
				if listed := strings.Contains(fmt.Sprint(names), name); differs && !listed {
					c.t.Errorf("from %d to %d: %s is not among %v", from, gen, name, names)
				}
			}
		}
	}
	return known
}

func TestHistoryTellsWhatWas(t *testing.T) {
	c := newChronicle(t, NewHistories(1<<20, 1<<20, nil))
	c.step("a=1", "b=1")
	c.step("a=2")
	c.step("b=-")
	c.step("c=1", "a=3")
	c.step("b=2", "c=2")
	if n := c.check(); n != 5 {
		t.Errorf("%d generations are known", n)
	}
	names, ok := c.h.Past(c.cur).Between(0, 1, c.all)
	if !ok || fmt.Sprint(names) != "[a b c]" { // c at most: At says that it was not there
		t.Errorf("all at 1: %v", names)
	}
	if _, held := (*History)(nil).Past(c.cur).At(1, c.all, "a"); held {
		t.Error("what nobody kept is known")
	}
	c.h.Close()
	if n := c.h.in.held(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

// Of a type, and over all, the oldest goes first, and is counted; what is gone is
// said to be gone.
func TestHistoryIsBounded(t *testing.T) {
	long := strings.Repeat("x", 1000)
	dropped := 0
	hs := NewHistories(6000, 5000, func(n int) { dropped += n })
	one, other := newChronicle(t, hs), newChronicle(t, hs)
	one.step("a=0", "b=0", "c=0")
	other.step("a=0", "b=0", "c=0")
	for i := range 10 {
		one.step(fmt.Sprint("a=", long, i))
		if one.h.bytes > 5000 {
			t.Fatalf("%d bytes of a type", one.h.bytes)
		}
	}
	known := one.check()
	if known < 3 || known > 5 || dropped == 0 {
		t.Errorf("%d generations are known, %d dropped", known, dropped)
	}
	for i := range 10 {
		other.step(fmt.Sprint("a=", long, i))
		if hs.held() > 6000 {
			t.Fatalf("%d bytes over all", hs.held())
		}
	}
	if now := one.check(); now >= known || now == 0 {
		t.Errorf("of the older %d generations are known, were %d", now, known)
	}
	if now := other.check(); now < 3 {
		t.Errorf("of the newer %d are", now)
	}
	// What is larger than all there may be of a type takes everything with it.
	other.step("a=" + strings.Repeat("y", 6000))
	other.step("a=0")
	if n := other.check(); n != 1 || other.h.bytes != 0 {
		t.Errorf("%d generations are known, %d bytes", n, other.h.bytes)
	}
}

// Of what is not to be cached nothing is kept, and of Secrets there is no history.
func TestP63_HistoryKeepsNothingUncacheable(t *testing.T) {
	hs := NewHistories(1<<20, 1<<20, nil)
	if hs.New(TypeOf(SecretType)) != nil {
		t.Error("Secrets have a history")
	}
	c := newChronicle(t, hs)
	r := altered(newRes(t, ClusterType, "a", "1"), func(c *content) { c.Uncacheable = true })
	c.b.Apply(Update{Type: ClusterType, Wildcard: true, Changed: []*Resource{r}})
	c.cur, _ = c.b.Snapshot(nil, 1)
	c.h.Note(nil, c.cur, nil)
	c.step("a=2")
	if got, held := c.h.Past(c.cur).At(1, c.all, "a"); held || got != nil {
		t.Errorf("%v", got)
	}
	for _, p := range c.h.gens {
		for _, e := range p.was {
			if e.wild == r || e.named == r {
				t.Error("it is kept alive")
			}
		}
	}
}

// held is what all histories hold.
func (hs *Histories) held() int64 {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.bytes
}
