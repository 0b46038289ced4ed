package xds

import "slices"

// Part is one of the two parts of what is known of a type: what came for the
// wildcard, or what came for names. Each comes on a stream of its own where
// there are both, and an answer on one says nothing of the other (P50): so a
// stream is held against its part alone.
type Part struct {
	snap *Snapshot
	wild bool
}

// Part returns the wildcard's part, or that of names. s may be nil: then it is
// empty.
func (s *Snapshot) Part(wildcard bool) Part { return Part{s, wildcard} }

func (p Part) of(e entry) *Resource {
	if p.wild {
		return e.wild
	}
	return e.named
}

// Held returns the resource that the part has under name; nil if none.
func (p Part) Held(name string) *Resource {
	if r := p.of(p.snap.get(name)); there(r) {
		return r
	}
	return nil
}

// Known reports whether the part says anything of name, its absence and an error
// included, or once did.
func (p Part) Known(name string) bool {
	e := p.snap.get(name)
	return p.of(e) != nil || p.Error(name) != nil || p.leads(name)
}

// Error is what the origin said to the part of name instead of giving it; nil if
// nothing.
func (p Part) Error(name string) *ResourceError {
	e := p.snap.get(name)
	return *e.errs.of(p.wild)
}

// Owed reports whether the origin has yet to answer for a name that is asked
// for: the part says nothing of it, or what it says was to be asked again (P18).
func (p Part) Owed(name string) bool {
	if r := p.of(p.snap.get(name)); r.Unresolved() && r.more.unresolved.again {
		return true
	}
	return !p.Known(name)
}

// Silent reports whether no word of the origin stands for name: it never spoke of
// it, or of what it was asked since, or what it said has lapsed (P62, P63).
func (p Part) Silent(name string) bool {
	r := p.of(p.snap.get(name))
	return hasLapsed(r) || p.Owed(name)
}

// Errors calls yield for each error of the part, in order of names.
func (p Part) Errors(yield func(*ResourceError) bool) {
	if p.snap == nil || p.snap.errors == 0 {
		return
	}
	p.snap.entries.Scan(func(_ string, e entry) bool {
		err := *e.errs.of(p.wild)
		return err == nil || yield(err)
	})
}

// leads reports whether name is a handle of a resource of the part.
func (p Part) leads(name string) (leads bool) {
	eachLink(p.snap.index(), name, func(l link) bool {
		leads = l.wild == p.wild && p.of(p.snap.get(l.name)) != nil
		return !leads
	})
	return leads
}

// Asked reports whether names ask for name, or for the resource that the part
// has under it.
func (p Part) Asked(name string, names *NameSet) bool {
	if names.Has(name) {
		return true
	}
	r := p.of(p.snap.get(name))
	return r != nil && r.handled(names)
}

// AskedAs is one of the names by which names ask for what the part has, or had,
// under name; its own, if they ask for it by none.
func (p Part) AskedAs(name string, names *NameSet) string {
	if names.Has(name) {
		return name
	}
	for _, h := range p.of(p.snap.get(name)).Handles() {
		if names.Has(h) {
			return h
		}
	}
	return name
}

// Answers reports whether the part has a resource for a name that is asked for:
// of this name, or one that goes by it.
func (p Part) Answers(name string) bool { return p.Held(name) != nil || p.leads(name) }

// Covered calls yield for each resource of the part that names ask for, by its
// name or by a handle, in order of names.
func (p Part) Covered(names *NameSet, yield func(*Resource) bool) {
	if p.snap.index() == nil {
		for name := range names.All() {
			if r := p.Held(name); r != nil && !yield(r) {
				return
			}
		}
		return
	}
	var all []string
	for name := range names.All() {
		all = append(all, name)
		eachLink(p.snap.links, name, func(l link) bool {
			if l.wild == p.wild {
				all = append(all, l.name)
			}
			return true
		})
	}
	slices.Sort(all)
	for _, name := range slices.Compact(all) {
		if r := p.Held(name); r != nil && !yield(r) {
			return
		}
	}
}

// Resources calls yield for each resource of the part, in order of names.
func (p Part) Resources(yield func(*Resource) bool) {
	if p.snap == nil {
		return
	}
	p.snap.entries.Scan(func(_ string, e entry) bool {
		r := p.of(e)
		return !there(r) || yield(r)
	})
}

// Answered: the origin has answered the wildcard.
func (p Part) Answered() bool { return p.wild && p.snap.answered() }

// Origin whose word the newest of the part is; "" for none.
func (p Part) Origin() string {
	switch {
	case p.snap == nil:
		return ""
	case p.wild:
		return p.snap.wildOrigin
	}
	return p.snap.namedOrigin
}

// Uncacheable returns how many resources of the part are not to be kept (P63).
func (p Part) Uncacheable() int {
	if p.snap == nil {
		return 0
	}
	return p.snap.uncached[btoi(p.wild)]
}

// Share returns what a resource of that name, if it is equal, may share its
// memory with: the part's own, or else the other part's.
func (p Part) Share(name string) *Resource {
	if r := p.Held(name); r != nil {
		return r
	}
	return p.snap.Held(name)
}
