package orchestrator

import (
	"strings"

	"xdsrelay/internal/xds"
)

// index leads from a name to the members that want it. It has one entry a set
// and not one a member: name -> chunks that hold it -> subscriptions that have
// the chunk -> members. Subscriptions are interned and their chunks shared, so
// a set that grew by one name costs the names of the chunk that changed, and a
// word for each of the others.
//
// It belongs to the group's goroutine.
type index struct {
	names  map[string]bag[*chunk]
	chunks map[*xds.Chunk]*chunk
	subs   map[*xds.Subscription]*wanter
	wild   bag[*wanter] // those with the wildcard
	weight int          // of names
}

// chunk stands for a run of names that a few subscriptions, at least one, hold.
type chunk struct{ subs bag[*wanter] }

// wanter is a subscription with its members, never none.
type wanter struct {
	sub     *xds.Subscription
	members bag[*member]
	woken   uint64 // the round in which it was last woken
}

func newIndex() index {
	return index{
		names:  make(map[string]bag[*chunk]),
		chunks: make(map[*xds.Chunk]*chunk),
		subs:   make(map[*xds.Subscription]*wanter),
	}
}

// wants reports whether any subscription lists name.
func (x *index) wants(name string) bool { _, ok := x.names[name]; return ok }

// wildcard reports whether any subscription has the wildcard.
func (x *index) wildcard() bool { return x.wild.len() > 0 }

// replace gives a member another subscription. It appends to touched the names
// whose first asker came or whose last one left; some may be there for nothing.
func (x *index) replace(m *member, was, sub *xds.Subscription, touched []string) []string {
	w := x.subs[was]
	if w == nil || w.members.len() > 1 || x.subs[sub] != nil || sub.Empty() {
		// In this order, so that chunks that both have are not taken out.
		touched = x.put(m, sub, touched)
		return x.remove(m, was, touched)
	}
	// One client changes its own set, as one does that grows it name by name:
	// its entry stays, and what both sets share is passed over.
	delete(x.subs, was)
	x.subs[sub] = w
	w.sub = sub
	if was.Wildcard != sub.Wildcard {
		if sub.Wildcard {
			x.wild.add(w)
		} else {
			x.wild.remove(w)
		}
	}
	gone, fresh := differing(was.Names.Chunks(), sub.Names.Chunks())
	for _, of := range fresh {
		touched = x.link(w, of, touched)
	}
	for _, of := range gone {
		touched = x.unlink(w, of, touched)
	}
	return touched
}

// differing returns the chunks that only a has, and those that only b has. Both
// are in the order of their names, so one that they share is met in both at
// once.
func differing(a, b []*xds.Chunk) (onlyA, onlyB []*xds.Chunk) {
	for len(a) > 0 && len(b) > 0 {
		if a[0] == b[0] {
			a, b = a[1:], b[1:]
			continue
		}
		order := strings.Compare(a[0].Names()[0], b[0].Names()[0])
		if order <= 0 {
			onlyA, a = append(onlyA, a[0]), a[1:]
		}
		if order >= 0 {
			onlyB, b = append(onlyB, b[0]), b[1:]
		}
	}
	return append(onlyA, a...), append(onlyB, b...)
}

// put adds a member.
func (x *index) put(m *member, sub *xds.Subscription, touched []string) []string {
	if sub.Empty() {
		return touched
	}
	w := x.subs[sub]
	if w == nil {
		w = &wanter{sub: sub}
		x.subs[sub] = w
		if sub.Wildcard {
			x.wild.add(w)
		}
		for _, of := range sub.Names.Chunks() {
			touched = x.link(w, of, touched)
		}
	}
	w.members.add(m)
	return touched
}

// remove takes a member out.
func (x *index) remove(m *member, sub *xds.Subscription, touched []string) []string {
	if sub.Empty() {
		return touched
	}
	w := x.subs[sub]
	if w == nil {
		return touched
	}
	w.members.remove(m)
	if w.members.len() > 0 {
		return touched
	}
	delete(x.subs, sub)
	if sub.Wildcard {
		x.wild.remove(w)
	}
	for _, of := range sub.Names.Chunks() {
		touched = x.unlink(w, of, touched)
	}
	return touched
}

