package snapshot

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidwall/btree"

	"xdsrelay/internal/xds"
)

// Builder makes the snapshots of one type under one key, each from the one before it. The cost of a
// snapshot follows the size of the change. Only one goroutine at a time may use a Builder. Its
// snapshots may be shared.
type Builder struct {
	typ     xds.Type
	lineage uint64
	gen     uint64

	entries             btree.Map[string, entry]
	count, absent       int
	errorCount, expired int
	expiredWildcard     int
	unresolved          int
	bodies              [2]int // resources of a part, by Scope
	bytes, retired      int64
	errorBytes          int64
	sum                 xds.Version

	expiryQueue      expiryHeap            // resources with a TTL (P62)
	uncacheable      map[partName]struct{} // resources that must not be cached (P63)
	uncacheableCount [2]int                // by Scope

	stored               int  // parts that are marked as stored
	storedWildcardAnswer bool // the answer to the wildcard is marked as stored
	wasStale             bool // stale() at the last snapshot

	origin, version             string
	wildcardOrigin, namedOrigin partOrigin
	answered                    bool
	complete, settled           bool         // as in Snapshot
	removed                     *xds.NameSet // as in Snapshot
	received                    time.Time

	log           []change
	logNames      int
	pending       map[string]entry // the earlier entries of what changed since the last snapshot
	heartbeats    []string         // names whose TTL was renewed since the last snapshot
	pushes        pushes
	droppedErrors int  // errors that were not kept since the last call of DroppedErrors
	dirty         bool // something other than an entry changed

	// The index of aliases; all nil before the first resource with an alias.
	aliases           *btree.BTreeG[aliasEntry]
	resolvedBefore    map[string]bool     // for changed aliases: whether any resource had it in the last snapshot
	lostAliases       map[string]struct{} // aliases that a named resource lost since the last ResolveAliases
	maybeNotRequested map[string]struct{} // names that were removed or lost an alias since the last ResolveAliases
}

var lineages atomic.Uint64

// NewBuilder returns a Builder without resources, with a lineage of its own.
func NewBuilder(t xds.Type) *Builder {
	return &Builder{typ: t, lineage: lineages.Add(1), pending: make(map[string]entry), dirty: true}
}

// Apply applies an update. A resource that is equal to the one held changes only the origin's
// version and the TTL (P33). Apply reports whether a client could see a difference other than a
// heartbeat.
func (b *Builder) Apply(u Update) bool { return b.apply(u, false) }

// ApplyStored applies what was stored (P66). It acts as an update of the origin that once sent it,
// but marks the resources and the answer to the wildcard as stored. The origin's updates replace
// them name by name. Until then the snapshots are Stale.
func (b *Builder) ApplyStored(u Update) {
	b.apply(u, true)
	if u.Wildcard {
		b.storedWildcardAnswer, b.dirty = true, true
	}
}

// apply is Apply. With stored, it marks the resources as stored.
func (b *Builder) apply(u Update, stored bool) bool {
	if u.Ended {
		return b.dropUncacheable(u.Scope())
	}
	if b.origin != u.Origin || b.version != u.Version && u.Versioned() {
		b.origin, b.dirty = u.Origin, true
		b.version = u.Version
	}
	from := &b.namedOrigin
	if u.Wildcard {
		from = &b.wildcardOrigin
	}
	if is := (partOrigin{u.Origin, cmp.Or(u.Domain, u.Origin)}); *from != is {
		*from, b.dirty = is, true
	}
	changed := false
	if u.Wildcard && !b.answered {
		// A change even if it is empty: clients of the wildcard wait for the first answer (P11).
		b.answered, b.dirty = true, true
		changed = true
	}
	if u.Wildcard && !stored {
		if b.storedWildcardAnswer {
			b.storedWildcardAnswer, b.dirty = false, true
			changed = true
		}
		if !u.Partial {
			b.Complete()
			b.Settle()
		}
		b.noteRemoved(&u)
	}
	// Removals come first: in one update, a removed name may become an alias of a changed resource.
	for _, name := range u.Removed {
		if b.aliases != nil && !u.Wildcard {
			b.removeAlias(name)
		}
		e, _ := b.entries.Get(name)
		was := e
		if u.Wildcard { // it says nothing of the named part
			e.wildcard, e.errors.wildcard = nil, nil
		} else {
			e.named, e.errors = removedByOrigin, entryErrors{}
		}
		if e != was {
			b.set(name, e)
			changed = changed || was.differs(e)
		}
	}
	for _, r := range u.Changed {
		r = r.MarkStored(stored)
		e, _ := b.entries.Get(r.Name)
		was, part := e, e.resource(u.Scope())
		if r.HasTTL() && r != *part {
			// A new resource counts too: a client may have held it before and missed its removal.
			b.heartbeats = append(b.heartbeats, r.Name)
		}
		*part = r
		e.errors = entryErrors{}
		if e != was {
			b.set(r.Name, e)
			changed = changed || was.differs(e)
		}
	}
	for _, err := range u.Errors {
		news, kept := b.setError(err, u.Scope())
		changed = changed || news
		if !kept {
			b.droppedErrors++
		}
	}
	changed = b.setUnresolved(u.Unresolved) || changed
	b.notePushed(u.Pushed, u.Scope())
	if changed {
		b.received = u.Received
	}
	return changed
}

