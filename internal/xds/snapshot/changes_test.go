package snapshot

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"xdsrelay/internal/xds"
)

// The log has a limit in generations and in names. Beyond it, Changes compares the snapshots and
// returns the same names.
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
			b := NewBuilder(xds.TypeOf(xds.EndpointType))
			first := Update{Wildcard: true}
			for _, n := range names {
				first.Changed = append(first.Changed, newRes(t, xds.EndpointType, n, "0"))
			}
			b.Apply(first)
			s, _ := b.Snapshot(nil, 1)
			history := []*Snapshot{s}
			at := 0
			for gen := range c.gens {
				u := Update{Wildcard: true, Origin: fmt.Sprint(gen)} // another origin makes a new generation
				for range c.each {
					at = (at + 1) % len(names)
					r := newRes(t, xds.EndpointType, names[at], fmt.Sprint(gen))
					if c.beats {
						r = s.Resource(names[at]).RenewTTL(time.Hour, time.Unix(int64(gen), 0))
					}
					u.Changed = append(u.Changed, r)
				}
				b.Apply(u)
				s, _ = b.Snapshot(s, uint64(gen))
				history = append(history, s)
				logged := 0
				for i, c := range s.log {
					if logged += len(c.names) + len(c.heartbeats); c.gen != s.Gen-uint64(len(s.log)-1-i) {
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
			if _, ok := changesBetween(history[0], s); ok {
				t.Error("the log reaches to the beginning")
			}
			if c.beats {
				return // a heartbeat changes no name
			}
			last := len(history) - 1
			for _, from := range []int{0, 1, last / 2, last - 1, last} {
				for _, to := range []int{0, last / 2, last} {
					for _, sub := range []*Subscription{wildcardSub(), namesSub(names[:5]...), {Wildcard: true, Names: xds.NewNameSet("n0003", "none")}} {
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

// Renewed returns the names whose TTL was renewed, with the log and beyond it (P62).
func TestP62_RenewedNames(t *testing.T) {
	b := NewBuilder(xds.TypeOf(xds.EndpointType))
	var us []*xds.Resource
	for i := range 10 {
		us = append(us, timed(t, fmt.Sprint(i), "", time.Hour, noon))
	}
	us = append(us, newRes(t, xds.EndpointType, "plain", ""))
	b.Apply(Update{Wildcard: true, Changed: us})
	first, _ := b.Snapshot(nil, 1)
	beat := func(s *Snapshot, names ...string) *Snapshot {
		u := Update{Wildcard: true}
		for _, n := range names {
			u.Changed = append(u.Changed, s.Resource(n).StartTTL(noon.Add(time.Duration(s.Gen)*time.Second)))
		}
		b.Apply(u)
		next, changed := b.Snapshot(s, s.Gen+1)
		if len(changed) > 0 || len(next.Changes(s, wildcardSub())) > 0 {
			t.Errorf("heartbeats changed %v", changed)
		}
		return next
	}
	second := beat(first, "3", "1")
	third := beat(second, "3", "5")
	for _, c := range []struct {
		from *Snapshot
		sub  *Subscription
		want []string
	}{
		{first, wildcardSub(), []string{"1", "3", "5"}},
		{second, wildcardSub(), []string{"3", "5"}},
		{first, namesSub("1", "2", "plain"), []string{"1"}},
		{third, wildcardSub(), nil},
		{nil, wildcardSub(), nil},
	} {
		if got := third.Renewed(c.from, c.sub); !slices.Equal(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
	if got := third.Bytes; got != first.Bytes || third.Retired != first.Retired {
		t.Errorf("heartbeats add %d bytes, and retire %d", got-first.Bytes, third.Retired-first.Retired)
	}
	last := third
	for range maxLogGens {
		last = beat(last, "7")
	}
	got := last.Renewed(first, wildcardSub())
	if len(got) != 10 {
		t.Errorf("beyond the log: %v", got)
	}
	if last.log[0].gen <= 2 {
		t.Error("the log has no limit")
	}
}

// Generations counts exactly as far as the log reaches. Where it cannot know, it returns 1,
// although counting the log's changes would give another number.
func TestGenerations(t *testing.T) {
	content := 0
	next := func(b *Builder, s *Snapshot, names ...string) *Snapshot {
		content++
		u := Update{Wildcard: true}
		for _, n := range names {
			u.Changed = append(u.Changed, newRes(t, xds.EndpointType, n, fmt.Sprint(content)))
		}
		b.Apply(u)
		s, _ = b.Snapshot(s, 1)
		return s
	}
	lineage := func(changes ...string) []*Snapshot {
		b := NewBuilder(xds.TypeOf(xds.EndpointType))
		out := []*Snapshot{next(b, nil, "a", "b")}
		for _, name := range changes {
			out = append(out, next(b, out[len(out)-1], name))
		}
		return out
	}
	short, other := lineage("a", "b", "a", "a"), lineage("a", "a", "a", "a")
	long := lineage(slices.Repeat([]string{"a"}, maxLogGens+1)...)
	newest := long[len(long)-1]
	first := newest.log[0].gen // long[i] is generation i+1
	if first <= 2 {
		t.Fatal("the log reaches to the beginning")
	}

	var all []string
	for i := range minLogNames + 100 {
		all = append(all, fmt.Sprint(i))
	}
	b := NewBuilder(xds.TypeOf(xds.EndpointType))
	large := []*Snapshot{next(b, nil, all...)}
	for range 2 {
		large = append(large, next(b, large[len(large)-1], all...))
	}
	if len(large[2].log) > 0 {
		t.Fatal("the log has a change with all names")
	}

	// A client pays for a bounded number of names that others want.
	b = NewBuilder(xds.TypeOf(xds.EndpointType))
	many := []*Snapshot{next(b, nil, all...)}
	many = append(many, next(b, many[0], "0"))
	many = append(many, next(b, many[1], all[1:1+maxCompared]...))

	for what, c := range map[string]struct {
		from, to *Snapshot
		sub      *Subscription
		want     int
	}{
		"behind many other names":       {many[0], many[2], namesSub("0"), 0},
		"behind fewer":                  {many[0], many[1], namesSub("0"), 1},
		"all changes":                   {short[0], short[4], wildcardSub(), 4},
		"the last change":               {short[3], short[4], wildcardSub(), 1},
		"changes of a name":             {short[0], short[4], namesSub("a"), 3},
		"changes after from only":       {short[1], short[4], namesSub("a"), 2},
		"changes up to to only":         {short[0], short[2], namesSub("a"), 1},
		"no change of a name":           {short[2], short[4], namesSub("b"), 0},
		"a name that nothing has":       {short[0], short[4], namesSub("c"), 0},
		"as far as the log reaches":     {long[first-2], newest, wildcardSub(), len(newest.log)},
		"one further than that":         {long[first-3], newest, wildcardSub(), 1},
		"nothing was sent":              {nil, short[4], wildcardSub(), 1},
		"another lineage":               {other[1], short[4], wildcardSub(), 1},
		"the same snapshot":             {short[4], short[4], wildcardSub(), 1},
		"an older one":                  {short[4], short[1], wildcardSub(), 1},
		"a change too large to be kept": {large[1], large[2], wildcardSub(), 1},
	} {
		if got := Generations(c.from, c.to, c.sub); got != c.want {
			t.Errorf("%s: %d generations, want %d", what, got, c.want)
		}
	}
}

// A client with few names pays for these names, and not for all names that changed.
func TestChangesOfFewNames(t *testing.T) {
	b := NewBuilder(xds.TypeOf(xds.EndpointType))
	name := func(i int) string { return fmt.Sprintf("n%04d", i) }
	apply := func(s *Snapshot, content string, names ...int) *Snapshot {
		var u Update
		for _, i := range names {
			u.Changed = append(u.Changed, newRes(t, xds.EndpointType, name(i), content))
		}
		b.Apply(u)
		s, _ = b.Snapshot(s, 1)
		return s
	}
	var all []int
	for i := range 1000 {
		all = append(all, i)
	}
	first := apply(nil, "0", all...)
	s := first
	for i := range 400 {
		s = apply(s, "1", 100+i)
	}
	seen := s
	s = apply(s, "2", 1, 2, 500)
	few := namesSub(name(1), name(3), name(5))
	if got := s.Changes(first, few); !slices.Equal(got, []string{name(1)}) {
		t.Errorf("changed: %v", got)
	}
	if got := s.ChangesSince(seen.ID(), first, namesSub(name(1), name(100), name(101))); !slices.Equal(got, []string{name(1)}) {
		t.Errorf("changed since: %v", got)
	}
	none := namesSub(name(3), name(4), name(5))
	if n := testing.AllocsPerRun(100, func() { s.Changes(first, none) }); n > 0 {
		t.Errorf("%v allocations to find that nothing changed", n)
	}
	// The log says that more names changed. Only a comparison by name does not believe it.
	s.log[len(s.log)-1].names = []string{name(1), name(2), name(3), name(4)}
	if got := s.Changes(seen, few); !slices.Equal(got, []string{name(1)}) {
		t.Errorf("the log was read for fewer names than it has: %v", got)
	}
	if got := s.Changes(seen, namesSub(name(3), name(4), name(5), name(6))); !slices.Equal(got, []string{name(3), name(4)}) {
		t.Errorf("the log was not read for more names than it has: %v", got)
	}
}
