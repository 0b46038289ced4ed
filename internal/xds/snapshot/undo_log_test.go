package snapshot

import (
	"fmt"
	"strings"
	"testing"

	"xdsrelay/internal/xds"
)

// undoLogRecorder makes snapshots of a type with an undo log, and records the content of each.
type undoLogRecorder struct {
	t       *testing.T
	b       *Builder
	log     *UndoLog
	current *Snapshot
	all     *Subscription
	content []map[string]string // what the wildcard had, by generation
}

func newUndoLogRecorder(t *testing.T, logs *UndoLogs) *undoLogRecorder {
	typ := xds.TypeOf(xds.ClusterType)
	return &undoLogRecorder{t: t, b: NewBuilder(typ), log: logs.New(typ), all: &Subscription{Wildcard: true}, content: []map[string]string{nil}}
}

func (c *undoLogRecorder) step(specs ...string) {
	u := Update{Type: xds.ClusterType, Wildcard: true}
	for _, s := range specs {
		name, content, _ := strings.Cut(s, "=")
		if content == "-" {
			u.Removed = append(u.Removed, name)
		} else {
			u.Changed = append(u.Changed, newRes(c.t, xds.ClusterType, name, content))
		}
	}
	c.b.Apply(u)
	next, names := c.b.Snapshot(c.current, 1)
	if next == c.current {
		c.t.Fatal("nothing changed")
	}
	c.log.Note(c.current, next, names)
	c.current = next
	had := map[string]string{}
	next.Resources(func(r *xds.Resource) bool { had[r.Name] = r.Version.String(); return true })
	c.content = append(c.content, had)
}

// check compares the undo log of each generation with what was recorded. It returns how many
// generations are known.
func (c *undoLogRecorder) check() (known int) {
	c.t.Helper()
	past := c.log.Past(c.current)
	for gen := 1; gen < len(c.content); gen++ {
		if !past.holds(uint64(gen)) {
			if known > 0 {
				c.t.Errorf("generation %d is not known, and one before is", gen)
			}
			continue
		}
		known++
		for _, name := range []string{"a", "b", "c"} {
			r, held := past.At(uint64(gen), c.all, name)
			want, was := c.content[gen][name]
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
				differs := c.content[from][name] != c.content[gen][name]
				if listed := strings.Contains(fmt.Sprint(names), name); differs && !listed {
					c.t.Errorf("from %d to %d: %s is not among %v", from, gen, name, names)
				}
			}
		}
	}
	return known
}

