package audience

import (
	"xdsrelay/internal/xds/snapshot"
)

// affected calls wake for each subscriber for which next differs from prev. It also does so for
// each subscriber that subscribes to a resource whose TTL was renewed in between (P62). It calls
// wake once for each of them. The cost follows the number of changed names and of affected
// subscribers: subscriptions to other names cost nothing.
func (x *index[M]) affected(prev, next *snapshot.Snapshot, wake func(M)) {
	x.round++
	once := func(s *subscribers[M]) {
		if s.round == x.round {
			return
		}
		s.round = x.round
		for _, m := range s.subscribers.list {
			wake(m)
		}
	}
	x.changed(prev, next, once)
	x.renewed(prev, next, once)
}

// changed calls once for the subscriptions whose subscribers see a difference in next.
func (x *index[M]) changed(prev, next *snapshot.Snapshot, once func(*subscribers[M])) {
	if prev == next {
		return
	}
	// An empty answer to the wildcard is an answer (P11). The names that it left out are absent for
	// clients that list them as well (P25). A client that resumes waits for the complete answer,
	// and for what it removes (P67).
	first := answered(prev) != answered(next)
	if first || prev.AnswersWildcard(EverythingResuming) != next.AnswersWildcard(EverythingResuming) || next.RemovalsDiffer(prev) {
		for _, s := range x.wild.list {
			if first || s.sub.Resumes {
				once(s)
			}
		}
	}
	for _, name := range next.Changes(prev, Everything) {
		d := difference{prev: prev, next: next, name: name}
		d.byAlias = d.hasAliases()
		for _, c := range x.names[name].list {
			for _, s := range c.subs.list {
				if s.round != x.round && d.seenBy(s.sub, true) {
					once(s)
				}
			}
		}
		for _, s := range x.wild.list {
			if s.round != x.round && d.seenBy(s.sub, s.sub.Names.Has(name)) {
				once(s)
			}
		}
		if d.byAlias {
			x.changedAliases(&d, once)
		}
	}
}

// changedAliases looks at the subscriptions that have an alias or a glob of the resource held under
// d's name in either snapshot. It calls once for those that see a difference.
func (x *index[M]) changedAliases(d *difference, once func(*subscribers[M])) {
	look := func(alias string) bool {
		for _, c := range x.names[alias].list {
			for _, s := range c.subs.list {
				if s.round != x.round && d.sees(s.sub) {
					once(s)
				}
			}
		}
		return true
	}
	d.prev.AliasesOf(d.name, look)
	d.next.AliasesOf(d.name, look)
}

// renewed calls once for the subscriptions that have names whose TTL was renewed between the
// two snapshots.
func (x *index[M]) renewed(prev, next *snapshot.Snapshot, once func(*subscribers[M])) {
	for i, name := range next.Renewed(prev, Everything) {
		for _, c := range x.names[name].list {
			for _, s := range c.subs.list {
				once(s)
			}
		}
		next.AliasesOf(name, func(alias string) bool {
			for _, c := range x.names[alias].list {
				for _, s := range c.subs.list {
					once(s)
				}
			}
			return true
		})
		if i == 0 { // each further name concerns the same wildcard subscriptions
			for _, s := range x.wild.list {
				once(s)
			}
		}
	}
}

// answered reports whether the origin has answered the wildcard.
func answered(s *snapshot.Snapshot) bool { return s != nil && s.Answered }

// difference compares one name in two snapshots. Unless the resource has aliases, what a client
// sees of the name depends only on whether the client lists the name, has the wildcard, and
// resumes. So there are eight cases, and each is computed once.
type difference struct {
	prev, next *snapshot.Snapshot
	name       string
	byAlias    bool // the resource has aliases
	computed   [8]bool
	seen       [8]bool
}

func (d *difference) seenBy(sub *snapshot.Subscription, listed bool) bool {
	if d.byAlias {
		return d.sees(sub)
	}
	at := 0
	if listed {
		at |= 1
	}
	if sub.Wildcard {
		at |= 2
	}
	if sub.Resumes {
		at |= 4
	}
	if !d.computed[at] {
		d.computed[at], d.seen[at] = true, d.sees(sub)
	}
	return d.seen[at]
}

// hasAliases reports whether the resource held under the name has aliases in either snapshot.
func (d *difference) hasAliases() (has bool) {
	if !d.prev.HasAliases() && !d.next.HasAliases() {
		return false
	}
	any := func(string) bool { has = true; return false }
	d.prev.AliasesOf(d.name, any)
	d.next.AliasesOf(d.name, any)
	return has
}

// sees reports whether a client with sub sees a difference in the name.
func (d *difference) sees(sub *snapshot.Subscription) bool {
	was, wasThere := d.prev.Look(sub, d.name)
	is, isThere := d.next.Look(sub, d.name)
	if wasThere == snapshot.UnderOtherName && isThere == snapshot.UnderOtherName {
		// In both, the name is an alias of a resource with another name. The resource of this very
		// name may have been removed.
		_, wasThere = d.prev.LookOwnName(sub, d.name)
		_, isThere = d.next.LookOwnName(sub, d.name)
	}
	return wasThere != isThere || isThere == snapshot.Present && !is.Same(was) ||
		isThere == snapshot.Unresolvable && is.UnresolvedID() != was.UnresolvedID() ||
		d.prev.Error(sub, d.name) != d.next.Error(sub, d.name)
}
