package xds

import (
	"bytes"
	"slices"
	"strings"
	"sync/atomic"
)

// A client can subscribe to a resource by its name or by an alias (P26). It can subscribe to an
// xdstp:// name also by the glob that covers the name (P28). It receives the resource under the
// resource's own name. The relay treats the glob as one more alias.
//
// Names are opaque and compared byte for byte. The relay parses an xdstp:// name only to find its
// glob.

// xdstpScheme is the prefix of the names that may have a glob.
const xdstpScheme = "xdstp://"

// MaxAliases is the maximum number of aliases of a resource. More are a fault of the origin,
// because each alias takes an entry in the index.
const MaxAliases = 4096

// Glob returns the glob that covers an xdstp:// name: the name with "*" as its last path segment.
// It returns "" for any other name, for a glob, and for a name without an id after its type.
func Glob(name string) string {
	if !strings.HasPrefix(name, xdstpScheme) {
		return ""
	}
	end := len(name)
	if i := strings.IndexAny(name, "?#"); i >= 0 {
		end = i
	}
	path := name[len(xdstpScheme):end]
	last := strings.LastIndexByte(path, '/')
	// The id follows the authority, which may be empty, and the type.
	if last <= strings.IndexByte(path, '/') || path[last+1:] == "*" {
		return ""
	}
	return name[:len(xdstpScheme)+last+1] + "*" + name[end:]
}

// rareFields has what few resources have.
type rareFields struct {
	// aliases are the aliases in effect and the glob, sorted.
	aliases []string
	// aliasRemoved: the origin has removed one of the aliases, although the resource still lists
	// it.
	aliasRemoved bool
	// expired marks a resource that is no longer held (NewExpiredMark).
	expired bool
	// unresolved marks an origin's answer that it has no resource for an alias (P18).
	unresolved *unresolvedAnswer
}

// unresolvedAnswer identifies an origin's answer that it has no resource for an alias.
type unresolvedAnswer struct {
	id uint64
	// requestedAgain: the relay has requested the alias again since this answer.
	requestedAgain bool
}

// aliasesAndGlob returns aliases and the glob of name, sorted, without name itself.
func aliasesAndGlob(name string, aliases []string) []string {
	glob := Glob(name)
	if len(aliases) == 0 && glob == "" {
		return nil
	}
	out := make([]string, 0, len(aliases)+1)
	for _, a := range aliases {
		if a != name && a != "" {
			out = append(out, a)
		}
	}
	if glob != "" {
		out = append(out, glob)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// newRareFields returns the rareFields of a resource with this name and these aliases; nil if it
// has no aliases.
func newRareFields(name string, aliases []string) *rareFields {
	all := aliasesAndGlob(name, aliases)
	if len(all) == 0 {
		return nil
	}
	return &rareFields{aliases: all}
}

// AliasesAndGlob returns the aliases by which clients can subscribe to the resource, sorted, and
// the glob of its name. Aliases that the origin has removed since are left out. Callers must not
// change the slice. r may be nil.
func (r *Resource) AliasesAndGlob() []string {
	if r == nil || r.rare == nil {
		return nil
	}
	return r.rare.aliases
}

// RequestedBy reports whether names has the resource's name or one of its aliases.
func (r *Resource) RequestedBy(names *NameSet) bool {
	return names.Has(r.Name) || r.RequestedByAlias(names)
}

// RequestedByAlias reports whether names has one of the resource's aliases.
func (r *Resource) RequestedByAlias(names *NameSet) bool {
	return r.rare != nil && names.Len() > 0 && slices.ContainsFunc(r.rare.aliases, names.Has)
}

// WithoutAlias returns a copy of the resource without this alias. The origin has removed it,
// although the resource lists it. r must have aliases.
func (r *Resource) WithoutAlias(alias string) *Resource {
	out, m := *r, *r.rare
	m.aliases = slices.DeleteFunc(slices.Clone(m.aliases), func(a string) bool { return a == alias })
	m.aliasRemoved = true
	out.rare = &m
	return &out
}

// AliasesAndGlob returns the aliases of the resource, and the glob of its name.
func (r *ParsedResource) AliasesAndGlob() []string { return aliasesAndGlob(r.Name, r.aliases) }

// RequestedBy reports whether names has the resource's name or one of its aliases.
func (r *ParsedResource) RequestedBy(names *NameSet) bool {
	if names.Has(r.Name) {
		return true
	}
	if len(r.aliases) == 0 && !strings.HasPrefix(r.Name, xdstpScheme) {
		return false
	}
	return slices.ContainsFunc(aliasesAndGlob(r.Name, r.aliases), names.Has)
}

// hasAllAliases reports whether a held resource with m still has all aliases that it lists.
func (r *ParsedResource) hasAllAliases(m *rareFields) bool { return m == nil || !m.aliasRemoved }

// Unresolved is an origin's answer that it has no resource for some aliases. The Resource has no
// body. The relay passes it on to the clients that requested the aliases (P18).
type Unresolved struct {
	Resource *Resource
	Names    []string // requested names that the answer is for
}

// unresolvedIDs is the source of the ids by which one such answer differs from another, even if
// they say the same.
var unresolvedIDs atomic.Uint64

// Unresolved reports whether r is an origin's answer that it has no resource for an alias. Such an
// r has aliases and no body, and it is no heartbeat: a heartbeat has a TTL, or the version of the
// resource that is held. held may be nil.
func (r *ParsedResource) Unresolved(held *Resource) bool {
	if r.body != nil || len(r.aliases) == 0 || r.hasTTL {
		return false
	}
	return held == nil || r.OriginVersion == "" || r.OriginVersion != held.OriginVersion
}

// TakeUnresolved returns the answer for the requested names that r has. It returns false if r has
// none of them. It copies what it keeps.
func (r *ParsedResource) TakeUnresolved(names *NameSet) (Unresolved, bool) {
	var requested []string
	if names.Has(r.Name) {
		requested = append(requested, r.Name)
	}
	for _, a := range aliasesAndGlob(r.Name, r.aliases) {
		if names.Has(a) && a != Glob(r.Name) {
			requested = append(requested, a)
		}
	}
	if len(requested) == 0 {
		return Unresolved{}, false
	}
	return Unresolved{Names: requested, Resource: &Resource{
		content:       &content{Name: strings.Clone(r.Name), extra: bytes.Clone(r.extra)},
		OriginVersion: strings.Clone(r.OriginVersion),
		rare:          &rareFields{unresolved: &unresolvedAnswer{id: unresolvedIDs.Add(1)}},
	}}, true
}

// Unresolved reports whether r is an origin's answer that it has no resource for an alias (P18).
// Such an r has no body and no content version. r may be nil.
func (r *Resource) Unresolved() bool {
	return r != nil && r.rare != nil && r.rare.unresolved != nil
}

// UnresolvedID returns the id of an Unresolved answer, and 0 for anything else.
func (r *Resource) UnresolvedID() uint64 {
	if !r.Unresolved() {
		return 0
	}
	return r.rare.unresolved.id
}

// RequestedAgain reports whether the relay has requested the alias again since this answer.
func (r *Resource) RequestedAgain() bool { return r.Unresolved() && r.rare.unresolved.requestedAgain }

// WithRequestedAgain returns a copy of r for which RequestedAgain is true. r must be Unresolved.
func (r *Resource) WithRequestedAgain() *Resource {
	out, m := *r, *r.rare
	m.unresolved = &unresolvedAnswer{id: m.unresolved.id, requestedAgain: true}
	out.rare = &m
	return &out
}
