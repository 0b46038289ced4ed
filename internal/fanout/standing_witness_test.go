package fanout

import (
	"maps"
	"slices"

	"pgregory.net/rapid"

	"xdsrelay/internal/xds"
)

// witness is all that there was of a lineage, to hold what a session says that its client
// has against what that does hold.
type witness struct {
	states   []*xds.Snapshot          // each generation once, in order
	contents map[*xds.Resource]string // of resources, as they are read
	had      map[uint64]bool          // generations, when it was looked last
}

// see notes the newest generation.
func (l *witness) see(cur *xds.Snapshot) {
	if cur != nil && (len(l.states) == 0 || l.states[len(l.states)-1].Gen != cur.Gen) {
		l.states = append(l.states, cur)
	}
}

// content is that of a resource.
func (l *witness) content(w *world, r *xds.Resource) string {
	if l.contents == nil {
		l.contents = map[*xds.Resource]string{}
	}
	content, read := l.contents[r]
	if !read {
		_, content = itemOf(w.describe(r))
		l.contents[r] = content
	}
	return content
}

// check fails unless of each version that the client is said to have it holds whatever of
// names that changed, as it was then or later.
func (l *witness) check(rt *rapid.T, w *world, names []string, holds map[string]string) {
	if w.cur == nil || !w.s.began {
		return
	}
	look := newSurvey()
	has, arrears, declined := look.owned(w.s, w.cur, look.unsent(w.s, w.cur))
	l.had = map[uint64]bool{}
	for i, of := range l.states {
		if in := (Span{of.Gen, of.Gen}); of.Gen > has || arrears.Of(in) || declined.Of(in) {
			continue
		}
		l.had[of.Gen] = true
		for _, n := range names {
			if from, to, old := of.ChangedIn(n); to != of.Gen && (from > 0 || old < of.Gen) {
				continue
			}
			if content, held := holds[n]; !l.fits(w, l.states[i:], n, content, held) {
				rt.Fatalf("generation %d is had (%d of %d, but for %v, declined %v), and of %s, which it changed, the client holds %q (asks for %v)", of.Gen, has, w.cur.Gen, arrears, declined, n, content, slices.Collect(w.s.sub.Names.All()))
			}
		}
	}
}

// fits reports whether what the client holds of a name is as it was in any of the states,
// as far as it is told.
func (l *witness) fits(w *world, states []*xds.Snapshot, name, content string, held bool) bool {
	quiet := w.s.variant == xds.SotW && !w.s.full()
	return !held && quiet || slices.ContainsFunc(states, func(of *xds.Snapshot) bool {
		switch r, is := of.Look(w.s.sub, name); is {
		case xds.Pending, xds.Lapsed:
			return true // nobody said anything of it since it moved
		case xds.Present:
			return held && l.content(w, r) == content
		}
		return !held || quiet // it is not told
	})
}

// keeps fails where the client is said not to have a version any more that it had when it
// was looked before.
func (l *witness) keeps(rt *rapid.T, before map[uint64]bool) {
	for _, gen := range slices.Sorted(maps.Keys(before)) {
		if !l.had[gen] {
			rt.Fatalf("generation %d was had, and is not any more", gen)
		}
	}
}

// complete fails unless the client has everything and refuses nothing.
func (l *witness) complete(rt *rapid.T, w *world) {
	if w.cur == nil {
		return
	}
	look := newSurvey()
	unsent := look.unsent(w.s, w.cur)
	has, arrears, declined := look.owned(w.s, w.cur, unsent)
	if has != w.cur.Gen || !arrears.None() || !declined.None() || w.s.refusing() || unsent {
		rt.Fatalf("all is taken, and the client has %d of %d, but for %v, declined %v, refuses something: %v, something is not sent: %v", has, w.cur.Gen, arrears, declined, w.s.refusing(), unsent)
	}
}
