package xds

import (
	"bytes"
	"strings"
	"sync/atomic"
)

// words counts what origins could not resolve, so that one such word is told
// from the next, whatever it says.
var words atomic.Uint64

// Unresolved reports whether r is no resource, but the origin's word that it
// has none for an alias (P18). It has neither body nor version, and is held only
// until all who asked have been told.
func (r *Resource) Unresolved() bool {
	return r != nil && r.more != nil && r.more.unresolved != nil
}

// Word tells one answer that there is no resource from another: it is 0 for
// anything else.
func (r *Resource) Word() uint64 {
	if !r.Unresolved() {
		return 0
	}
	return r.more.unresolved.id
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
		more:          &more{unresolved: &unresolved{id: words.Add(1)}},
	}}, true
}

// unresolve notes what the origin could not resolve, under the names that were
// asked for. A resource that goes by one of them stays.
func (b *Builder) unresolve(us []Unresolved) (changed bool) {
	for _, u := range us {
		for _, name := range u.Names {
			e, _ := b.entries.Get(name)
			if there(e.named) || b.leads(name, there) {
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

// Again notes that those of names that the origin could not resolve are asked
// for once more, and returns them. What has been so since is not among them:
// one answer serves all who wait.
func (b *Builder) Again(names ...string) []string {
	var again []string
	for _, name := range names {
		e, _ := b.entries.Get(name)
		if !e.named.Unresolved() || e.named.more.unresolved.again {
			continue
		}
		r, m := *e.named, *e.named.more
		m.unresolved = &unresolved{id: m.unresolved.id, again: true}
		r.more = &m
		e.named = &r
		b.set(name, e)
		again = append(again, name)
	}
	return again
}

// Unresolved returns the origin's word that it has no resource for name, and
// whether it was asked again since; nil if there is none.
func (s *Snapshot) Unresolved(name string) (r *Resource, again bool) {
	if s == nil || s.unresolved == 0 {
		return nil, false
	}
	if e, _ := s.entries.Get(name); e.named.Unresolved() {
		return e.named, e.named.more.unresolved.again
	}
	return nil, false
}

// AnyUnresolved reports whether there are aliases that the origin could not
// resolve.
func (s *Snapshot) AnyUnresolved() bool { return s != nil && s.unresolved > 0 }
