package xds

import (
	"slices"
	"strings"
)

// A resource goes by its name and, beyond that, by its handles: its aliases
// (P26) and, for an xdstp:// name, the glob that it falls under (P28). A client
// that asks for any of these gets the resource, under its own name.
//
// Names are opaque and compared byte for byte. Only the glob of an xdstp:// name
// is read from it.

// scheme begins the names that may have a glob.
const scheme = "xdstp://"

// MaxAliases bounds the aliases of a resource: more are a fault of the origin,
// since each is an entry of the index.
const MaxAliases = 4096

// Glob is the collection that an xdstp:// name falls under: the name with "*"
// for its last path segment. "" for any other name, for one that is a glob
// itself, and for one of a type alone.
func Glob(name string) string {
	if !strings.HasPrefix(name, scheme) {
		return ""
	}
	end := len(name)
	if i := strings.IndexAny(name, "?#"); i >= 0 {
		end = i
	}
	path := name[len(scheme):end]
	last := strings.LastIndexByte(path, '/')
	// The authority, maybe empty, and the type come before the id.
	if last <= strings.IndexByte(path, '/') || path[last+1:] == "*" {
		return ""
	}
	return name[:len(scheme)+last+1] + "*" + name[end:]
}

// more is what few resources have.
type more struct {
	// handles beside the name, sorted.
	handles []string
	// struck: the origin has withdrawn one of the handles since, though the
	// resource still lists it.
	struck bool
	// lapsed is set of what is held no more (Lapsed), and by what it went.
	lapsed bool
	// unresolved is set of what is no resource, but the origin's word that it
	// has none for an alias (P18).
	unresolved *unresolved
}

// unresolved tells one such word from another.
type unresolved struct {
	id uint64
	// again: the origin has been asked again since.
	again bool
}

// handlesOf are those of a resource of this name.
func handlesOf(name string, aliases []string) []string {
	glob := Glob(name)
	if len(aliases) == 0 && glob == "" {
		return nil
	}
	handles := make([]string, 0, len(aliases)+1)
	for _, a := range aliases {
		if a != name && a != "" {
			handles = append(handles, a)
		}
	}
	if glob != "" {
		handles = append(handles, glob)
	}
	slices.Sort(handles)
	return slices.Compact(handles)
}

// Handles are what else the resource goes by, sorted; not to be changed. They
// are those of Aliases that the origin has not withdrawn since,
// and the glob of the name.
func (r *Resource) Handles() []string {
	if r == nil || r.more == nil {
		return nil
	}
	return r.more.handles
}

// AskedBy reports whether names has the resource's name or any of its handles.
func (r *Resource) AskedBy(names *NameSet) bool {
	return names.Has(r.Name) || r.handled(names)
}

// handled reports whether names has any of the handles.
func (r *Resource) handled(names *NameSet) bool {
	return r.more != nil && names.Len() > 0 && slices.ContainsFunc(r.more.handles, names.Has)
}

// without is the resource once the origin has withdrawn a handle that it lists.
func (r *Resource) without(handle string) *Resource {
	out, m := *r, *r.more
	m.handles = slices.DeleteFunc(slices.Clone(m.handles), func(h string) bool { return h == handle })
	m.struck = true
	out.more = &m
	return &out
}

// AskedBy reports whether names has the name or any of the handles of what was
// cut.
func (r *Raw) AskedBy(names *NameSet) bool {
	if names.Has(r.Name) {
		return true
	}
	if len(r.aliases) == 0 && !strings.HasPrefix(r.Name, scheme) {
		return false
	}
	return slices.ContainsFunc(handlesOf(r.Name, r.aliases), names.Has)
}

// likeMore reports whether a resource with m still goes by all that it lists.
func (r *Raw) likeMore(m *more) bool { return m == nil || !m.struck }

// takeMore is what a resource made of r has beside the rest; nil if nothing.
func takeMore(name string, aliases []string) *more {
	handles := handlesOf(name, aliases)
	if len(handles) == 0 {
		return nil
	}
	return &more{handles: handles}
}
