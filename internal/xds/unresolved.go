package xds

import (
	"bytes"
	"strings"
)

// Unresolved reports whether r is no resource, but the origin's word that it
// has none for an alias (P18). It has neither body nor version. It is kept as the
// absence of a name is.
func (r *Resource) Unresolved() bool {
	return r != nil && r.more != nil && r.more.unresolved
}

// Unresolved reports whether an origin says by r that it has no resource for an
// alias: r has no body, and none of the marks of a heartbeat, which are a TTL or
// the version of what is held.
func (r *Raw) Unresolved(held *Resource) bool {
	if r.body != nil || len(r.aliases) == 0 || r.timed {
		return false
	}
	return held == nil || r.OriginVersion == "" || r.OriginVersion != held.OriginVersion
}

// TakeUnresolved makes the word of r for those of names that it speaks of;
// nothing if it speaks of none. What is held of a resource is not touched by it.
func (r *Raw) TakeUnresolved(names *NameSet) (Unresolved, bool) {
	var asked []string
	if names.Has(r.Name) {
		asked = append(asked, r.Name)
	}
	for _, a := range handlesOf(r.Name, r.aliases) {
		if names.Has(a) && a != Glob(r.Name) {
			asked = append(asked, a)
		}
	}
	if len(asked) == 0 {
		return Unresolved{}, false
	}
	return Unresolved{Names: asked, Resource: &Resource{
		content:       &content{Name: strings.Clone(r.Name), extra: bytes.Clone(r.extra)},
		OriginVersion: strings.Clone(r.OriginVersion),
		more:          &more{unresolved: true},
	}}, true
}

// unresolve notes what the origin could not resolve, under the names that were
// asked for. A resource that goes by one of them stays, and so does what was said so before.
func (b *Builder) unresolve(us []Unresolved) (changed bool) {
	for _, u := range us {
		for _, name := range u.Names {
			e, _ := b.entries.Get(name)
			if there(e.named) || e.named.Unresolved() || b.leads(name, there) {
				continue
			}
			e.named = u.Resource
			b.set(name, e)
			delete(b.unlinked, name) // that it leads nowhere is said already
			changed = true
		}
	}
	return changed
}
