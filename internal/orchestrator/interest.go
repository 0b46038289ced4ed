package orchestrator

import (
	"container/list"
	"time"

	"xdsrelay/internal/xds"
)

// interest is what a group asks for, over all its types: what members want and
// what lingers. It belongs to the group's goroutine.
//
// Names that nobody wants any more wait in a list, oldest first. All in it wait
// equally long, so it is in order of when they go. After linger has become shorter,
// what came later waits for what came before. The list never has more than is asked
// for, however often a client changes its mind. What a key kept while it had no
// members waits in a list of its own, since it waits longer. A third list has what
// lingered long enough but stays: what is held while no stream is open, since it
// could not be had again (P53), and a wildcard that serves names.
type interest struct {
	leaving, kept, away list.List // of *lingerer
	// frozen: no member is left, or none of those that came since has said what
	// it wants, and everything stays asked for as it was.
	frozen bool
	// thawed: the next update is the first one after that.
	thawed bool
	// open: a stream was, when it was looked last.
	open bool
}

// revive is for how long at least a key keeps what it had without members once
// the first is back, however short linger is: a client asks for one type after
// the other, and often for more names of each, and what is held is to be there
// for it when it does (P53).
const revive = 10 * time.Second

// update brings what is asked for up to date with what members want.
func (i *interest) update(views []*view, now time.Time, linger time.Duration) {
	if i.frozen {
		return
	}
	wait := &i.leaving
	until := now.Add(linger)
	if i.thawed && linger < revive {
		wait, until = &i.kept, now.Add(revive)
	}
	i.thawed = false
	for _, v := range views {
		var fresh []string
		for _, name := range v.touched {
			e, lingers := v.lingering[name]
			switch wanted := v.index.wants(name); {
			case wanted && lingers:
				i.stay(e)
				delete(v.lingering, name)
			case wanted:
				fresh = append(fresh, name)
			case !lingers && v.names.Has(name):
				v.lingering[name] = wait.PushBack(&lingerer{view: v, name: name, in: wait, until: until})
			}
		}
		v.touched = nil
		v.names = v.names.Add(fresh...)

		switch wanted := v.index.wildcard(); {
		case wanted && v.wildLingers != nil:
			i.stay(v.wildLingers)
			v.wildLingers = nil
		case wanted:
			v.wildcard = true
		case v.wildcard && v.wildLingers == nil:
			v.wildLingers = wait.PushBack(&lingerer{view: v, wildcard: true, in: wait, until: until})
		}
	}
}

// stay: what lingered is wanted again.
func (i *interest) stay(e *list.Element) { e.Value.(*lingerer).in.Remove(e) }

// freeze stops everything from leaving.
func (i *interest) freeze(views []*view) {
	i.frozen, i.thawed = true, false
	i.leaving.Init()
	i.kept.Init()
	i.away.Init()
	for _, v := range views {
		clear(v.lingering)
		v.wildLingers, v.touched = nil, nil
	}
}

// thaw ends freeze: a member has said what it wants. That one has joined is not
// enough, since what is held for it would be gone before it asks (P53). What
// stayed over and is not wanted lingers from the next update on.
func (i *interest) thaw(views []*view) {
	if !i.frozen {
		return
	}
	i.frozen, i.thawed = false, true
	for _, v := range views {
		for name := range v.names.All() {
			v.touched = append(v.touched, name)
		}
	}
}

// next is when something leaves; zero: nothing will by time alone.
func (i *interest) next() time.Time {
	var first time.Time
	for _, wait := range [...]*list.List{&i.kept, &i.leaving} {
		if e := wait.Front(); e != nil {
			if at := e.Value.(*lingerer).until; first.IsZero() || at.Before(first) {
				first = at
			}
		}
	}
	return first
}

// waiting are the lists of what lingers, that of the older first.
func (i *interest) waiting() [3]*list.List { return [...]*list.List{&i.away, &i.kept, &i.leaving} }

// stays has what lingered wait for a stream that is open.
func (i *interest) stays(e *list.Element) {
	l := e.Value.(*lingerer)
	i.stay(e)
	l.in = &i.away
	l.lingers(i.away.PushBack(l))
}

// back has what waited for a stream linger from now on, for as long as it has not yet
// while one was open.
func (i *interest) back(now time.Time, linger time.Duration) {
	for e := i.away.Front(); e != nil; e = i.away.Front() {
		l := e.Value.(*lingerer)
		i.stay(e)
		if !l.back || l.left > linger {
			l.left = linger
		}
		l.in, l.until, l.back = &i.leaving, now.Add(l.left), true
		l.lingers(i.leaving.PushBack(l))
	}
}

