package xds

import (
	"maps"
	"slices"

	"github.com/tidwall/btree"
)

// link leads from a handle to a resource that goes by it; wild is the
// wildcard's copy. There are none for resources that go by their names alone,
// and a snapshot without any has no index.
type link struct {
	handle string
	wild   bool
	name   string
}

// linksOf orders by handle, and what came for names before what the wildcard
// brought.
func linksOf() *btree.BTreeG[link] {
	return btree.NewBTreeGOptions(func(a, b link) bool {
		if a.handle != b.handle {
			return a.handle < b.handle
		}
		if a.wild != b.wild {
			return b.wild
		}
		return a.name < b.name
	}, btree.Options{NoLocks: true})
}

// eachLink calls yield for the links of a handle.
func eachLink(links *btree.BTreeG[link], handle string, yield func(link) bool) {
	if links == nil {
		return
	}
	links.Ascend(link{handle: handle}, func(l link) bool { return l.handle == handle && yield(l) })
}

// linked reports whether any resource goes by handle.
func linked(links *btree.BTreeG[link], handle string) bool {
	any := false
	eachLink(links, handle, func(link) bool { any = true; return false })
	return any
}

// AnyHandles reports whether any resource goes by more than its name.
func (s *Snapshot) AnyHandles() bool { return s.index() != nil }

// Linked returns the names of the resources that go by handle, sorted; that of
// the resource whose name it is, if there is one, is not among them.
func (s *Snapshot) Linked(handle string) []string {
	if s == nil || s.links == nil {
		return nil
	}
	var names []string
	eachLink(s.links, handle, func(l link) bool { names = append(names, l.name); return true })
	slices.Sort(names)
	return slices.Compact(names)
}

// Sole returns the name of the one resource that is called or goes by name;
// false if there is none, or more than one.
func (s *Snapshot) Sole(name string) (string, bool) {
	if s == nil {
		return "", false
	}
	sole, ok := "", false
	if e, _ := s.entries.Get(name); e.effective() != nil {
		sole, ok = name, true
	}
	eachLink(s.links, name, func(l link) bool {
		if sole != "" && sole != l.name {
			ok = false
			return false
		}
		sole, ok = l.name, true
		return true
	})
	return sole, ok
}

// HandlesAt calls yield for the handles of what is held under name.
func (s *Snapshot) HandlesAt(name string, yield func(string) bool) {
	if s == nil || s.links == nil {
		return
	}
	e, _ := s.entries.Get(name)
	for _, r := range [...]*Resource{e.named, e.wild} {
		for _, h := range r.Handles() {
			if !yield(h) {
				return
			}
		}
	}
}

// elsewhere reports whether a client with sub, which asks for handle or for
// everything, is given a resource for it under another name.
func (s *Snapshot) elsewhere(sub *Subscription, handle string) bool {
	any := false
	eachLink(s.links, handle, func(l link) bool {
		e, _ := s.entries.Get(l.name)
		any = e.visible(sub, sub.Names.Has(l.name)) != nil
		return !any
	})
	return any
}

// Own is what a client with sub may know of the resource of this name where Look
// says that it is elsewhere: for that is said of the name as a handle. A name that
// is answered by a resource of another name is no resource's own, unless one
// lapsed that nobody said is gone.
func (s *Snapshot) Own(sub *Subscription, name string) (*Resource, Presence) {
	listed := sub.Names.Has(name)
	r, is := s.missing(sub, listed, s.get(name))
	if (is == Pending || is == Unresolvable) && listed && s.Part(false).leads(name) {
		return nil, Absent
	}
	return r, is
}

