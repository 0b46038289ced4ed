package snapshot

import (
	"slices"

	"xdsrelay/internal/xds"
)

// change is what one generation changed.
type change struct {
	gen        uint64
	names      []string // names that changed for clients, sorted
	heartbeats []string // names whose TTL was renewed, sorted; names may have them too
}

// size returns the number of names in c.
func (c *change) size() int { return len(c.names) + len(c.heartbeats) }

// Limits of a lineage's log: as many names as there are entries, or minLogNames if that is more,
// and maxLogGens generations. A log above a limit is cut to at most half of it.
const (
	minLogNames = 512
	maxLogGens  = 1024
)

// maxCompared bounds the names that Generations looks at in vain.
const maxCompared = 256

// appendToLog adds c to the log and limits the log. Snapshots share the log's array, so a shorter
// log gets a new array.
func (b *Builder) appendToLog(c change) {
	b.log = append(b.log, c)
	b.logNames += c.size()
	if b.logNames <= max(minLogNames, b.entries.Len()) && len(b.log) <= maxLogGens {
		return
	}
	kept, names := len(b.log), 0
	for kept > 0 && len(b.log)-kept < maxLogGens/2 {
		n := b.log[kept-1].size()
		if names+n > max(minLogNames, b.entries.Len())/2 {
			break
		}
		names += n
		kept--
	}
	b.log = slices.Clone(b.log[kept:])
	b.logNames = names
}

// Changes returns the sorted names that sub covers and of which s may say something other than
// from. It includes resources that sub covers by an alias. It also includes aliases that no
// resource has any more, or that a resource has now. from may be nil, older, newer or of another
// lineage. If the log reaches from one to the other, the cost follows the changes. Otherwise it
// follows the size of both snapshots. If sub has only names, and no resource has an alias, the cost
// follows the number of these names if that is less.
func (s *Snapshot) Changes(from *Snapshot, sub *Subscription) []string {
	return s.ChangesSince(ID{}, from, sub)
}

// ChangesSince is Changes for a caller that has compared from with seen already. It may leave out the
// names that have not changed since seen.
func (s *Snapshot) ChangesSince(seen ID, from *Snapshot, sub *Subscription) []string {
	if s == from {
		return nil
	}
	log, ok := s.logSince(seen)
	if !ok {
		log, ok = changesBetween(from, s)
	}
	named := !sub.Wildcard && from.aliasIndex() == nil && s.aliasIndex() == nil
	if ok && !(named && hasMoreThan(log, sub.Names.Len())) {
		return namesIn(log, func(c change) []string { return c.names }, func(n string) bool { return covers(from, s, sub, n) })
	}
	if !sub.Wildcard {
		var names []string
		for n := range sub.Names.All() {
			if from.get(n).differs(s.get(n)) {
				names = append(names, n)
			}
		}
		own := len(names)
		if names = appendAliasChanges(sub, from, s, names); len(names) > own {
			slices.Sort(names)
			names = slices.Compact(names)
		}
		return names
	}
	names := appendAliasChanges(sub, from, s, nil)
	if s != nil {
		s.entries.Scan(func(n string, e entry) bool {
			if from.get(n) != e {
				names = append(names, n)
			}
			return true
		})
	}
	if from != nil {
		from.entries.Scan(func(n string, _ entry) bool {
			if s == nil {
				names = append(names, n)
			} else if _, ok := s.entries.Get(n); !ok {
				names = append(names, n)
			}
			return true
		})
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Renewed returns the sorted names that sub covers and whose TTL was renewed since from. It may
// include other resources with a TTL that are new. The cost is as for Changes.
func (s *Snapshot) Renewed(from *Snapshot, sub *Subscription) []string {
	if !s.HasTTLs() || s == from || from == nil {
		return nil
	}
	if log, ok := changesBetween(from, s); ok {
		return namesIn(log, func(c change) []string { return c.heartbeats }, func(n string) bool { return covers(from, s, sub, n) })
	}
	var names []string
	s.Covered(sub, func(r *xds.Resource) bool {
		if r.HasTTL() {
			names = append(names, r.Name)
		}
		return true
	})
	return names
}

// Generations returns how many snapshots after from, up to and including to, changed anything that
// sub covers. It returns 1 if that is not known: from is nil, not older, of another lineage, or
// older than the log. From the newest change on, it looks at maxCompared names that sub does not
// cover, and leaves out what is older. Otherwise each of thousands of clients with names of their
// own would pay for all names that changed.
func Generations(from, to *Snapshot, sub *Subscription) int {
	if from == nil || from.Lineage != to.Lineage || from.Gen >= to.Gen || len(to.log) == 0 || to.log[0].gen > from.Gen+1 {
		return 1
	}
	n, left := 0, maxCompared
	for _, c := range slices.Backward(to.log) {
		if c.gen <= from.Gen || left == 0 {
			break
		}
		names := c.names[:min(len(c.names), left)]
		if i := slices.IndexFunc(names, func(n string) bool { return covers(from, to, sub, n) }); i >= 0 {
			n++
			left -= i
		} else {
			left -= len(names)
		}
	}
	return n
}

// Heartbeats returns how many snapshots after from, up to and including to, renewed a TTL of a name
// that sub covers. It returns 1 if the log does not reach.
func Heartbeats(from, to *Snapshot, sub *Subscription) int {
	log, ok := changesBetween(from, to)
	if !ok {
		return 1
	}
	n := 0
	for _, c := range log {
		if slices.ContainsFunc(c.heartbeats, sub.Covers) {
			n++
		}
	}
	return n
}

// hasMoreThan reports whether the log has more than n changed names. A name counts once for each
// generation.
func hasMoreThan(log []change, n int) bool {
	for _, c := range log {
		if n -= len(c.names); n < 0 {
			return true
		}
	}
	return false
}

// namesIn returns the sorted names of a log that sub covers.
func namesIn(log []change, of func(change) []string, covered func(string) bool) (names []string) {
	for _, c := range log {
		for _, n := range of(c) {
			if covered(n) {
				names = append(names, n)
			}
		}
	}
	if len(log) > 1 {
		slices.Sort(names)
		names = slices.Compact(names)
	}
	return names
}

// changesBetween returns the log between two snapshots, in either direction. It returns false if
// the log does not reach.
func changesBetween(a, b *Snapshot) ([]change, bool) {
	if a != nil && b != nil && a.Gen > b.Gen {
		a, b = b, a
	}
	return b.logSince(a.ID())
}

// logSince returns the log after an older snapshot. It returns false if the log does not reach.
func (s *Snapshot) logSince(seen ID) ([]change, bool) {
	if s == nil || s.Lineage != seen.Lineage || s.Gen < seen.Gen || len(s.log) == 0 || s.log[0].gen > seen.Gen+1 {
		return nil, false
	}
	first, _ := slices.BinarySearchFunc(s.log, seen.Gen+1, func(c change, g uint64) int {
		return int(int64(c.gen) - int64(g))
	})
	return s.log[first:], true
}

// covers reports whether sub covers name, or an alias of the resource of this name in either
// snapshot.
func covers(a, b *Snapshot, sub *Subscription, name string) bool {
	if sub.Covers(name) {
		return true
	}
	for _, s := range [...]*Snapshot{a, b} {
		if s.aliasIndex() == nil {
			continue
		}
		if e, _ := s.entries.Get(name); e.visible(sub, false) != nil {
			return true
		}
	}
	return false
}