// link leads from the names of a chunk to a subscription.
func (x *index) link(w *wanter, of *xds.Chunk, touched []string) []string {
	c := x.chunks[of]
	if c == nil {
		c = new(chunk)
		x.chunks[of] = c
		for _, name := range of.Names() {
			b := x.names[name]
			if b.len() == 0 {
				touched = append(touched, name)
				x.weight += xds.NameWeight(len(name))
			}
			b.add(c)
			x.names[name] = b
		}
	}
	c.subs.add(w)
	return touched
}

// unlink undoes link.
func (x *index) unlink(w *wanter, of *xds.Chunk, touched []string) []string {
	c := x.chunks[of]
	if c == nil {
		return touched
	}
	if c.subs.remove(w); c.subs.len() > 0 {
		return touched
	}
	delete(x.chunks, of)
	for _, name := range of.Names() {
		b := x.names[name]
		if b.remove(c); b.len() > 0 {
			x.names[name] = b
			continue
		}
		delete(x.names, name)
		x.weight -= xds.NameWeight(len(name))
		touched = append(touched, name)
	}
	return touched
}

// everything is the subscription of a wildcard client that lists no name.
var everything = &xds.Subscription{Wildcard: true}

// everythingWithState is that of such a client that brought state.
var everythingWithState = &xds.Subscription{Wildcard: true, HasState: true}

// affected calls wake once for each subscription whose clients see something
// else in next than in prev, in round, which is a new number each time. The
// cost follows what changed and who is affected: who wants other names costs
// nothing.
func (x *index) affected(prev, next *xds.Snapshot, round uint64, wake func(*wanter)) {
	once := func(w *wanter) {
		if w.woken != round {
			w.woken = round
			wake(w)
		}
	}
	if prev == next {
		return
	}
	// An empty answer is one (P11), and what it left out is absent for those who
	// listed it as well (P25). A client that brought state waits for all of the
	// answer (P67).
	first := answered(prev) != answered(next)
	if first || prev.AnswersWildcard(everythingWithState) != next.AnswersWildcard(everythingWithState) {
		for _, w := range x.wild.list {
			if first || w.sub.HasState {
				once(w)
			}
		}
	}
	for _, name := range next.Changes(prev, everything) {
		d := difference{prev: prev, next: next, name: name}
		d.handled()
		for _, c := range x.names[name].list {
			for _, w := range c.subs.list {
				if w.woken != round && d.seenBy(w.sub, true) {
					once(w)
				}
			}
		}
		for _, w := range x.wild.list {
			if w.woken != round && d.seenBy(w.sub, w.sub.Names.Has(name)) {
				once(w)
			}
		}
		if d.byHandles {
			x.byHandle(&d, round, once)
		}
	}
}

// renewed calls wake once for each subscription that has names whose TTL was
// renewed between the two (P62), but for those that were woken in the round.
func (x *index) renewed(prev, next *xds.Snapshot, round uint64, wake func(*wanter)) {
	once := func(w *wanter) {
		if w.woken != round {
			w.woken = round
			wake(w)
		}
	}
	for i, name := range next.Renewed(prev, everything) {
		for _, c := range x.names[name].list {
			for _, w := range c.subs.list {
				once(w)
			}
		}
		next.HandlesAt(name, func(handle string) bool {
			for _, c := range x.names[handle].list {
				for _, w := range c.subs.list {
					once(w)
				}
			}
			return true
		})
		if i == 0 { // what a name is to one with the wildcard, it is to all of them
			for _, w := range x.wild.list {
				once(w)
			}
		}
	}
}

func answered(s *xds.Snapshot) bool { return s != nil && s.Answered }

// difference of one name between two snapshots. What a client sees of a name
// depends on whether it lists it, has the wildcard, and brought state, and on nothing
// else: each of the ways is looked at once. Unless the resource
// goes by more than its name.
type difference struct {
	prev, next *xds.Snapshot
	name       string
	byHandles  bool
	looked     [8]bool
	seen       [8]bool
}

func (d *difference) seenBy(sub *xds.Subscription, listed bool) bool {
	if d.byHandles {
		return d.sees(sub)
	}
	way := 0
	if listed {
		way |= 1
	}
	if sub.Wildcard {
		way |= 2
	}
	if sub.HasState {
		way |= 4
	}
	if !d.looked[way] {
		d.looked[way], d.seen[way] = true, d.sees(sub)
	}
	return d.seen[way]
}