// Gone reports whether a client with sub, which had this resource and is given
// none of its name now, is to be told that it went. It is, once anything is known
// of what it asked for to get it, unless it does not ask for that any more, or
// some of that lapsed: then nobody said that it went.
func (s *Snapshot) Gone(sub *Subscription, had *Resource) bool {
	if sub.Wildcard || sub.Names.Has(had.Name) {
		_, is := s.Look(sub, had.Name)
		return is == Absent
	}
	if e := s.get(had.Name); hasLapsed(e.named) || hasLapsed(e.wild) {
		return false
	}
	asked := false
	for _, h := range had.Handles() {
		if !sub.Names.Has(h) {
			continue
		}
		switch _, is := s.Look(sub, h); is {
		case Lapsed:
			return false
		case Pending: // it may have been asked for since, and says nothing of what others led to
		default:
			asked = true
		}
	}
	return asked
}

// relink follows a change of an entry, after it.
func (b *Builder) relink(name string, was, now entry) {
	b.relinkPart(name, was.wild.Handles(), now.wild.Handles(), true)
	b.relinkPart(name, was.named.Handles(), now.named.Handles(), false)
}

func (b *Builder) relinkPart(name string, was, now []string, wild bool) {
	if len(was) == 0 && len(now) == 0 || slices.Equal(was, now) {
		return
	}
	for _, h := range was {
		if _, still := slices.BinarySearch(now, h); still {
			continue
		}
		b.noteHandle(h)
		b.links.Delete(link{h, wild, name})
		if !wild {
			b.unlinked[h] = struct{}{}
		}
	}
	for _, h := range now {
		if _, before := slices.BinarySearch(was, h); before {
			continue
		}
		b.noteHandle(h)
		b.links.Set(link{h, wild, name})
		if wild {
			continue
		}
		// What was said of it before is overtaken, but not what a client may still
		// have under this name (Own).
		if e, _ := b.entries.Get(h); e.named != nil && !there(e.named) && !hasLapsed(e.named) {
			e.named = nil
			b.set(h, e)
		}
	}
}

// noteHandle keeps whether a handle led anywhere in the last snapshot.
func (b *Builder) noteHandle(h string) {
	if b.links == nil {
		b.links = linksOf()
		b.resolved, b.unlinked, b.unsettled = make(map[string]bool), make(map[string]struct{}), make(map[string]struct{})
	}
	if _, noted := b.resolved[h]; !noted {
		b.resolved[h] = linked(b.links, h)
	}
}

// withdraw takes a handle away from the resources that came for names and go by
// it: the origin said that there is none of this name (P26). Where there was one
// that is called so, it is the one that went, and the others have their alias
// still.
func (b *Builder) withdraw(handle string) {
	b.unsettled[handle] = struct{}{}
	if e, _ := b.entries.Get(handle); e.named == nil || e.named == gone || e.named.Unresolved() {
		b.strike(handle, b.named(handle))
	}
}

// strike takes a handle away from these resources.
func (b *Builder) strike(handle string, names []string) {
	for _, name := range names {
		e, _ := b.entries.Get(name)
		e.named = e.named.without(handle)
		b.set(name, e)
		b.unsettled[name] = struct{}{}
	}
}

// named are the names of what came for names and goes by handle.
func (b *Builder) named(handle string) (names []string) {
	eachLink(b.links, handle, func(l link) bool {
		if !l.wild {
			names = append(names, l.name)
		}
		return !l.wild
	})
	return names
}

// leads reports whether a handle leads to anything that came for names, and for
// which is holds.
func (b *Builder) leads(handle string, is func(*Resource) bool) (leads bool) {
	eachLink(b.links, handle, func(l link) bool {
		e, _ := b.entries.Get(l.name)
		leads = !l.wild && is(e.named)
		return !l.wild && !leads
	})
	return leads
}

