package xds

import (
	"maps"
	"slices"
)

// loan says that a resource in the place of what came for a name is the
// wildcard's copy, which is served until the name is answered: it was what those
// who ask for the name had before, and the wildcard does not bring it any more
// (P50). It is no answer itself. If it counted as one, its absence from the next
// response would be a removal (P65), and no clock would run for the name (P57).
// Without it the name would be pending in between, and what clients have would
// be sent to them again, or its removal taken for the first answer.
type loan uint8

const (
	// untilTime: the origin has removed it from the wildcard. If it says nothing
	// of the name either, it is gone.
	untilTime loan = iota + 1
	// untilAnswer: nobody asks for the wildcard any more. What is held never
	// becomes absent by silence.
	untilAnswer
)

// lent reports whether it is on loan.
func lent(r *Resource) bool { return r != nil && r.loan != 0 }

// lend returns the resource on loan. All bytes are shared.
func (r *Resource) lend(l loan) *Resource {
	out := *r
	out.loan = l
	return &out
}

// own returns the resource as what it is.
func (r *Resource) own() *Resource {
	if !lent(r) {
		return r
	}
	return r.lend(0)
}

// Lend has those of names that the wildcard has, and is about to lose, stay for
// who asked for them, or by a handle, and waits for an answer.
func (b *Builder) Lend(asked *NameSet, names []string) {
	for _, name := range names {
		if e, ok := b.entries.Get(name); ok && b.lend(name, &e, asked, untilTime) {
			b.set(name, e)
		}
	}
}

// lend lends the wildcard's copy to who asks for the name, if there is no answer
// to that, or by handles to which there is none. What is not to be kept is not
// lent (P63).
func (b *Builder) lend(name string, e *entry, asked *NameSet, l loan) bool {
	waits := func(named *Resource) bool {
		return named == nil || lent(named) || l == untilAnswer && named == guessed
	}
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
	e.named = e.wild.lend(l)
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

// repayFor ends the loans to who asks by the name or an alias of a resource that
// came for it, be it of what goes by that, too, or of what is called so.
// Of a glob one member is not the whole answer: what is lent to who asks by that
// stays until its own name is answered, or the time of the glob is up.
func (b *Builder) repayFor(r *Resource) {
	b.repay(r.Name, false)
	for _, h := range r.Handles() {
		if isGlob(h) {
			continue
		}
		b.repay(h, false)
		if e, _ := b.entries.Get(h); lent(e.named) {
			e.named = nil
			b.set(h, e)
		}
	}
}

// repay ends the loans to who asks by a handle, which is answered; or, by a
// guess, those that last until then.
func (b *Builder) repay(handle string, guess bool) {
	var back []string
	for _, name := range slices.Sorted(maps.Keys(b.loans[handle])) {
		if e, _ := b.entries.Get(name); !guess || e.named.loan == untilTime {
			back = append(back, name)
		}
	}
	b.strike(handle, back)
}
