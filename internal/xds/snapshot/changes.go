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
// follows the size of both snapshots, or of sub if that has only names.
func (s *Snapshot) Changes(from *Snapshot, sub *Subscription) []string {
	if s == from {
		return nil
	}
	if names, ok := namesChangedBetween(from, s); ok {
		return slices.DeleteFunc(names, func(n string) bool { return !covers(from, s, sub, n) })
	}
	if !sub.Wildcard {
		var names []string
		for n := range sub.Names.All() {
			if from.get(n) != s.get(n) {
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
		var names []string
		for _, c := range log {
			for _, n := range c.heartbeats {
				if covers(from, s, sub, n) {
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
// older than the log.
func Generations(from, to *Snapshot, sub *Subscription) int {
	if from == nil || from.Lineage != to.Lineage || from.Gen >= to.Gen || len(to.log) == 0 || to.log[0].gen > from.Gen+1 {
		return 1
	}
	n := 0
	for _, c := range slices.Backward(to.log) {
		if c.gen <= from.Gen {
			break
		}
		if slices.ContainsFunc(c.names, func(n string) bool { return covers(from, to, sub, n) }) {
			n++
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

// namesChangedBetween returns the sorted names that changed between two snapshots of one lineage,
// in either direction. It returns false if the log does not reach. The slice is the caller's.
func namesChangedBetween(a, b *Snapshot) ([]string, bool) {
	log, ok := changesBetween(a, b)
	var names []string
	for _, c := range log {
		names = append(names, c.names...)
	}
	if len(log) > 1 {
		slices.Sort(names)
		names = slices.Compact(names)
	}
	return names, ok
}

// changesBetween returns the log between two snapshots, in either direction. It returns false if
// the log does not reach.
func changesBetween(a, b *Snapshot) ([]change, bool) {
	if a == nil || b == nil || a.Lineage != b.Lineage {
		return nil, false
	}
	if a.Gen > b.Gen {
		a, b = b, a
	}
	if len(b.log) == 0 || b.log[0].gen > a.Gen+1 {
		return nil, false
	}
	first, _ := slices.BinarySearchFunc(b.log, a.Gen+1, func(c change, g uint64) int {
		return int(int64(c.gen) - int64(g))
	})
	return b.log[first:], true
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
