package snapshot

import (
	"cmp"
	"container/list"
	"slices"
	"sync"

	"xdsrelay/internal/xds"
)

// UndoLogs keep replaced resources for a while. An operator can then compare what a client NACKed
// with what it has; sessions keep no old snapshots. There is a limit for each type of a key and one
// for all together. The oldest generation is dropped first. UndoLogs are safe for concurrent use.
type UndoLogs struct {
	maxBytes, maxBytesEach int64
	// onDrop gets the number of generations that were dropped for lack of room; may be nil.
	onDrop func(n int)

	mu     sync.Mutex
	bytes  int64
	oldest list.List // of *generation, the oldest first
}

// UndoBytes limits all undo logs of a process, and UndoBytesEach one type of a key. In bytes.
const (
	UndoBytes     = 64 << 20
	UndoBytesEach = 4 << 20
)

// The cost of a generation and of each name in it, in bytes, without the resources; and the maximum
// number of generations.
const (
	undoGenerationBytes = 160
	undoNameBytes       = 40
	undoMaxGenerations  = 256
)

// uncacheableMark stands for a resource that must not be cached (P63), which an undo log does not
// keep.
var uncacheableMark = xds.NewPlaceholder("")

// NewUndoLogs returns the undo logs of a process. max and each are limits in bytes. dropped is
// called with the number of generations that were dropped for lack of room; it may be nil.
func NewUndoLogs(max, each int64, dropped func(n int)) *UndoLogs {
	return &UndoLogs{maxBytes: max, maxBytesEach: each, onDrop: dropped}
}

// New returns the undo log of a type; nil for Secrets, which the relay never shows.
func (logs *UndoLogs) New(t xds.Type) *UndoLog {
	if logs == nil || t.Secret {
		return nil
	}
	return &UndoLog{all: logs}
}

// UndoLog has what was replaced in one type of a key. A nil UndoLog keeps nothing. Only the
// goroutine that makes the snapshots calls Note and Close.
type UndoLog struct {
	all *UndoLogs

	// Protected by all.mu.
	generations []*generation // the oldest first; only those that changed something
	firstKnown  uint64        // the first generation that is known; 0 if none is
	bytes       int64
}

// generation has what one generation replaced.
type generation struct {
	log     *UndoLog
	gen     uint64
	names   []string // sorted
	before  []entry  // the earlier entries of names
	bytes   int64
	element *list.Element
}

// Note keeps what prev had of names. s was made from prev, and changed these names.
func (l *UndoLog) Note(prev, s *Snapshot, names []string) {
	if l == nil {
		return
	}
	if prev == nil || len(names) == 0 {
		l.all.mu.Lock()
		l.firstKnown = cmp.Or(l.firstKnown, s.Gen)
		l.all.mu.Unlock()
		return
	}
	g := &generation{log: l, gen: s.Gen, bytes: undoGenerationBytes}
	fits := true
	for _, n := range names {
		e := prev.get(n)
		if e.onlyResent(s.get(n)) {
			continue // P33: what replaced it says the same
		}
		g.bytes += undoNameBytes + undoSize(e.wildcard) + undoSize(e.named)
		if fits = g.bytes <= l.all.maxBytesEach; !fits {
			break
		}
		g.names, g.before = append(g.names, n), append(g.before, e.withoutUncacheable())
	}
	l.all.mu.Lock()
	lost := 0
	if !fits {
		// The change is too large to keep, so no earlier generation can be restored.
		lost = len(l.generations) + 1
		l.clear()
		l.firstKnown = s.Gen
	} else {
		l.firstKnown = cmp.Or(l.firstKnown, prev.Gen)
		g.element = l.all.oldest.PushBack(g)
		l.generations = append(l.generations, g)
		l.bytes += g.bytes
		l.all.bytes += g.bytes
		for l.bytes > l.all.maxBytesEach || len(l.generations) > undoMaxGenerations {
			l.dropOldest()
			lost++
		}
		for l.all.bytes > l.all.maxBytes {
			l.all.oldest.Front().Value.(*generation).log.dropOldest()
			lost++
		}
	}
	l.all.mu.Unlock()
	if lost > 0 && l.all.onDrop != nil {
		l.all.onDrop(lost)
	}
}

// onlyResent reports whether clients see no difference between two entries, except that a resource
// was sent again.
func (e entry) onlyResent(o entry) bool {
	same := func(a, b *xds.Resource) bool { return a == b || a.ResentAs(b) }
	return same(e.wildcard, o.wildcard) && same(e.named, o.named)
}

func undoSize(r *xds.Resource) int64 {
	if !r.HasBody() || r.Uncacheable {
		return 0
	}
	return r.Size()
}

// withoutUncacheable returns the entry as an undo log keeps it, without errors.
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
func (l *UndoLog) dropOldest() {
	g := l.generations[0]
	l.firstKnown = g.gen
	l.generations = slices.Delete(l.generations, 0, 1)
	l.bytes -= g.bytes
	l.all.bytes -= g.bytes
	l.all.oldest.Remove(g.element)
}

func (l *UndoLog) clear() {
	for len(l.generations) > 0 {
		l.dropOldest()
	}
}

// Close drops everything.
func (l *UndoLog) Close() {
	if l == nil {
		return
	}
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.clear()
}

// Past is a copy of an undo log at one time, with the newest snapshot at that time.
type Past struct {
	newest      *Snapshot
	generations []*generation
	firstKnown  uint64
}

// Past returns what is known of the time up to now, a snapshot of the log's lineage.
func (l *UndoLog) Past(now *Snapshot) Past {
	if l == nil || now == nil {
		return Past{newest: now}
	}
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	gens := slices.Clone(l.generations)
	for len(gens) > 0 && gens[len(gens)-1].gen > now.Gen {
		gens = gens[:len(gens)-1]
	}
	return Past{now, gens, l.firstKnown}
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
