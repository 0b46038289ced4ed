package snapshot

import (
	"maps"
	"slices"

	"github.com/tidwall/btree"

	"xdsrelay/internal/xds"
)

// updateAliasIndex updates the index after an entry has changed.
func (b *Builder) updateAliasIndex(name string, was, now entry) {
	b.updateAliasesOf(name, was.wildcard.AliasesAndGlob(), now.wildcard.AliasesAndGlob(), ByWildcard)
	b.updateAliasesOf(name, was.named.AliasesAndGlob(), now.named.AliasesAndGlob(), ByName)
}

func (b *Builder) updateAliasesOf(name string, was, now []string, scope Scope) {
	if len(was) == 0 && len(now) == 0 || slices.Equal(was, now) {
		return
	}
	for _, alias := range was {
		if _, still := slices.BinarySearch(now, alias); still {
			continue
		}
		b.noteAlias(alias)
		b.aliases.Delete(aliasEntry{alias, scope, name})
		if scope == ByName {
			b.lostAliases[alias] = struct{}{}
		}
	}
	for _, alias := range now {
		if _, before := slices.BinarySearch(was, alias); before {
			continue
		}
		b.noteAlias(alias)
		b.aliases.Set(aliasEntry{alias, scope, name})
		if scope == ByWildcard {
			continue
		}
		// The resource replaces what the origin said of the alias before. A mark of a resource that
		// is no longer held stays, since a client may still have that resource (LookOwnName).
		if e, _ := b.entries.Get(alias); e.named != nil && !e.named.HasBody() && !e.named.IsExpiredMark() {
			e.named = nil
			b.set(alias, e)
		}
	}
}

// noteAlias notes whether any resource had the alias in the last snapshot.
func (b *Builder) noteAlias(alias string) {
	if b.aliases == nil {
		b.aliases = newAliasIndex()
		b.resolvedBefore, b.lostAliases, b.maybeNotRequested = make(map[string]bool), make(map[string]struct{}), make(map[string]struct{})
	}
	if _, noted := b.resolvedBefore[alias]; !noted {
		b.resolvedBefore[alias] = isAliasIn(b.aliases, alias)
	}
}

// removeAlias removes an alias from all named resources that have it. The origin said that there is
// no resource of this name (P26). If a resource of this very name was held, that one was removed,
// and the others keep their alias.
func (b *Builder) removeAlias(alias string) {
	b.maybeNotRequested[alias] = struct{}{}
	if e, _ := b.entries.Get(alias); e.named == nil || e.named == removedByOrigin || e.named.Unresolved() {
		b.dropAlias(alias, b.namedWithAlias(alias))
	}
}

// dropAlias removes an alias from the named resources with these names.
func (b *Builder) dropAlias(alias string, names []string) {
	for _, name := range names {
		e, _ := b.entries.Get(name)
		e.named = e.named.WithoutAlias(alias)
		b.set(name, e)
		b.maybeNotRequested[name] = struct{}{}
	}
}

// namedWithAlias returns the names of the named resources that have this alias.
func (b *Builder) namedWithAlias(alias string) (names []string) {
	eachAliasEntry(b.aliases, alias, func(l aliasEntry) bool {
		if l.scope == ByName {
			names = append(names, l.name)
		}
		return l.scope == ByName
	})
	return names
}

// aliasLeadsTo reports whether a named resource that has this alias satisfies is.
func (b *Builder) aliasLeadsTo(alias string, is func(*xds.Resource) bool) (leads bool) {
	eachAliasEntry(b.aliases, alias, func(l aliasEntry) bool {
		e, _ := b.entries.Get(l.name)
		leads = l.scope == ByName && is(e.named)
		return l.scope == ByName && !leads
	})
	return leads
}

// setUnresolved stores the origin's answers that it has no resource for an alias. It ignores an
// alias that a resource has, and reports whether anything changed.
func (b *Builder) setUnresolved(us []xds.Unresolved) (changed bool) {
	for _, u := range us {
		for _, name := range u.Names {
			e, _ := b.entries.Get(name)
			if e.named.HasBody() || b.aliasLeadsTo(name, (*xds.Resource).HasBody) {
				continue
			}
			e.named = u.Resource
			b.set(name, e)
			delete(b.lostAliases, name) // ResolveAliases must not mark it as removed
			changed = true
		}
	}
	return changed
}

// RequestAgain notes that the relay requests these names again that the origin could not resolve.
// It returns them, without those that it has requested again since the answer: one answer serves
// all clients that wait.
func (b *Builder) RequestAgain(names ...string) []string {
	var again []string
	for _, name := range names {
		e, _ := b.entries.Get(name)
		if !e.named.Unresolved() || e.named.RequestedAgain() {
			continue
		}
		e.named = e.named.WithRequestedAgain()
		b.set(name, e)
		again = append(again, name)
	}
	return again
}

// ResolveAliases decides what the changes since the last call mean for aliases. It is called before
// Snapshot. requested has the names that clients subscribe to.
//
// An alias that named resources had, and that none has now, becomes Absent: the origin removed the
// resource or changed its aliases. A removal of a resource that was requested only by alias is
// forgotten.
func (b *Builder) ResolveAliases(requested *xds.NameSet) {
	for _, name := range slices.Sorted(maps.Keys(b.maybeNotRequested)) {
		e, _ := b.entries.Get(name)
		if requested.Has(name) || e.named == nil || e.named.RequestedByAlias(requested) {
			continue
		}
		e.named = nil
		b.set(name, e)
	}
	for _, alias := range slices.Sorted(maps.Keys(b.lostAliases)) {
		e, _ := b.entries.Get(alias)
		if !requested.Has(alias) || e.named.HasBody() || b.aliasLeadsTo(alias, func(*xds.Resource) bool { return true }) {
			continue
		}
		e.named = removedByOrigin
		b.set(alias, e)
	}
	clear(b.maybeNotRequested)
	clear(b.lostAliases)
}

// Forget drops what is known of these names, which no client subscribes to any more (P65). It
// keeps a resource that left requests by another name or alias. left has the names that clients
// still subscribe to.
func (b *Builder) Forget(left *xds.NameSet, names ...string) {
	for _, name := range names {
		for _, n := range append(b.namedWithAlias(name), name) {
			e, ok := b.entries.Get(n)
			if !ok || (e.named.HasBody() || e.named.IsExpiredMark()) && e.named.RequestedBy(left) {
				continue
			}
			was := e
			if e.named = nil; !left.Has(n) {
				e.errors.named = nil
			}
			if e != was {
				b.set(n, e)
			}
		}
	}
	clear(b.maybeNotRequested)
	clear(b.lostAliases)
}

// resolutionChanges returns the aliases that some resource had in the last snapshot and none has
// now, or the other way round.
func (b *Builder) resolutionChanges() []string {
	var out []string
	for alias, was := range b.resolvedBefore {
		if isAliasIn(b.aliases, alias) != was {
			out = append(out, alias)
		}
	}
	if len(b.resolvedBefore) > maxKeptPending {
		b.resolvedBefore = make(map[string]bool)
	} else {
		clear(b.resolvedBefore)
	}
	return out
}

// copyAliases returns the index for a snapshot; nil if it is empty.
func (b *Builder) copyAliases() *btree.BTreeG[aliasEntry] {
	if b.aliases == nil || b.aliases.Len() == 0 {
		return nil
	}
	return b.aliases.Copy()
}
