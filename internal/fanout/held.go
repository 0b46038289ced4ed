package fanout

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"xdsrelay/internal/xds"
)

// held is a set of resources that clients have though they are gone, since
// their removal waits (P36). It is immutable; nil is the empty one. Sessions in
// step alike share it, so that a removal which thousands of streams see costs
// each of them a pointer; and since frames are named by the sets' identity
// (frameKey), they share the frames as well.
//
// A copy of the names in each session is the alternative: it costs streams ×
// names, and nothing cheap would say that two streams are in the same situation.
// Pointing to the older snapshot instead would keep all of it alive.
type held struct {
	items []heldItem // sorted by name
	// newest round that was given in the sets that this one was made from, in
	// order. Rounds are counted and not taken from generations: the State that a
	// client is to see may be of another lineage, or go back.
	newest uint32
	bytes  int64
	hash   uint64
	// handles that lead to any of them; nil for none.
	handles map[string]struct{}
}

type heldItem struct {
	r     *xds.Resource // as the client has it
	round uint32        // in which it was first seen to be gone
}

var heldSeed = maphash.MakeSeed()

// newHeld makes the set of these, which are sorted.
func newHeld(items []heldItem, newest uint32) *held {
	if len(items) == 0 {
		return nil
	}
	h := &held{items: items, newest: newest}
	var sum maphash.Hash
	sum.SetSeed(heldSeed)
	for _, it := range items {
		maphash.WriteComparable(&sum, it)
		h.bytes += it.r.Size()
		for _, handle := range it.r.Handles() {
			if h.handles == nil {
				h.handles = make(map[string]struct{})
			}
			h.handles[handle] = struct{}{}
		}
	}
	h.hash = sum.Sum64()
	return h
}

func (h *held) all() []heldItem {
	if h == nil {
		return nil
	}
	return h.items
}

// get returns the item of name; the zero one if there is none.
func (h *held) get(name string) heldItem {
	items := h.all()
	i, ok := slices.BinarySearchFunc(items, name, func(it heldItem, n string) int { return strings.Compare(it.r.Name, n) })
	if !ok {
		return heldItem{}
	}
	return items[i]
}

// rounds is how many there were.
func (h *held) rounds() uint32 {
	if h == nil {
		return 0
	}
	return h.newest
}

// size is what the set keeps alive, in bytes.
func (h *held) size() int64 {
	if h == nil {
		return 0
	}
	return h.bytes
}

func (h *held) equal(o *held) bool {
	return h == o || h != nil && o != nil && h.newest == o.newest && slices.Equal(h.items, o.items)
}

// after returns what came after a round.
func (h *held) after(round uint32) *held {
	early := func(it heldItem) bool { return it.round <= round }
	if !slices.ContainsFunc(h.all(), early) {
		return h
	}
	return newHeld(slices.DeleteFunc(slices.Clone(h.items), early), h.newest)
}

// appendNames appends the names, and the handles that lead to them.
func (h *held) appendNames(names []string) []string {
	if h == nil {
		return names
	}
	for _, it := range h.items {
		names = append(names, it.r.Name)
	}
	for handle := range h.handles {
		names = append(names, handle)
	}
	return names
}

// leads reports whether a handle leads to any of them.
func (h *held) leads(handle string) bool {
	if h == nil {
		return false
	}
	_, ok := h.handles[handle]
	return ok
}

// with returns the resources, sorted by name, and those of the set among them.
func (h *held) with(rs []*xds.Resource) []*xds.Resource {
	if h == nil {
		return rs
	}
	for _, it := range h.items {
		rs = append(rs, it.r)
	}
	slices.SortFunc(rs, func(a, b *xds.Resource) int { return strings.Compare(a.Name, b.Name) })
	return rs
}

// heldKey names what the sets of a session follow from: those who have it in
// common get the same.
type heldKey struct {
	sub, by      *xds.Subscription // what the client asks for, and by what it was sent
	lineage, gen uint64            // what it has been sent
	over         *held             // and what it has besides
	parts        uint64            // beyond that (P38)
	noted        *held             // what was seen to be gone before
	let          uint32            // the newest round that is let go
}

