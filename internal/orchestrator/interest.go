package orchestrator

import (
	"container/list"
	"time"

	"xdsrelay/internal/xds"
)

// interest is what a group asks for, over all its types: what members want and
// what lingers. It belongs to the group's goroutine.
//
// Names that nobody wants any more wait in one list, oldest first: all wait
// equally long, so the list is in order of when they go, and it never has more
// than is asked for, however often a client changes its mind.
type interest struct {
	linger time.Duration
	limit  int // names_per_key; 0: none

	leaving list.List // of *lingerer
	// frozen: no member is left, or none of those that came since has said what
	// it wants, and everything stays asked for as it was.
	frozen bool
}

// update brings what is asked for up to date with what members want.
func (i *interest) update(views []*view, now time.Time) {
	if i.frozen {
		return
	}
	for _, v := range views {
		var fresh []string
		for _, name := range v.touched {
			e, lingers := v.lingering[name]
			switch wanted := v.index.wants(name); {
			case wanted && lingers:
				i.leaving.Remove(e)
				delete(v.lingering, name)
			case wanted:
				fresh = append(fresh, name)
			case !lingers && v.names.Has(name):
				v.lingering[name] = i.leaving.PushBack(&lingerer{view: v, name: name, until: now.Add(i.linger)})
			}
		}
		v.touched = nil
		v.names = v.names.Add(fresh...)

		switch wanted := v.index.wildcard(); {
		case wanted && v.wildLingers != nil:
			i.leaving.Remove(v.wildLingers)
			v.wildLingers = nil
		case wanted:
			v.wildcard = true
		case v.wildcard && v.wildLingers == nil:
			v.wildLingers = i.leaving.PushBack(&lingerer{view: v, wildcard: true, until: now.Add(i.linger)})
		}
	}
}

// freeze stops everything from leaving.
func (i *interest) freeze(views []*view) {
	i.frozen = true
	i.leaving.Init()
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
	i.frozen = false
	for _, v := range views {
		for name := range v.names.All() {
			v.touched = append(v.touched, name)
		}
	}
}

// next is when something leaves; zero: nothing will.
func (i *interest) next() time.Time {
	if e := i.leaving.Front(); e != nil {
		return e.Value.(*lingerer).until
	}
	return time.Time{}
}

// gone is what leaves of one type.
type gone struct {
	names    []string
	wildcard bool
}

// expire takes out what has lingered long enough, and, oldest first, what takes
// the room of names that are wanted under names_per_key.
func (i *interest) expire(views []*view, now time.Time) map[*view]*gone {
	over := 0
	if i.limit > 0 {
		over = -i.limit
		for _, v := range views {
			over += v.names.Len()
		}
	}
	var out map[*view]*gone
	for e := i.leaving.Front(); e != nil; {
		l := e.Value.(*lingerer)
		due := !l.until.After(now)
		if !due && over <= 0 {
			break
		}
		at := e
		e = e.Next()
		if !due && l.wildcard {
			continue
		}
		i.leaving.Remove(at)
		if out == nil {
			out = make(map[*view]*gone)
		}
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
		over--
	}
	return out
}

// wanted is how many names members want, over all types.
func wanted(views []*view) int {
	n := 0
	for _, v := range views {
		n += len(v.index.names)
	}
	return n
}

// asked is the interest as the origin is to be asked. Of types that nobody
// wants there is nothing in it (P64).
func asked(views []*view) *xds.Interest {
	out := new(xds.Interest)
	for _, v := range views {
		if v.asks() {
			out.Types = append(out.Types, v.interest())
		}
	}
	return out
}

// sameInterest compares what is asked for; sets that share chunks are compared
// by them.
func sameInterest(a, b *xds.Interest) bool {
	if len(a.Types) != len(b.Types) {
		return false
	}
	for i, x := range a.Types {
		y := b.Types[i]
		if x.Type != y.Type || x.Wildcard != y.Wildcard || !x.Names.Equal(y.Names) {
			return false
		}
	}
	return true
}
