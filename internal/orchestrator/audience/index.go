package audience

import (
	"strings"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// index finds the subscribers that subscribe to a name. Its path is: name -> chunks that have
// the name -> subscriptions that have the chunk -> subscribers. Subscriptions are interned and
// share chunks. So a set that grows by one name costs the names of one chunk, and one
// comparison for each other chunk. Use newIndex.
type index[M comparable] struct {
	names  map[string]set[*chunk[M]]
	chunks map[*xds.Chunk]*chunk[M]
	subs   map[*snapshot.Subscription]*subscribers[M]
	wild   set[*subscribers[M]] // subscriptions with the wildcard
	weight int                  // of names
	round  uint64               // counts the calls of affected
}

// chunk is a run of names of at least one subscription.
type chunk[M comparable] struct{ subs set[*subscribers[M]] }

// subscribers is a subscription with its subscribers, at least one.
type subscribers[M comparable] struct {
	sub         *snapshot.Subscription
	subscribers set[M]
	round       uint64 // the last affected that yielded its subscribers
}

func newIndex[M comparable]() index[M] {
	return index[M]{
		names:  make(map[string]set[*chunk[M]]),
		chunks: make(map[*xds.Chunk]*chunk[M]),
		subs:   make(map[*snapshot.Subscription]*subscribers[M]),
	}
}

func (x *index[M]) hasName(name string) bool { _, ok := x.names[name]; return ok }

func (x *index[M]) hasWildcard() bool { return x.wild.len() > 0 }

// Weight is the number of different names, by their weight: see xds.NameWeight.
func (x *index[M]) Weight() int { return x.weight }

// growsBy reports whether the weight would grow by more than room if a subscriber replaced its
// subscription was by sub. It looks at no more names than that takes.
func (x *index[M]) growsBy(was, sub *snapshot.Subscription, room int) bool {
	for name, added := range was.Names.Diff(sub.Names) {
		if !added && x.hasOneSubscriber(name) {
			room += xds.NameWeight(len(name))
		}
	}
	for name, added := range was.Names.Diff(sub.Names) {
		if added && !x.hasName(name) {
			if room -= xds.NameWeight(len(name)); room < 0 {
				return true
			}
		}
	}
	return false
}

func (x *index[M]) hasOneSubscriber(name string) bool {
	of := x.names[name]
	return of.len() == 1 && of.list[0].subs.len() == 1 && of.list[0].subs.list[0].subscribers.len() == 1
}

// Empty reports whether no subscriber subscribes to anything.
func (x *index[M]) Empty() bool {
	return len(x.names)+len(x.chunks)+len(x.subs)+x.wild.len() == 0
}

// replace changes a subscriber's subscription from was to sub. It appends to touched the names that
// got their first subscriber or lost their last one. Some of them may have done both.
func (x *index[M]) replace(m M, was, sub *snapshot.Subscription, touched []string) []string {
	s := x.subs[was]
	if s == nil || s.subscribers.len() > 1 || x.subs[sub] != nil || sub.Empty() {
		// In this order, chunks that both have are not removed.
		touched = x.put(m, sub, touched)
		return x.remove(m, was, touched)
	}
	// The only subscriber of a subscription changes it, for example by one name. Its entry stays,
	// and the chunks that both sets share are not touched.
	delete(x.subs, was)
	x.subs[sub] = s
	s.sub = sub
	if was.Wildcard != sub.Wildcard {
		if sub.Wildcard {
			x.wild.add(s)
		} else {
			x.wild.remove(s)
		}
	}
	gone, fresh := differing(was.Names.Chunks(), sub.Names.Chunks())
	for _, of := range fresh {
		touched = x.link(s, of, touched)
	}
	for _, of := range gone {
		touched = x.unlink(s, of, touched)
	}
	return touched
}

// differing returns the chunks that only a has, and those that only b has. Both are in the
// order of their names.
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

func (x *index[M]) put(m M, sub *snapshot.Subscription, touched []string) []string {
	if sub.Empty() {
		return touched
	}
	s := x.subs[sub]
	if s == nil {
		s = &subscribers[M]{sub: sub}
		x.subs[sub] = s
		if sub.Wildcard {
			x.wild.add(s)
		}
		for _, of := range sub.Names.Chunks() {
			touched = x.link(s, of, touched)
		}
	}
	s.subscribers.add(m)
	return touched
}

func (x *index[M]) remove(m M, sub *snapshot.Subscription, touched []string) []string {
	if sub.Empty() {
		return touched
	}
	s := x.subs[sub]
	if s == nil {
		return touched
	}
	s.subscribers.remove(m)
	if s.subscribers.len() > 0 {
		return touched
	}
	delete(x.subs, sub)
	if sub.Wildcard {
		x.wild.remove(s)
	}
	for _, of := range sub.Names.Chunks() {
		touched = x.unlink(s, of, touched)
	}
	return touched
}

// link adds a subscription to a chunk.
func (x *index[M]) link(s *subscribers[M], of *xds.Chunk, touched []string) []string {
	c := x.chunks[of]
	if c == nil {
		c = new(chunk[M])
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
	c.subs.add(s)
	return touched
}

func (x *index[M]) unlink(s *subscribers[M], of *xds.Chunk, touched []string) []string {
	c := x.chunks[of]
	if c == nil {
		return touched
	}
	if c.subs.remove(s); c.subs.len() > 0 {
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
