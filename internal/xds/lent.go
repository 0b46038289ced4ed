package xds

import (
	"maps"
	"slices"
)

// lent reports whether r stands in the place of what came for a name and is the
// wildcard's copy. Clients that ask for the name are served from it until the
// name is answered, since the wildcard ended and does not bring it any more (P50). It is no
// answer itself: otherwise its absence from the next response would be a
// deletion (P65).
func lent(r *Resource) bool { return r != nil && r.lent }

// own returns the resource as what it is.
func (r *Resource) own() *Resource {
	if !lent(r) {
		return r
	}
	out := *r
	out.lent = false
	return &out
}

// lend has the wildcard's copy stay for clients that ask for the name, if there
// is no answer to that, or by handles to which there is none. A resource with
// do_not_cache is not lent (P63).
func (b *Builder) lend(name string, e *entry, asked *NameSet) bool {
	waits := func(named *Resource) bool { return named == nil || lent(named) }
	if !waits(e.named) || !there(e.wild) || e.wild.Uncacheable {
		return false
	}
	var by []string
	for _, h := range e.wild.Handles() {
		if at, _ := b.entries.Get(h); asked.Has(h) && waits(at.named) && !b.leads(h, there) {
			by = append(by, h)
		}
	}
	if len(by) == 0 && (!asked.Has(name) || b.leads(name, there)) {
		return false
	}
	copied := *e.wild
	copied.lent = true
	e.named = &copied
	if len(by) < len(e.wild.Handles()) {
		m := *e.wild.more
		m.handles, m.struck = by, true
		e.named.more = &m
	}
	return true
}

// noteLoans keeps which handles lead to what is lent.
func (b *Builder) noteLoans(name string, was, now *Resource) {
	if lent(was) {
		for _, h := range was.Handles() {
			if delete(b.loans[h], name); len(b.loans[h]) == 0 {
				delete(b.loans, h)
			}
		}
	}
	if lent(now) {
		for _, h := range now.Handles() {
			if b.loans == nil {
				b.loans = make(map[string]map[string]struct{})
			}
			if b.loans[h] == nil {
				b.loans[h] = make(map[string]struct{})
			}
			b.loans[h][name] = struct{}{}
		}
	}
}

// repayFor ends the loans to clients that ask by the name or an alias of a
// resource that came for it. One member is not the whole answer to a glob: what is
// lent to clients that ask by that stays until its own name is answered.
func (b *Builder) repayFor(r *Resource) {
	b.repay(r.Name)
	for _, h := range r.Handles() {
		if isGlob(h) {
			continue
		}
		b.repay(h)
		if e, _ := b.entries.Get(h); lent(e.named) {
			e.named = nil
			b.set(h, e)
		}
	}
}

// repay ends the loans to clients that ask by a handle, which is answered.
func (b *Builder) repay(handle string) {
	b.strike(handle, slices.Sorted(maps.Keys(b.loans[handle])))
}