// lost has what waited for a stream wait for the next one: or an origin that comes and goes
// would have it wait for ever.
func (i *interest) lost(now time.Time) {
	for e := i.leaving.Front(); e != nil; {
		at := e
		e = e.Next()
		if l := at.Value.(*lingerer); l.back && l.holds() {
			l.left = l.until.Sub(now)
			i.stays(at)
		}
	}
}

// lingers notes the place of what lingers.
func (l *lingerer) lingers(at *list.Element) {
	if l.wildcard {
		l.view.wildLingers = at
	} else {
		l.view.lingering[l.name] = at
	}
}

// holds reports whether an answer of the origin to it is held.
func (l *lingerer) holds() bool {
	part := l.view.part(l.wildcard)
	if l.wildcard {
		return part.Answered()
	}
	return !part.Silent(l.name)
}

// wildcardServes reports whether a member that asks for a name is given the wildcard's
// copy, since there is no other. The wildcard stays until there is one: otherwise the
// member would lose the resource, or keep it after the origin deletes it (P50).
func (v *view) wildcardServes() bool {
	wild, named := v.part(true), v.part(false)
	for name := range v.names.All() {
		if v.index.wants(name) && !named.Answers(name) && wild.Answers(name) {
			return true
		}
	}
	return false
}

// holds reports whether not all that is held of a view merely waits for a stream.
func (i *interest) holds(v *view) bool {
	s := v.held.Load()
	waits := func(e *list.Element) bool { return e != nil && e.Value.(*lingerer).in == &i.away }
	if i.away.Len() == 0 || answered(s) && !waits(v.wildLingers) {
		return true
	}
	for name := range v.names.All() {
		if !waits(v.lingering[name]) && (!s.Part(false).Silent(name) || serves(s, name)) {
			return true
		}
	}
	return false
}

// serves reports whether who asks for name is given a resource, be it the wildcard's (P50).
func serves(s *xds.Snapshot, name string) bool {
	return s.Held(name) != nil || len(s.Linked(name)) > 0
}

// waits is a view of which all that is asked for merely waits for a stream, that which has waited
// longest; nil: there is none.
func (i *interest) waits() *view {
	waiting := make(map[*view]int)
	for e := i.away.Front(); e != nil; e = e.Next() {
		waiting[e.Value.(*lingerer).view]++
	}
	for e := i.away.Front(); e != nil; e = e.Next() {
		v := e.Value.(*lingerer).view
		n := v.names.Len()
		if v.wildcard {
			n++
		}
		if v.members == 0 && waiting[v] == n {
			return v
		}
	}
	return nil
}

// drop takes out all of a view, which is let go of.
func (i *interest) drop(v *view) {
	for _, e := range v.lingering {
		i.stay(e)
	}
	if v.wildLingers != nil {
		i.stay(v.wildLingers)
	}
}

// gone is what leaves of one type.
type gone struct {
	names    []string
	wildcard bool
}

// expire takes out what has lingered long enough, but for what is held while no stream
// is open and a wildcard that serves names, and, oldest first, what takes the room of
// names that are wanted under names_per_key, which is limit; 0: none.
func (i *interest) expire(views []*view, now time.Time, limit int, open bool) map[*view]*gone {
	over := 0
	if limit > 0 {
		over = -limit
		for _, v := range views {
			over += v.names.Weight()
		}
	}
	out := make(map[*view]*gone)
	for _, wait := range i.waiting() {
		for e := wait.Front(); e != nil; {
			l := e.Value.(*lingerer)
			due := !l.until.After(now) && wait != &i.away
			if !due && over <= 0 {
				break
			}
			at := e
			e = e.Next()
			if !due && l.wildcard {
				continue
			}
			if due && (!open && (over <= 0 || l.wildcard) && l.holds() || l.wildcard && l.view.wildcardServes()) {
				i.stays(at)
				continue
			}
			wait.Remove(at)
			if out[l.view] == nil {
				out[l.view] = new(gone)
			}
			if l.wildcard {
				l.view.wildLingers = nil
				out[l.view].wildcard = true
				continue
			}
			delete(l.view.lingering, l.name)
			out[l.view].names = append(out[l.view].names, l.name)
			over -= xds.NameWeight(len(l.name))
		}
	}
	return out
}

// wanted is how many names members want, over all types, by their weight.
func wanted(views []*view) int {
	n := 0
	for _, v := range views {
		n += v.index.weight
	}
	return n
}

// sameInterest compares what is asked for with what was; sets that share chunks
// are compared by them. What is to be asked for again is always something else.
func sameInterest(a, b *xds.Interest) bool {
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
