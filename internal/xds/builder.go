package xds

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidwall/btree"
)

// Builder makes the snapshots of one type under one key, each from the one
// before: what it costs follows the change, not the size. It has one owner;
// the snapshots are anyone's.
type Builder struct {
	typ     Type
	lineage uint64
	gen     uint64

	entries        btree.Map[string, entry]
	count, stated  int
	errors, lapsed int
	lapsedWild     int
	unresolved     int
	bytes, retired int64
	errorBytes     int64
	sum            Version

	timers    timers            // of what expires (P62)
	uncached  map[part]struct{} // what is not to be kept (P63)
	uncachedN [2]int            // of names, of the wildcard

	stored       int  // parts that are marked as stored
	storedAnswer bool // the answer to the wildcard is
	wasStale     bool // the last snapshot

	origin, version         string
	wildOrigin, namedOrigin string
	answered                bool
	complete                bool // no more of the answer to the wildcard is to come (P67)
	received                time.Time

	log      []change
	logNames int
	pending  map[string]entry // before the changes since the last snapshot
	renewed  []string         // whose TTL was renewed since
	noRoom   int              // errors that were not kept since
	dirty    bool             // something but an entry changed

	// Of resources that go by more than their names; nil before the first.
	links     *btree.BTreeG[link]
	resolved  map[string]bool     // whether handles led anywhere in the last snapshot, of those that changed since
	unlinked  map[string]struct{} // handles that lost what came for names, since the last Settle
	unsettled map[string]struct{} // names that were removed, or lost a handle, since then
}

// The log of a lineage reaches back at least as many names as there are
// entries, but at most so many generations.
const (
	minLogNames = 512
	maxLogGens  = 1024
)

// maxKeptPending is the number of changes up to which the map of a snapshot's
// changes serves for the next one.
const maxKeptPending = 64

var lineages atomic.Uint64

// NewBuilder makes the builder of an empty type.
func NewBuilder(t Type) *Builder {
	return &Builder{typ: t, lineage: lineages.Add(1), pending: make(map[string]entry), dirty: true}
}

// Apply takes over an update. What is equal to what is held changes nothing
// but the origin's version of it (P33) and its TTL. It reports whether a client
// could see any difference but a heartbeat.
func (b *Builder) Apply(u Update) bool { return b.apply(u, false) }

// apply is Apply; stored says that the resources are marked as stored.
func (b *Builder) apply(u Update, stored bool) bool {
	if u.Ended {
		return b.uncache(u.Wildcard)
	}
	if b.origin != u.Origin || b.version != u.Version && u.Versioned() {
		b.origin, b.dirty = u.Origin, true
		b.version = u.Version
	}
	from := &b.namedOrigin
	if u.Wildcard {
		from = &b.wildOrigin
	}
	if *from != u.Origin {
		*from, b.dirty = u.Origin, true
	}
	changed := false
	if u.Wildcard && !b.answered { // what it leaves out is now absent to who asked for it (P11)
		b.answered, b.dirty = true, true
		changed = true
	}
	if u.Wildcard && !stored {
		if b.storedAnswer {
			b.storedAnswer, b.dirty = false, true
			changed = true
		}
		if !u.Partial {
			b.Complete()
		}
	}
	// What went before what came: a name that is gone may be an alias now.
	for _, name := range u.Removed {
		if b.links != nil && !u.Wildcard {
			b.withdraw(name)
		}
		e, _ := b.entries.Get(name)
		was := e
		if u.Wildcard { // no word on the name
			e.wild, e.errs.wild = nil, nil
		} else {
			e.named, e.errs = gone, errs{}
		}
		if e != was {
			b.set(name, e)
			changed = changed || was.differs(e)
		}
	}
	for _, r := range u.Changed {
		r = r.mark(stored)
		e, _ := b.entries.Get(r.Name)
		was, part := e, &e.named
		if u.Wildcard {
			part = &e.wild
		}
		if r.timing != nil && r != *part { // gone and back in between, it is a renewal to some
			b.renewed = append(b.renewed, r.Name)
		}
		*part = r
		e.errs = errs{}
		if e != was {
			b.set(r.Name, e)
			changed = changed || was.differs(e)
		}
	}
	for _, err := range u.Errors {
		news, kept := b.fail(err, u.Wildcard)
		changed = changed || news
		if !kept {
			b.noRoom++
		}
	}
	changed = b.unresolve(u.Unresolved) || changed
	if changed {
		b.received = u.Received
	}
	return changed
}

// Has reports whether there is a resource under name in a part.
func (b *Builder) Has(name string, wild bool) bool {
	e, _ := b.entries.Get(name)
	return there(*e.part(wild))
}

// Adds reports whether an update has a resource that no origin gave yet.
func (b *Builder) Adds(u *Update) bool {
	return slices.ContainsFunc(u.Changed, func(r *Resource) bool {
		e, _ := b.entries.Get(r.Name)
		had := *e.part(u.Wildcard)
		return !there(had) || had.stored
	})
}

// Complete notes that no more of the answer to the wildcard is to come (P67).
func (b *Builder) Complete() {
	if b.answered && !b.complete {
		b.complete, b.dirty = true, true
	}
}

