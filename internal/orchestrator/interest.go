package orchestrator

import (
	"container/list"
	"time"

	"xdsrelay/internal/xds"
)

// interest is what a group asks for, over all its types: what members want, and what
// lingers because nobody wants it any more (P52). It belongs to the group's goroutine.
//
// What lingers is in one list, and goes after linger. While the key has no members, or no
// stream is open, the clock stands still: what is held could not be had again (P53). Under
// names_per_key, names that are wanted take the room of names that linger, the oldest first.
type interest struct {
	lingering list.List // of *lingerer, in order of since
	// frozen: no member is left, or none of those that came since has said what
	// it wants.
	frozen bool
	// The clock: it ran for so long, and since from it has run again.
	ran  time.Duration
	runs bool
	from time.Time
}

// lingerer is something that is still asked for though nobody wants it.
type lingerer struct {
	view *View
	partName
	since time.Duration // by the clock
}

// update brings what is asked for up to date with what members want.
func (i *interest) update(views []*View, now time.Time) {
	for _, v := range views {
		var wanted []string
		for _, name := range v.touched {
			switch at := (partName{name: name}); {
			case v.index.HasName(name):
				i.endLinger(v, at)
				wanted = append(wanted, name)
			case v.names.Has(name):
				i.beginLinger(v, at, now)
			}
		}
		v.touched = nil
		v.names = v.names.Add(wanted...)

		switch at := (partName{wildcard: true}); {
		case v.index.HasWildcard():
			i.endLinger(v, at)
			v.wildcard = true
		case v.wildcard:
			i.beginLinger(v, at, now)
		}
	}
}

// linger: nobody wants it any more.
func (i *interest) beginLinger(v *View, at partName, now time.Time) {
	if v.lingering[at] == nil {
		v.lingering[at] = i.lingering.PushBack(&lingerer{v, at, i.clock(now)})
	}
}

// stay ends the lingering of something.
func (i *interest) endLinger(v *View, at partName) {
	if e := v.lingering[at]; e != nil {
		i.lingering.Remove(e)
		delete(v.lingering, at)
	}
}

// drop takes out all of a view.
func (i *interest) drop(v *View) {
	for at := range v.lingering {
		i.endLinger(v, at)
	}
}

// clock is for how long the clock has run.
func (i *interest) clock(now time.Time) time.Duration {
	if i.runs {
		return i.ran + now.Sub(i.from)
	}
	return i.ran
}

// run stops the clock, or lets it run.
func (i *interest) run(on bool, now time.Time) {
	if on != i.runs {
		i.ran, i.runs, i.from = i.clock(now), on, now
	}
}

// next is when something goes; zero: nothing will by time alone.
func (i *interest) next(linger time.Duration) time.Time {
	if e := i.lingering.Front(); e != nil && i.runs {
		return i.from.Add(e.Value.(*lingerer).since + linger - i.ran)
	}
	return time.Time{}
}

// wildcardServes reports whether a member that asks for a name is given the wildcard's
// copy, since there is no other. The wildcard stays until there is one: otherwise the
// member would lose the resource, or keep it after the origin deletes it (P50).
func (v *View) wildcardServes() bool {
	wild, named := v.part(true), v.part(false)
	for name := range v.names.All() {
		if v.index.HasName(name) && !named.Answers(name) && wild.Answers(name) {
			return true
		}
	}
	return false
}

// serves reports whether who asks for name is given a resource, be it the wildcard's (P50).
func serves(s *xds.Snapshot, name string) bool {
	return s.Held(name) != nil || len(s.Linked(name)) > 0
}

// gone is what leaves of one type.
type expired struct {
	names    []string
	wildcard bool
}

// expire takes out what has lingered long enough, and what takes the room of names that
// are wanted under names_per_key.
func (i *interest) expire(views []*View, now time.Time, s *Settings) map[*View]*expired {
	over := 0
	if limit := s.Limits.NamesPerKey; limit > 0 {
		over = -limit
		for _, v := range views {
			over += v.names.Weight()
		}
	}
	out := make(map[*View]*expired)
	for e := i.lingering.Front(); e != nil; {
		l := e.Value.(*lingerer)
		e = e.Next()
		due := i.runs && i.clock(now) >= l.since+s.Linger
		if !due && over <= 0 {
			break
		}
		if !due && l.wildcard {
			continue
		}
		if l.wildcard && l.view.wildcardServes() {
			i.endLinger(l.view, l.partName) // from the next update on it lingers anew
			continue
		}
		i.endLinger(l.view, l.partName)
		if out[l.view] == nil {
			out[l.view] = new(expired)
		}
		if l.wildcard {
			out[l.view].wildcard = true
			continue
		}
		out[l.view].names = append(out[l.view].names, l.name)
		over -= xds.NameWeight(len(l.name))
	}
	return out
}

// wanted is how many names members want, over all types, by their weight.
func wanted(views []*View) int {
	n := 0
	for _, v := range views {
		n += v.index.Weight()
	}
	return n
}

// equalInterest compares what is asked for with what was; sets that share chunks
// are compared by them. What is to be asked for again is always something else.
func equalInterest(a, b *xds.Interest) bool {
	if len(a.Types) != len(b.Types) {
		return false
	}
	for i, x := range a.Types {
		y := b.Types[i]
		if x.Type != y.Type || x.Wildcard != y.Wildcard || !x.Names.Equal(y.Names) || len(x.Again) > 0 {
			return false
		}
	}
	return true
}
