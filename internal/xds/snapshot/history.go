package snapshot

import (
	"cmp"
	"container/list"
	"slices"
	"sync"

	"xdsrelay/internal/xds"
)

// Histories keep replaced resources for a while. An operator can then compare what a client NACKed
// with what it has; sessions keep no old snapshots. There is a limit for each type of a key and one
// for all together. The oldest generation is dropped first. Histories are safe for concurrent use.
type Histories struct {
	maxBytes, maxBytesEach int64
	// onDrop gets the number of generations that were dropped for lack of room; may be nil.
	onDrop func(n int)

	mu     sync.Mutex
	bytes  int64
	oldest list.List // of *generation, the oldest first
}

// HistoryBytes limits all histories of a process, and HistoryBytesEach one type of a key. In bytes.
const (
	HistoryBytes     = 64 << 20
	HistoryBytesEach = 4 << 20
)

// The cost of a generation and of each name in it, in bytes, without the resources; and the maximum
// number of generations.
const (
	historyGenerationBytes = 160
	historyNameBytes       = 40
	historyMaxGenerations  = 256
)

// uncacheableMark stands for a resource that must not be cached (P63), which a history does not
// keep.
var uncacheableMark = xds.NewPlaceholder("")

// NewHistories returns the histories of a process. max and each are limits in bytes. dropped is
// called with the number of generations that were dropped for lack of room; it may be nil.
func NewHistories(max, each int64, dropped func(n int)) *Histories {
	return &Histories{maxBytes: max, maxBytesEach: each, onDrop: dropped}
}

// New returns the history of a type; nil for Secrets, which the relay never shows.
func (hs *Histories) New(t xds.Type) *History {
	if hs == nil || t.Secret {
		return nil
	}
	return &History{all: hs}
}

// History has what was replaced in one type of a key. A nil History keeps nothing. Only the
// goroutine that makes the snapshots calls Note and Close.
type History struct {
	all *Histories

	// Protected by all.mu.
	generations []*generation // the oldest first; only those that changed something
	firstKnown  uint64        // the first generation that is known; 0 if none is
	bytes       int64
}

// generation has what one generation replaced.
type generation struct {
	history *History
	gen     uint64
	names   []string // sorted
	before  []entry  // the earlier entries of names
	bytes   int64
	element *list.Element
}

// Note keeps what prev had of names. s was made from prev, and changed these names.
func (h *History) Note(prev, s *Snapshot, names []string) {
	if h == nil {
		return
	}
	if prev == nil || len(names) == 0 {
		h.all.mu.Lock()
		h.firstKnown = cmp.Or(h.firstKnown, s.Gen)
		h.all.mu.Unlock()
		return
	}
	g := &generation{history: h, gen: s.Gen, bytes: historyGenerationBytes}
	fits := true
	for _, n := range names {
		e := prev.get(n)
		if e.onlyResent(s.get(n)) {
			continue // P33: what replaced it says the same
		}
		g.bytes += historyNameBytes + historySize(e.wildcard) + historySize(e.named)
		if fits = g.bytes <= h.all.maxBytesEach; !fits {
			break
		}
		g.names, g.before = append(g.names, n), append(g.before, e.withoutUncacheable())
	}
	h.all.mu.Lock()
	lost := 0
	if !fits {
		// The change is too large to keep, so no earlier generation can be restored.
		lost = len(h.generations) + 1
		h.clear()
		h.firstKnown = s.Gen
	} else {
		h.firstKnown = cmp.Or(h.firstKnown, prev.Gen)
		g.element = h.all.oldest.PushBack(g)
		h.generations = append(h.generations, g)
		h.bytes += g.bytes
		h.all.bytes += g.bytes
		for h.bytes > h.all.maxBytesEach || len(h.generations) > historyMaxGenerations {
			h.dropOldest()
			lost++
		}
		for h.all.bytes > h.all.maxBytes {
			h.all.oldest.Front().Value.(*generation).history.dropOldest()
			lost++
		}
	}
	h.all.mu.Unlock()
	if lost > 0 && h.all.onDrop != nil {
		h.all.onDrop(lost)
	}
}