// Retain keeps a resource that the origin deleted, until its deletion is applied
// (P36). It reports whether there is one. The origin's version is dropped: a new
// stream to the origin must not claim that the relay has it, or the origin would
// not send it again (P55).
func (b *Builder) Retain(name string, wild bool) bool {
	e, _ := b.entries.Get(name)
	part := e.part(wild)
	if !there(*part) {
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

// EndWildcard drops what the wildcard brought, once nobody asks for it any more.
func (b *Builder) EndWildcard() {
	if !b.answered {
		return
	}
	b.answered, b.complete, b.dirty, b.storedAnswer = false, false, true, false
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
		e.wild, e.errs.wild = nil, nil
		if e != it.e {
			b.set(it.name, e)
		}
	}
}

// set stores an entry and keeps the sums.
func (b *Builder) set(name string, e entry) {
	was, had := b.entries.Get(name)
	if _, noted := b.pending[name]; !noted {
		b.pending[name] = was
	}
	if r := was.effective(); r != nil {
		b.count--
		b.bytes -= r.Size()
		b.sum = b.sum.sub(r.member)
	}
	if r := e.effective(); r != nil {
		b.count++
		b.bytes += r.Size()
		b.sum = b.sum.add(r.member)
	}
	if was.named == gone {
		b.stated--
	}
	if e.named == gone {
		b.stated++
	}
	b.errors += btoi(e.errs.any()) - btoi(was.errs.any())
	if n := btoi(e.named.Unresolved()) - btoi(was.named.Unresolved()); n != 0 {
		b.unresolved += n
	}
	b.errorBytes += e.errs.size() - was.errs.size()
	b.part(part{name: name, wild: true}, was.wild, e.wild)
	b.part(part{name: name}, was.named, e.named)
	switch {
	case e != entry{}:
		b.entries.Set(name, e)
	case had:
		b.entries.Delete(name)
	}
	b.relink(name, was, e)
}

// part keeps the accounts of one part of an entry.
func (b *Builder) part(p part, was, is *Resource) {
	if was == is {
		return
	}
	if there(was) && !was.shares(is) {
		b.retired += was.Size()
		spent.Add(was.Size())
	}
	if n := btoi(hasLapsed(is)) - btoi(hasLapsed(was)); n != 0 {
		b.lapsed += n
		if p.wild {
			b.lapsedWild += n
		}
	}
	b.stored += btoi(isStored(is)) - btoi(isStored(was))
	b.timers.note(p, is)
	switch {
	case there(is) && is.Uncacheable:
		if b.uncached == nil {
			b.uncached = make(map[part]struct{})
		}
		if _, is := b.uncached[p]; !is {
			b.uncached[p] = struct{}{}
			b.uncachedN[btoi(p.wild)]++
		}
	case there(was) && was.Uncacheable:
		delete(b.uncached, p)
		b.uncachedN[btoi(p.wild)]--
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Snapshot publishes what has been applied since the last call, as part of the
// State of generation stateGen, with the names that changed for clients
// (sorted); prev is returned if nothing changed at all.
func (b *Builder) Snapshot(prev *Snapshot, stateGen uint64) (*Snapshot, []string) {
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
	beats := b.renewed
	b.renewed = nil
	if len(b.resolved) > 0 {
		names = append(names, b.turned()...)
	}
	if len(b.pending) > maxKeptPending {
		// A map that was once large stays so, and each later change would pay.
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
	spent.Add(generationBytes)
	slices.Sort(beats)
	if prev != nil { // nobody comes from before the first
		b.append(change{gen: b.gen, names: names, beats: slices.Compact(beats)})
	}
	s := &Snapshot{
		Type: b.typ, Lineage: b.lineage, Gen: b.gen, StateGen: stateGen,
		Origin: b.origin, Version: b.version, given: b.version, sum: b.sum, Answered: b.answered, Received: b.received,
		Complete: b.complete, Stale: b.stale(),
		Bytes: b.bytes, Retired: b.retired,
		wildOrigin: b.wildOrigin, namedOrigin: b.namedOrigin,
		entries: b.entries.Copy(), count: b.count, stated: b.stated, unresolved: b.unresolved,
		errors: b.errors, lapsed: b.lapsed, timed: len(b.timers.due), uncached: b.uncachedN,
		links: b.copyLinks(), log: b.log,
	}
	if s.Version == "" {
		s.Version = b.sum.String()
	}
	return s, names
}

// differs reports whether a client could see a difference between two entries.
func (e entry) differs(o entry) bool {
	return !samePart(e.wild, o.wild) || !samePart(e.named, o.named) || e.errs != o.errs
}

// samePart reports whether clients see no difference between two parts.
func samePart(a, b *Resource) bool {
	switch {
	case a == b:
		return true
	case there(a) && there(b):
		return a.stored == b.stored && a.Same(b) && (a.more == b.more || slices.Equal(a.Handles(), b.Handles()))
	}
	return a.Unresolved() && a.Word() == b.Word() || hasLapsed(a) && hasLapsed(b)
}

// append adds to the log and bounds it. Snapshots hold slices of the array, so
// shortening makes a new one.
func (b *Builder) append(c change) {
	b.log = append(b.log, c)
	b.logNames += len(c.names) + len(c.beats)
	if b.logNames <= max(minLogNames, b.entries.Len()) && len(b.log) <= maxLogGens {
		return
	}
	kept, names := len(b.log), 0
	for kept > 0 && len(b.log)-kept < maxLogGens/2 {
		n := len(b.log[kept-1].names) + len(b.log[kept-1].beats)
		if names+n > max(minLogNames, b.entries.Len())/2 {
			break
		}
		names += n
		kept--
	}
	b.log = slices.Clone(b.log[kept:])
	b.logNames = names
}