// Has reports whether a part has a resource of this name.
func (b *Builder) Has(name string, scope Scope) bool {
	e, _ := b.entries.Get(name)
	return (*e.resource(scope)).HasBody()
}

// AddsResources reports whether an update has a resource that no origin has given yet.
func (b *Builder) AddsResources(u *Update) bool {
	return slices.ContainsFunc(u.Changed, func(r *xds.Resource) bool {
		e, _ := b.entries.Get(r.Name)
		had := *e.resource(u.Scope())
		return !had.HasBody() || had.IsStored()
	})
}

// Complete notes that the answer to the wildcard counts as complete (P67).
func (b *Builder) Complete() {
	if b.answered && !b.complete {
		b.complete, b.dirty = true, true
	}
}

// Settle notes that what the answer to the wildcard lacks does not exist (P67).
func (b *Builder) Settle() {
	if b.answered && !b.settled {
		b.settled, b.dirty = true, true
		b.removed = nil
	}
}

// noteRemoved notes which names a response removes from the wildcard, until the answer to the
// wildcard is settled (P67).
func (b *Builder) noteRemoved(u *Update) {
	if b.settled {
		return
	}
	removed := b.removed.Add(u.Removed...)
	for _, r := range u.Changed {
		removed = removed.Remove(r.Name)
	}
	b.removed, b.dirty = removed, b.dirty || removed != b.removed
}

// StreamEnded notes that the stream with the wildcard has ended. What the origin removed on it may
// have returned since.
func (b *Builder) StreamEnded() {
	if b.removed.Len() > 0 {
		b.removed, b.dirty = nil, true
	}
}

// Retain keeps a resource that the origin deleted until the deletion takes effect (P36). It returns
// false if the part has no such resource. Retain clears the origin's version. Otherwise a new
// stream to the origin would claim that the relay has the resource, and the origin would not send
// it again (P55).
func (b *Builder) Retain(name string, scope Scope) bool {
	e, _ := b.entries.Get(name)
	part := e.resource(scope)
	if !(*part).HasBody() {
		return false
	}
	if (*part).OriginVersion != "" {
		r := **part
		r.OriginVersion = ""
		*part = &r
		b.set(name, e)
	}
	return true
}

// EndWildcard drops what the wildcard brought. It is called when no client subscribes to the
// wildcard any more.
func (b *Builder) EndWildcard() {
	if !b.answered {
		return
	}
	b.answered, b.complete, b.settled, b.dirty, b.storedWildcardAnswer = false, false, false, true, false
	b.removed = nil
	type item struct {
		name string
		e    entry
	}
	var items []item
	b.entries.Scan(func(name string, e entry) bool {
		items = append(items, item{name, e})
		return true
	})
	for _, it := range items {
		e := it.e
		e.wildcard, e.errors.wildcard = nil, nil
		if e != it.e {
			b.set(it.name, e)
		}
	}
}

// maxKeptPending is the number of changes up to which a map is reused for the next snapshot.
const maxKeptPending = 64