// heldSets are what a client has and is gone, and the part of it that is still
// held back.
type heldSets struct {
	noted, keep *held
	again       bool // something went, came back and went again before the client was told of any of that
}

// heldTable shares the sets that follow from a snapshot. It lives with the
// snapshot's frames. It takes no lock that another is taken under.
type heldTable struct {
	sets sync.Map // heldKey -> heldSets, hash -> *held
	size atomic.Int64
}

// maxHeldTable bounds a table, in items of its sets: some 40 bytes each. What is
// not in it is made again.
const (
	maxHeldTable = 1 << 18
	heldKeyCost  = 5 // of a key, in items
)

// find returns the sets of k, whose client was sent first and parts, and is to
// see to.
func (t *heldTable) find(k *heldKey, first base, parts *progress, to *xds.Snapshot) heldSets {
	if have, ok := t.sets.Load(*k); ok {
		return have.(heldSets)
	}
	noted := t.share(k.gone(first, parts, to))
	return store(t, *k, heldSets{noted, t.share(noted.after(k.let)), k.again(noted)}, heldKeyCost)
}

// share returns the one set of this content: streams that came to it over
// different ways are in the same situation.
func (t *heldTable) share(h *held) *held {
	if h == nil {
		return nil
	}
	if one := store(t, h.hash, h, 1+len(h.items)); one.equal(h) {
		return one
	}
	return h
}

// store returns what the table has for k: v, if it had nothing. Where there is no
// room, v is only returned.
func store[K, V any](t *heldTable, k K, v V, cost int) V {
	if t.size.Add(int64(cost)) > maxHeldTable {
		t.size.Add(-int64(cost))
		if have, ok := t.sets.Load(k); ok {
			return have.(V)
		}
		return v
	}
	have, old := t.sets.LoadOrStore(k, v)
	if old {
		t.size.Add(-int64(cost))
	}
	return have.(V)
}

// gone is what the client has and the origin removed. What was not seen before
// is of a new round.
func (k *heldKey) gone(first base, parts *progress, to *xds.Snapshot) *held {
	names := parts.candidates(first, to, k.sub)
	sortUnique(&names)
	var items []heldItem
	newest := k.noted.rounds()
	for _, name := range names {
		b := parts.at(first, name)
		had, was := b.look(k.sub, name)
		if was != xds.Present || !gone(to, b.sentBy(k.sub), k.sub, name, had) {
			continue
		}
		it := heldItem{r: had, round: k.noted.get(name).round}
		if it.round == 0 {
			it.round = k.noted.rounds() + 1
			newest = it.round
		}
		items = append(items, it)
	}
	if h := newHeld(items, newest); !h.equal(k.noted) {
		return h
	}
	return k.noted
}

// again reports whether anything of a new round was held back before.
func (k *heldKey) again(noted *held) bool {
	return k.over != nil && slices.ContainsFunc(noted.all(), func(it heldItem) bool {
		return it.round > k.noted.rounds() && k.over.get(it.r.Name).r != nil
	})
}

// gone reports whether the origin removed what a client had by the subscription
// by, and wants by sub. A name that the client gave up beside the wildcard is
// not the origin's removal (P24).
func gone(to *xds.Snapshot, by, sub *xds.Subscription, name string, had *xds.Resource) bool {
	if _, is := see(to, sub, nil, name, had, xds.Present); is != xds.Absent {
		return false
	}
	_, is := to.Look(by, name)
	return is != xds.Present
}

// view is what a client by sub knows of name that has s, and h besides.
func view(s *xds.Snapshot, sub *xds.Subscription, h *held, name string) (*xds.Resource, xds.Presence) {
	r, is := s.Look(sub, name)
	if is != xds.Present && h != nil {
		if it := h.get(name); it.r != nil && (sub.Covers(name) || it.r.AskedBy(sub.Names)) {
			return it.r, xds.Present
		}
		if h.leads(name) && sub.Covers(name) {
			return nil, xds.Elsewhere
		}
	}
	return r, is
}