func TestUndoLogRestoresResources(t *testing.T) {
	c := newUndoLogRecorder(t, NewUndoLogs(1<<20, 1<<20, nil))
	c.step("a=1", "b=1")
	c.step("a=2")
	c.step("b=-")
	c.step("c=1", "a=3")
	c.step("b=2", "c=2")
	if n := c.check(); n != 5 {
		t.Errorf("%d generations are known", n)
	}
	names, ok := c.log.Past(c.current).Between(0, 1, c.all)
	if !ok || fmt.Sprint(names) != "[a b c]" { // Between may return c, which came later; At returns nil for it
		t.Errorf("all at 1: %v", names)
	}
	if _, held := (*UndoLog)(nil).Past(c.current).At(1, c.all, "a"); held {
		t.Error("a nil UndoLog knows something")
	}
	c.log.Close()
	if n := c.log.all.held(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

// Each limit drops the oldest generations and counts them. A dropped generation is not known.
func TestUndoLogIsBounded(t *testing.T) {
	long := strings.Repeat("x", 1000)
	dropped := 0
	logs := NewUndoLogs(6000, 5000, func(n int) { dropped += n })
	one, other := newUndoLogRecorder(t, logs), newUndoLogRecorder(t, logs)
	one.step("a=0", "b=0", "c=0")
	other.step("a=0", "b=0", "c=0")
	for i := range 10 {
		one.step(fmt.Sprint("a=", long, i))
		if one.log.bytes > 5000 {
			t.Fatalf("%d bytes of a type", one.log.bytes)
		}
	}
	known := one.check()
	if known < 3 || known > 5 || dropped == 0 {
		t.Errorf("%d generations are known, %d dropped", known, dropped)
	}
	for i := range 10 {
		other.step(fmt.Sprint("a=", long, i))
		if logs.held() > 6000 {
			t.Fatalf("%d bytes over all", logs.held())
		}
	}
	if now := one.check(); now >= known || now == 0 {
		t.Errorf("%d generations of the older undo log are known, were %d", now, known)
	}
	if now := other.check(); now < 3 {
		t.Errorf("%d generations of the newer undo log are known", now)
	}
	// A generation larger than the limit drops all earlier ones.
	other.step("a=" + strings.Repeat("y", 6000))
	other.step("a=0")
	if n := other.check(); n != 1 || other.log.bytes != 0 {
		t.Errorf("%d generations are known, %d bytes", n, other.log.bytes)
	}
}

// An undo log keeps no resource that must not be cached, and Secrets have no undo log (P63).
func TestP63_UndoLogKeepsNothingUncacheable(t *testing.T) {
	logs := NewUndoLogs(1<<20, 1<<20, nil)
	if logs.New(xds.TypeOf(xds.SecretType)) != nil {
		t.Error("Secrets have an undo log")
	}
	c := newUndoLogRecorder(t, logs)
	r := uncacheable(t, xds.ClusterType, "a")
	c.b.Apply(Update{Type: xds.ClusterType, Wildcard: true, Changed: []*xds.Resource{r}})
	c.current, _ = c.b.Snapshot(nil, 1)
	c.log.Note(nil, c.current, nil)
	c.step("a=2")
	if got, held := c.log.Past(c.current).At(1, c.all, "a"); held || got != nil {
		t.Errorf("%v", got)
	}
	for _, p := range c.log.generations {
		for _, e := range p.before {
			if e.wildcard == r || e.named == r {
				t.Error("the resource is kept")
			}
		}
	}
}

// held returns the size of all undo logs in bytes.
func (logs *UndoLogs) held() int64 {
	logs.mu.Lock()
	defer logs.mu.Unlock()
	return logs.bytes
}

// A resource that is only sent again takes no room in the undo log (P33).
func TestUndoLogWithoutResent(t *testing.T) {
	c := newUndoLogRecorder(t, NewUndoLogs(1<<20, 1<<20, nil))
	c.step("a=1", "b=1")
	u := Update{Type: xds.ClusterType, Wildcard: true, Changed: []*xds.Resource{c.current.Resource("a").Resent()}}
	c.b.Apply(u)
	next, names := c.b.Snapshot(c.current, 1)
	if len(names) != 1 {
		t.Fatalf("changed %v", names)
	}
	c.log.Note(c.current, next, names)
	c.current = next
	if past := c.log.Past(next); len(past.generations) > 0 && len(past.generations[0].names) > 0 {
		t.Error("the undo log keeps it")
	}
	c.content = append(c.content, c.content[len(c.content)-1])
	c.step("a=2")
	if known := c.check(); known != 3 {
		t.Errorf("%d generations are known", known)
	}
}

// A version's changes are known as long as the log has what it replaced.
func TestChangesOfAVersion(t *testing.T) {
	c := newUndoLogRecorder(t, NewUndoLogs(UndoBytes, UndoBytesEach, nil))
	var versions []*VersionProgress
	for _, step := range [][]string{{"a=1", "b=1", "c=1"}, {"b=2", "d=1"}, {"c=-"}} {
		prev := c.current
		c.step(step...)
		versions = append(versions, &VersionProgress{Lineage: c.current.Lineage, First: c.current.Gen})
		versions[len(versions)-1].newest.Store(c.current.Gen)
		if prev != nil && prev.Gen+1 != c.current.Gen {
			t.Fatal("a generation is missing")
		}
	}
	past := c.log.Past(c.current)
	for i, want := range []string{"[a - b - c -]", "[b changed d -]", "[c gone]"} {
		all, more, known := past.Changes(versions[i], 10)
		var got []string
		for _, d := range all {
			what := "changed"
			switch {
			case d.Has == nil:
				what = "-"
			case d.Offered == nil:
				what = "gone"
			}
			got = append(got, d.Name, what)
		}
		if fmt.Sprint(got) != want || more != 0 || !known {
			t.Errorf("version %d: %v, %d more, known %v, want %s", i, got, more, known, want)
		}
	}
	if all, more, _ := past.Changes(versions[1], 1); len(all) != 1 || more != 1 {
		t.Errorf("%v, %d more", all, more)
	}
	c.log.Close()
	if _, _, known := c.log.Past(c.current).Changes(versions[1], 10); known {
		t.Error("known without a log")
	}
}
