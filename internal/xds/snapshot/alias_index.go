package snapshot

import (
	"slices"

	"github.com/tidwall/btree"

	"xdsrelay/internal/xds"
)

// aliasEntry says that a resource of the part with this scope has an alias (see entry). Here and in
// the Builder, an alias is also the glob that covers the resource's name (P28). A snapshot without
// such resources has no index.
type aliasEntry struct {
	alias string
	scope Scope
	name  string
}

// newAliasIndex returns an empty index. It is sorted by alias, and the named resources of an alias
// come before the wildcard's.
func newAliasIndex() *btree.BTreeG[aliasEntry] {
	return btree.NewBTreeGOptions(func(a, b aliasEntry) bool {
		if a.alias != b.alias {
			return a.alias < b.alias
		}
		if a.scope != b.scope {
			return a.scope < b.scope
		}
		return a.name < b.name
	}, btree.Options{NoLocks: true})
}

// eachAliasEntry calls yield for each entry of an alias. index may be nil.
func eachAliasEntry(index *btree.BTreeG[aliasEntry], alias string, yield func(aliasEntry) bool) {
	if index == nil {
		return
	}
	index.Ascend(aliasEntry{alias: alias}, func(l aliasEntry) bool { return l.alias == alias && yield(l) })
}

// isAliasIn reports whether any resource has this alias.
func isAliasIn(index *btree.BTreeG[aliasEntry], alias string) bool {
	any := false
	eachAliasEntry(index, alias, func(aliasEntry) bool { any = true; return false })
	return any
}

func (s *Snapshot) aliasIndex() *btree.BTreeG[aliasEntry] {
	if s == nil {
		return nil
	}
	return s.aliases
}

// HasAliases reports whether any resource has an alias.
func (s *Snapshot) HasAliases() bool { return s.aliasIndex() != nil }

// NamesByAlias returns the sorted names of the resources that have this alias. It does not include
// a resource whose own name it is.
func (s *Snapshot) NamesByAlias(alias string) []string {
	if s == nil || s.aliases == nil {
		return nil
	}
	var names []string
	eachAliasEntry(s.aliases, alias, func(l aliasEntry) bool { names = append(names, l.name); return true })
	slices.Sort(names)
	return slices.Compact(names)
}

// OnlyNameFor returns the name of the only resource that has name as its name or alias. It returns
// false if there is none or more than one.
func (s *Snapshot) OnlyNameFor(name string) (string, bool) {
	if s == nil {
		return "", false
	}
	sole, ok := "", false
	if e, _ := s.entries.Get(name); e.effective() != nil {
		sole, ok = name, true
	}
	eachAliasEntry(s.aliases, name, func(l aliasEntry) bool {
		if ok && sole != l.name {
			ok = false
			return false
		}
		sole, ok = l.name, true
		return true
	})
	return sole, ok
}

// AliasesOf calls yield for the aliases of both resources of this name.
func (s *Snapshot) AliasesOf(name string, yield func(string) bool) {
	if s == nil || s.aliases == nil {
		return
	}
	e, _ := s.entries.Get(name)
	for _, r := range [...]*xds.Resource{e.named, e.wildcard} {
		for _, alias := range r.AliasesAndGlob() {
			if !yield(alias) {
				return
			}
		}
	}
}

// hasOtherName reports whether a client with sub, which covers the alias, receives a resource with
// this alias and another name.
func (s *Snapshot) hasOtherName(sub *Subscription, alias string) bool {
	any := false
	eachAliasEntry(s.aliases, alias, func(l aliasEntry) bool {
		e, _ := s.entries.Get(l.name)
		any = e.visible(sub, sub.Names.Has(l.name)) != nil
		return !any
	})
	return any
}

// LookOwnName returns what a client with sub may know of the resource of this name, if Look
// returned UnderOtherName for the name. The origin answered the name as an alias, so no resource of
// this name exists for a client that lists it. An exception is a mark of a resource that is no
// longer held.
func (s *Snapshot) LookOwnName(sub *Subscription, name string) (*xds.Resource, Presence) {
	listed := sub.Names.Has(name)
	r, is := s.lookWithoutResource(sub, name, listed, s.get(name))
	if (is == Pending || is == Unresolvable) && listed && s.Part(ByName).isAlias(name) {
		return nil, Absent
	}
	return r, is
}

// IsRemoved reports whether to tell a client with sub that the resource had was deleted. The client
// received it, and now gets no resource of its name. If sub covers the name, Look decides.
// Otherwise the client has it by an alias, and is told once the origin has answered for one of its
// aliases in sub. It is not told if any of them is Expired: no origin said that the resource was
// deleted.
func (s *Snapshot) IsRemoved(sub *Subscription, had *xds.Resource) bool {
	if sub.Wildcard || sub.Names.Has(had.Name) {
		_, is := s.Look(sub, had.Name)
		return is == Absent
	}
	if e := s.get(had.Name); e.named.IsExpiredMark() || e.wildcard.IsExpiredMark() {
		return false
	}
	answered := false
	for _, alias := range had.AliasesAndGlob() {
		if !sub.Names.Has(alias) {
			continue
		}
		switch _, is := s.Look(sub, alias); is {
		case Expired:
			return false
		case Pending: // the client may have subscribed to the alias since
		default:
			answered = true
		}
	}
	return answered
}

// coveredByAliases is Covered for a list of names that may have aliases.
func (s *Snapshot) coveredByAliases(sub *Subscription, yield func(*xds.Resource) bool) {
	for _, name := range s.expandAliases(sub) {
		if r, is := s.Look(sub, name); is == Present && !yield(r) {
			return
		}
	}
}

// expandAliases returns the names of sub and the names of the resources that have them as aliases,
// sorted.
func (s *Snapshot) expandAliases(sub *Subscription) []string {
	names := slices.Collect(sub.Names.All())
	if s.aliases == nil {
		return names
	}
	for name := range sub.Names.All() {
		eachAliasEntry(s.aliases, name, func(l aliasEntry) bool { names = append(names, l.name); return true })
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// appendAliasChanges appends to names what may differ between a and b for the aliases in sub. That
// is the resources that have such an alias and differ, and the aliases that resources have in only
// one of the snapshots.
func appendAliasChanges(sub *Subscription, a, b *Snapshot, names []string) []string {
	if a.aliasIndex() == nil && b.aliasIndex() == nil {
		return names
	}
	for alias := range sub.Names.All() {
		resolves := [2]bool{}
		for i, s := range [...]*Snapshot{a, b} {
			eachAliasEntry(s.aliasIndex(), alias, func(l aliasEntry) bool {
				resolves[i] = true
				if a.get(l.name) != b.get(l.name) {
					names = append(names, l.name)
				}
				return true
			})
		}
		if resolves[0] != resolves[1] {
			names = append(names, alias)
		}
	}
	return names
}

// Unresolved returns the origin's answer that it has no resource for name; nil if it did not say
// so. again reports whether the relay has requested name since.
func (s *Snapshot) Unresolved(name string) (r *xds.Resource, again bool) {
	if s == nil || s.unresolved == 0 {
		return nil, false
	}
	if e, _ := s.entries.Get(name); e.named.Unresolved() {
		return e.named, e.named.RequestedAgain()
	}
	return nil, false
}

// AnyUnresolved reports whether there are aliases that the origin could not resolve.
func (s *Snapshot) AnyUnresolved() bool { return s != nil && s.unresolved > 0 }