// Snapshot returns a snapshot of what was applied, and the sorted names of what changed for clients
// since the last one. stateNumber is the number of the group's State that it will be part of.
// Snapshot returns prev if nothing changed.
func (b *Builder) Snapshot(prev *Snapshot, stateNumber uint64) (*Snapshot, []string) {
	names := make([]string, 0, len(b.pending))
	replaced := false
	for name, was := range b.pending {
		now, _ := b.entries.Get(name)
		if now == was {
			continue
		}
		replaced = true
		if was.differs(now) {
			names = append(names, name)
		}
	}
	heartbeats := b.heartbeats
	b.heartbeats = nil
	if len(b.resolvedBefore) > 0 {
		names = append(names, b.resolutionChanges()...)
	}
	if len(b.pending) > maxKeptPending {
		// A map never shrinks, and clearing a large one would slow each later change down.
		b.pending = make(map[string]entry)
	} else {
		clear(b.pending)
	}
	if prev != nil && !replaced && !b.dirty && b.stale() == b.wasStale {
		return prev, nil
	}
	b.dirty, b.wasStale = false, b.stale()
	slices.Sort(names)
	names = slices.Compact(names)
	b.gen++
	supersededBytes.Add(snapshotBytes)
	slices.Sort(heartbeats)
	if prev != nil { // no snapshot is older than the first
		b.appendToLog(change{gen: b.gen, names: names, heartbeats: slices.Compact(heartbeats)})
	}
	s := &Snapshot{
		Type: b.typ, Lineage: b.lineage, Gen: b.gen, StateNumber: stateNumber,
		Origin: b.origin, Version: b.version, given: b.version, sum: b.sum, Answered: b.answered, Received: b.received,
		Complete: b.complete, Settled: b.settled, removed: b.removed, Stale: b.stale(),
		Bytes: b.bytes, Retired: b.retired,
		wildcardOrigin: b.wildcardOrigin, namedOrigin: b.namedOrigin,
		entries: b.entries.Copy(), count: b.count, absent: b.absent, unresolved: b.unresolved,
		errorCount: b.errorCount, expired: b.expired, ttls: len(b.expiryQueue.heap), uncacheable: b.uncacheableCount,
		aliases: b.copyAliases(), log: b.log, pushes: b.pushes,
	}
	if s.Version == "" {
		s.Version = b.sum.String()
	}
	return s, names
}

// stale reports whether anything is marked as stored.
func (b *Builder) stale() bool { return b.storedWildcardAnswer || b.stored > 0 }

// differs reports whether a client could see a difference between two entries.
func (e entry) differs(o entry) bool {
	return !sameForClients(e.wildcard, o.wildcard) || !sameForClients(e.named, o.named) || e.errors != o.errors
}

// sameForClients reports whether clients see no difference between two parts of entries.
func sameForClients(a, b *xds.Resource) bool {
	switch {
	case a == b:
		return true
	case a.HasBody() && b.HasBody():
		return a.IsStored() == b.IsStored() && a.Same(b) && slices.Equal(a.AliasesAndGlob(), b.AliasesAndGlob())
	}
	return a.Unresolved() && a.UnresolvedID() == b.UnresolvedID() || a.IsExpiredMark() && b.IsExpiredMark()
}

// set stores an entry and updates all counts, sums and indexes.
func (b *Builder) set(name string, e entry) {
	was, had := b.entries.Get(name)
	if _, noted := b.pending[name]; !noted {
		b.pending[name] = was
	}
	if r := was.effective(); r != nil {
		b.count--
		b.bytes -= r.Size()
		b.sum = b.sum.Sub(r.Member)
	}
	if r := e.effective(); r != nil {
		b.count++
		b.bytes += r.Size()
		b.sum = b.sum.Add(r.Member)
	}
	if was.named == removedByOrigin {
		b.absent--
	}
	if e.named == removedByOrigin {
		b.absent++
	}
	b.errorCount += boolToInt(e.errors.any()) - boolToInt(was.errors.any())
	if n := boolToInt(e.named.Unresolved()) - boolToInt(was.named.Unresolved()); n != 0 {
		b.unresolved += n
	}
	b.errorBytes += e.errors.size() - was.errors.size()
	b.updateCounts(partName{name: name, scope: ByWildcard}, was.wildcard, e.wildcard)
	b.updateCounts(partName{name: name}, was.named, e.named)
	switch {
	case e != entry{}:
		b.entries.Set(name, e)
	case had:
		b.entries.Delete(name)
	}
	b.updateAliasIndex(name, was, e)
}

// updateCounts updates what depends on one part of an entry.
func (b *Builder) updateCounts(p partName, was, is *xds.Resource) {
	if was == is {
		return
	}
	if was.HasBody() && !was.SharesBody(is) {
		b.retired += was.Size()
		supersededBytes.Add(was.Size())
	}
	b.bodies[p.scope] += boolToInt(is.HasBody()) - boolToInt(was.HasBody())
	if n := boolToInt(is.IsExpiredMark()) - boolToInt(was.IsExpiredMark()); n != 0 {
		b.expired += n
		if p.scope == ByWildcard {
			b.expiredWildcard += n
		}
	}
	b.stored += boolToInt(is.IsStored()) - boolToInt(was.IsStored())
	b.expiryQueue.update(p, is)
	switch {
	case is.HasBody() && is.Uncacheable:
		if b.uncacheable == nil {
			b.uncacheable = make(map[partName]struct{})
		}
		if _, is := b.uncacheable[p]; !is {
			b.uncacheable[p] = struct{}{}
			b.uncacheableCount[p.scope]++
		}
	case was.HasBody() && was.Uncacheable:
		delete(b.uncacheable, p)
		b.uncacheableCount[p.scope]--
	}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