// Settle draws the conclusions from what was applied since the last call, for
// those names that are asked for: to be called before Snapshot wherever clients
// may ask by handles.
//
// What led to a resource and does not any more is absent, since the origin has
// removed it or given it other aliases. And of a resource that came for a handle
// nothing is kept under its own name, once it is gone or goes by nothing that is
// asked for.
func (b *Builder) Settle(asked *NameSet) {
	for _, name := range slices.Sorted(maps.Keys(b.unsettled)) {
		e, _ := b.entries.Get(name)
		if asked.Has(name) || e.named == nil || e.named.handled(asked) {
			continue
		}
		e.named = nil
		b.set(name, e)
	}
	for _, h := range slices.Sorted(maps.Keys(b.unlinked)) {
		e, _ := b.entries.Get(h)
		if !asked.Has(h) || there(e.named) || b.leads(h, func(*Resource) bool { return true }) {
			continue
		}
		e.named = gone
		b.set(h, e)
	}
	clear(b.unsettled)
	clear(b.unlinked)
}

// turned are the handles that led to a resource in the last snapshot and do not
// now, or the other way round.
func (b *Builder) turned() []string {
	var out []string
	for h, was := range b.resolved {
		if linked(b.links, h) != was {
			out = append(out, h)
		}
	}
	if len(b.resolved) > maxKeptPending {
		b.resolved = make(map[string]bool)
	} else {
		clear(b.resolved)
	}
	return out
}

// ForgetBut drops what came for these names, which nobody asks for any more
// (P65), as far as it was not asked for otherwise: left is what still is.
func (b *Builder) ForgetBut(left *NameSet, names ...string) {
	for _, name := range names {
		for _, n := range append(b.named(name), name) {
			e, ok := b.entries.Get(n)
			if !ok || (there(e.named) || hasLapsed(e.named)) && e.named.AskedBy(left) {
				continue
			}
			was := e
			if e.named = nil; !left.Has(n) {
				e.errs.named = nil
			}
			if e != was {
				b.set(n, e)
			}
		}
	}
	clear(b.unsettled)
	clear(b.unlinked)
}

// copyLinks is the index for a snapshot.
func (b *Builder) copyLinks() *btree.BTreeG[link] {
	if b.links == nil || b.links.Len() == 0 {
		return nil
	}
	return b.links.Copy()
}

// coveredByHandles is Covered for a list of names of which some may be handles.
func (s *Snapshot) coveredByHandles(sub *Subscription, yield func(*Resource) bool) {
	for _, name := range s.reached(sub) {
		if r, is := s.Look(sub, name); is == Present && !yield(r) {
			return
		}
	}
}

// reached are the names of sub and those that they lead to, sorted.
func (s *Snapshot) reached(sub *Subscription) []string {
	names := slices.Collect(sub.Names.All())
	if s.links == nil {
		return names
	}
	for name := range sub.Names.All() {
		eachLink(s.links, name, func(l link) bool { names = append(names, l.name); return true })
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// covers reports whether sub covers name, or in either snapshot the resource of
// this name.
func covers(a, b *Snapshot, sub *Subscription, name string) bool {
	if sub.Covers(name) {
		return true
	}
	for _, s := range [...]*Snapshot{a, b} {
		if s.index() == nil {
			continue
		}
		if e, _ := s.entries.Get(name); e.visible(sub, false) != nil {
			return true
		}
	}
	return false
}

// linkedBy appends the names of the resources to which any of sub's names
// leads in either snapshot, and those names of sub that lead anywhere in only
// one of them.
func linkedBy(sub *Subscription, a, b *Snapshot, names []string) []string {
	if a.index() == nil && b.index() == nil {
		return names
	}
	for h := range sub.Names.All() {
		there := [2]bool{}
		for i, s := range [...]*Snapshot{a, b} {
			eachLink(s.index(), h, func(l link) bool {
				there[i] = true
				if a.get(l.name) != b.get(l.name) {
					names = append(names, l.name)
				}
				return true
			})
		}
		if there[0] != there[1] {
			names = append(names, h)
		}
	}
	return names
}

func (s *Snapshot) index() *btree.BTreeG[link] {
	if s == nil {
		return nil
	}
	return s.links
}