// onlyResent reports whether clients see no difference between two entries, except that a resource
// was sent again.
func (e entry) onlyResent(o entry) bool {
	same := func(a, b *xds.Resource) bool { return a == b || a.ResentAs(b) }
	return same(e.wildcard, o.wildcard) && same(e.named, o.named)
}

func historySize(r *xds.Resource) int64 {
	if !r.HasBody() || r.Uncacheable {
		return 0
	}
	return r.Size()
}

// withoutUncacheable returns the entry as a history keeps it, without errors.
func (e entry) withoutUncacheable() entry {
	keep := func(r *xds.Resource) *xds.Resource {
		if r.HasBody() && r.Uncacheable {
			return uncacheableMark
		}
		return r
	}
	return entry{wildcard: keep(e.wildcard), named: keep(e.named)}
}

// dropOldest drops the oldest generation. The caller holds all.mu.
func (h *History) dropOldest() {
	g := h.generations[0]
	h.firstKnown = g.gen
	h.generations = slices.Delete(h.generations, 0, 1)
	h.bytes -= g.bytes
	h.all.bytes -= g.bytes
	h.all.oldest.Remove(g.element)
}

func (h *History) clear() {
	for len(h.generations) > 0 {
		h.dropOldest()
	}
}

// Close drops everything.
func (h *History) Close() {
	if h == nil {
		return
	}
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	h.clear()
}

// Past is a copy of a history at one time, with the newest snapshot at that time.
type Past struct {
	newest      *Snapshot
	generations []*generation
	firstKnown  uint64
}

// Past returns what is known of the time up to now, a snapshot of the history's lineage.
func (h *History) Past(now *Snapshot) Past {
	if h == nil || now == nil {
		return Past{newest: now}
	}
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	gens := slices.Clone(h.generations)
	for len(gens) > 0 && gens[len(gens)-1].gen > now.Gen {
		gens = gens[:len(gens)-1]
	}
	return Past{now, gens, h.firstKnown}
}

// holds reports whether generation gen is still known.
func (p Past) holds(gen uint64) bool {
	return p.newest != nil && (gen >= p.newest.Gen || p.firstKnown > 0 && gen >= p.firstKnown)
}

// At returns the resource of this name that a client with sub had at generation gen; nil for none.
// It returns false if that is no longer known.
func (p Past) At(gen uint64, sub *Subscription, name string) (*xds.Resource, bool) {
	if !p.holds(gen) {
		return nil, false
	}
	for _, g := range p.generations {
		if g.gen <= gen {
			continue
		}
		if i, ok := slices.BinarySearch(g.names, name); ok {
			e := g.before[i]
			if e.wildcard == uncacheableMark || e.named == uncacheableMark {
				return nil, false
			}
			return e.visible(sub, sub.Names.Has(name)), true
		}
	}
	return p.newest.get(name).visible(sub, sub.Names.Has(name)), true
}

// Between returns the sorted names of what may differ, for a client with sub, between the
// generations from and to. With from 0 it returns all names that the client may have had at to. It
// returns false if a generation is no longer known.
func (p Past) Between(from, to uint64, sub *Subscription) ([]string, bool) {
	if !p.holds(to) || from > 0 && !p.holds(from) {
		return nil, false
	}
	var names []string
	if from == 0 {
		p.newest.Covered(sub, func(r *xds.Resource) bool {
			names = append(names, r.Name)
			return true
		})
		from = to
		to = p.newest.Gen
	}
	for _, g := range p.generations {
		if g.gen > from && g.gen <= to {
			names = append(names, g.names...)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return slices.DeleteFunc(names, func(n string) bool { return !sub.Covers(n) && p.newest.get(n).visible(sub, false) == nil }), true
}
