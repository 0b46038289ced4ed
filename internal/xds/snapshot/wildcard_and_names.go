package snapshot

import (
	"slices"

	"xdsrelay/internal/xds"
)

// Scope says which of the two parts of a type is meant.
type Scope uint8

const (
	ByName     Scope = iota // what subscriptions to names brought
	ByWildcard              // what the wildcard brought
)

// ScopeOf returns ByWildcard or ByName.
func ScopeOf(wildcard bool) Scope { return Scope(boolToInt(wildcard)) }

// Other returns the scope of the other part.
func (s Scope) Other() Scope { return ByWildcard - s }

// Part is one of the two parts of what is known of a type: what the wildcard brought, or what
// subscriptions to names brought. If a key has both, each part comes on its own upstream stream. An
// answer on one stream says nothing of the other part (P50), so a stream reads only its own part.
type Part struct {
	snap  *Snapshot
	scope Scope
}

// Part returns the part of this scope. It is empty if s is nil.
func (s *Snapshot) Part(scope Scope) Part { return Part{s, scope} }

func (p Part) ofEntry(e entry) *xds.Resource { return *e.resource(p.scope) }

// Resource returns the part's resource of this name; nil if none.
func (p Part) Resource(name string) *xds.Resource {
	if r := p.ofEntry(p.snap.get(name)); r.HasBody() {
		return r
	}
	return nil
}

// Known reports whether the part has anything for name: a resource of this name or alias, an
// absence, a mark or an error.
func (p Part) Known(name string) bool {
	e := p.snap.get(name)
	return p.ofEntry(e) != nil || p.Error(name) != nil || p.isAlias(name)
}

// Answers reports whether the part has a resource with name as its name or alias.
func (p Part) Answers(name string) bool { return p.Resource(name) != nil || p.isAlias(name) }

// isAlias reports whether name is an alias of a resource or mark in the part.
func (p Part) isAlias(name string) (leads bool) {
	eachAliasEntry(p.snap.aliasIndex(), name, func(l aliasEntry) bool {
		leads = l.scope == p.scope && p.ofEntry(p.snap.get(l.name)) != nil
		return !leads
	})
	return leads
}

// Unanswered reports whether the origin still has to answer for name. The part knows nothing of
// it, or the relay has requested it again since the origin could not resolve it (P18).
func (p Part) Unanswered(name string) bool {
	if r := p.ofEntry(p.snap.get(name)); r.Unresolved() && r.RequestedAgain() {
		return true
	}
	return !p.Known(name)
}

// HasNoAnswer reports whether no answer of the origin is in effect for name. The origin still has
// to answer (Unanswered), or the resource is no longer held (P62, P63).
func (p Part) HasNoAnswer(name string) bool {
	r := p.ofEntry(p.snap.get(name))
	return r.IsExpiredMark() || p.Unanswered(name)
}

// Requested reports whether names has name, or an alias of the part's resource of this name.
func (p Part) Requested(name string, names *xds.NameSet) bool {
	if names.Has(name) {
		return true
	}
	r := p.ofEntry(p.snap.get(name))
	return r != nil && r.RequestedByAlias(names)
}

// RequestedAs returns a name in names by which the part's resource, or former resource, of this
// name was requested. It returns name itself if there is none.
func (p Part) RequestedAs(name string, names *xds.NameSet) string {
	if names.Has(name) {
		return name
	}
	for _, alias := range p.ofEntry(p.snap.get(name)).AliasesAndGlob() {
		if names.Has(alias) {
			return alias
		}
	}
	return name
}

// Covered calls yield for each resource of the part whose name or alias names has, in order of
// names.
func (p Part) Covered(names *xds.NameSet, yield func(*xds.Resource) bool) {
	if p.snap.aliasIndex() == nil {
		for name := range names.All() {
			if r := p.Resource(name); r != nil && !yield(r) {
				return
			}
		}
		return
	}
	var all []string
	for name := range names.All() {
		all = append(all, name)
		eachAliasEntry(p.snap.aliases, name, func(l aliasEntry) bool {
			if l.scope == p.scope {
				all = append(all, l.name)
			}
			return true
		})
	}
	slices.Sort(all)
	for _, name := range slices.Compact(all) {
		if r := p.Resource(name); r != nil && !yield(r) {
			return
		}
	}
}

// Resources calls yield for each resource of the part, in order of names.
func (p Part) Resources(yield func(*xds.Resource) bool) {
	if p.snap == nil {
		return
	}
	p.snap.entries.Scan(func(_ string, e entry) bool {
		r := p.ofEntry(e)
		return !r.HasBody() || yield(r)
	})
}

// SharedWith returns a resource with which an equal new one may share memory: the one of this name
// in the part, or else in the other part; nil if none.
func (p Part) SharedWith(name string) *xds.Resource {
	if r := p.Resource(name); r != nil {
		return r
	}
	return p.snap.Resource(name)
}

// Error returns the error that the origin gave the part for name; nil if none.
func (p Part) Error(name string) *xds.ResourceError {
	e := p.snap.get(name)
	return *e.errors.pointer(p.scope)
}

// Errors calls yield for each error of the part, in order of names.
func (p Part) Errors(yield func(*xds.ResourceError) bool) {
	if p.snap == nil || p.snap.errorCount == 0 {
		return
	}
	p.snap.entries.Scan(func(_ string, e entry) bool {
		err := *e.errors.pointer(p.scope)
		return err == nil || yield(err)
	})
}

// ExpiredNames calls yield for each name whose resource the part no longer holds, although no
// origin said that it was deleted, in order of names.
func (p Part) ExpiredNames(yield func(name string) bool) {
	if p.snap == nil || p.snap.expired == 0 {
		return
	}
	p.snap.entries.Scan(func(name string, e entry) bool { return !p.ofEntry(e).IsExpiredMark() || yield(name) })
}

// Answered reports whether the origin has answered the wildcard. It is false for the named part.
func (p Part) Answered() bool { return p.scope == ByWildcard && p.snap.answered() }

// partOrigin is the origin of a part's newest update, with its domain (P55).
type partOrigin struct{ name, domain string }

// Origin returns the origin of the part's newest update, and its domain (P55); "" if there was
// none.
func (p Part) Origin() (name, domain string) {
	if p.snap == nil {
		return "", ""
	}
	o := p.snap.namedOrigin
	if p.scope == ByWildcard {
		o = p.snap.wildcardOrigin
	}
	return o.name, o.domain
}

// Uncacheable returns how many resources of the part must not be cached (P63).
func (p Part) Uncacheable() int {
	if p.snap == nil {
		return 0
	}
	return p.snap.uncacheable[p.scope]
}
