package xds

import (
	"cmp"
	"container/list"
	"slices"
	"sync"
)

// Histories keep what was replaced in snapshots for a while, for people who ask
// what a client refused against what it has: sessions keep no old snapshots. They
// are bounded for each type of a key and over all; the oldest goes first.
type Histories struct {
	max, each int64
	// dropped is told how many generations were let go for want of room; nil: nobody.
	dropped func(n int)

	mu    sync.Mutex
	bytes int64
	order list.List // of *past, the oldest first
}

// HistoryBytes and HistoryBytesEach are how much is kept over all, and of one type
// of a key.
const (
	HistoryBytes     = 64 << 20
	HistoryBytesEach = 4 << 20
)

// What a generation costs in a history beside the resources, in bytes, and each
// name in it; and how many there are at most.
const (
	pastCost     = 160
	pastNameCost = 40
	maxPast      = 256
)

// unkept stands for what a history does not keep: what is not to be cached (P63).
var unkept = hollow("")

// NewHistories makes the place of all histories of a process.
func NewHistories(max, each int64, dropped func(n int)) *Histories {
	return &Histories{max: max, each: each, dropped: dropped}
}

// History is what was replaced in one type of a key. The nil History keeps nothing.
// Note and Close belong to who makes the snapshots.
type History struct {
	in *Histories

	// Under the lock of all.
	gens  []*past // the oldest first; what changed nothing is not among them
	since uint64  // the generation from which on all is known; 0: nothing is
	bytes int64
}

// past is what one generation replaced.
type past struct {
	of    *History
	gen   uint64
	names []string // sorted
	was   []entry  // before it
	bytes int64
	at    *list.Element
}

// New makes the history of a type. Of Secrets there is none: nobody is shown them.
func (hs *Histories) New(t Type) *History {
	if hs == nil || t.Secret {
		return nil
	}
	return &History{in: hs}
}

// Note keeps what prev had under names, which changed when s was made of it.
func (h *History) Note(prev, s *Snapshot, names []string) {
	if h == nil {
		return
	}
	if prev == nil || len(names) == 0 {
		h.in.mu.Lock()
		h.since = cmp.Or(h.since, s.Gen)
		h.in.mu.Unlock()
		return
	}
	p := &past{of: h, gen: s.Gen, bytes: pastCost}
	fits := true
	for _, n := range names {
		e := prev.get(n)
		p.bytes += pastNameCost + sizeOfPart(e.wild) + sizeOfPart(e.named)
		if fits = p.bytes <= h.in.each; !fits {
			break
		}
		p.names, p.was = append(p.names, n), append(p.was, e.past())
	}
	h.in.mu.Lock()
	lost := 0
	if !fits {
		// Nothing before it can be told any more.
		lost = len(h.gens) + 1
		h.clear()
		h.since = s.Gen
	} else {
		h.since = cmp.Or(h.since, prev.Gen)
		p.at = h.in.order.PushBack(p)
		h.gens = append(h.gens, p)
		h.bytes += p.bytes
		h.in.bytes += p.bytes
		for h.bytes > h.in.each || len(h.gens) > maxPast {
			h.drop()
			lost++
		}
		for h.in.bytes > h.in.max {
			h.in.order.Front().Value.(*past).of.drop()
			lost++
		}
	}
	h.in.mu.Unlock()
	if lost > 0 && h.in.dropped != nil {
		h.in.dropped(lost)
	}
}

func sizeOfPart(r *Resource) int64 {
	if !there(r) || r.Uncacheable {
		return 0
	}
	return r.Size()
}

// past is the entry as it is kept, without errors.
func (e entry) past() entry {
	keep := func(r *Resource) *Resource {
		if there(r) && r.Uncacheable {
			return unkept
		}
		return r
	}
	return entry{wild: keep(e.wild), named: keep(e.named)}
}

// drop lets go of the oldest generation. Under the lock.
func (h *History) drop() {
	p := h.gens[0]
	h.since = p.gen
	h.gens = slices.Delete(h.gens, 0, 1)
	h.bytes -= p.bytes
	h.in.bytes -= p.bytes
	h.in.order.Remove(p.at)
}

func (h *History) clear() {
	for len(h.gens) > 0 {
		h.drop()
	}
}

// Close lets go of everything.
func (h *History) Close() {
	if h == nil {
		return
	}
	h.in.mu.Lock()
	defer h.in.mu.Unlock()
	h.clear()
}

// Past is a history as it was when it was asked for, with the snapshot that was
// newest then or before.
type Past struct {
	now   *Snapshot
	gens  []*past
	since uint64
}

// Past returns what is kept up to now, which is of the history's lineage.
func (h *History) Past(now *Snapshot) Past {
	if h == nil || now == nil {
		return Past{now: now}
	}
	h.in.mu.Lock()
	defer h.in.mu.Unlock()
	gens := slices.Clone(h.gens)
	for len(gens) > 0 && gens[len(gens)-1].gen > now.Gen {
		gens = gens[:len(gens)-1]
	}
	return Past{now, gens, h.since}
}

// holds reports whether what was in generation gen is still known.
func (p Past) holds(gen uint64) bool {
	return p.now != nil && (gen >= p.now.Gen || p.since > 0 && gen >= p.since)
}

// At returns the resource that a client with sub was given of name at generation
// gen, nil for none; false: it is not held any more.
func (p Past) At(gen uint64, sub *Subscription, name string) (*Resource, bool) {
	if !p.holds(gen) {
		return nil, false
	}
	for _, g := range p.gens {
		if g.gen <= gen {
			continue
		}
		if i, ok := slices.BinarySearch(g.names, name); ok {
			e := g.was[i]
			if e.wild == unkept || e.named == unkept {
				return nil, false
			}
			return e.visible(sub, sub.Names.Has(name)), true
		}
	}
	return p.now.get(name).visible(sub, sub.Names.Has(name)), true
}

// Between returns the names, sorted, of what a client with sub has something else
// of at generation to than at from; false: it is not held any more. From 0 is
// before anything.
func (p Past) Between(from, to uint64, sub *Subscription) ([]string, bool) {
	if !p.holds(to) || from > 0 && !p.holds(from) {
		return nil, false
	}
	var names []string
	if from == 0 {
		p.now.Covered(sub, func(r *Resource) bool {
			names = append(names, r.Name)
			return true
		})
		from = to
		to = p.now.Gen
	}
	for _, g := range p.gens {
		if g.gen > from && g.gen <= to {
			names = append(names, g.names...)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return slices.DeleteFunc(names, func(n string) bool { return !sub.Covers(n) && p.now.get(n).visible(sub, false) == nil }), true
}
