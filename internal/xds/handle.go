package xds

import (
	"slices"
	"strings"
)

// A resource goes by its name and, beyond that, by its handles: its aliases
// (P26) and, for an xdstp:// name, the glob that it falls under (P28). Whoever
// asks for any of these is given the resource, under its own name.
//
// Names are opaque but for those that begin with xdstp://. Of these the
// canonical form is the identity: by it they are compared, held and asked for.
// What is sent is how they were written (Resource.Written, Spelling).

// scheme begins the names that are looked into.
const scheme = "xdstp://"

// MaxAliases bounds the aliases of a resource: more are a fault of the origin,
// since each is an entry of the index.
const MaxAliases = 4096

// Canonical is what a name is compared by: the name itself, but for an xdstp://
// name whose context parameters are not sorted. It has the same length.
func Canonical(name string) string {
	if !strings.HasPrefix(name, scheme) {
		return name
	}
	rest, fragment := name, ""
	if i := strings.IndexByte(name, '#'); i >= 0 {
		rest, fragment = name[:i], name[i:]
	}
	path, query, ok := strings.Cut(rest, "?")
	if !ok || sortedParams(query) {
		return name
	}
	params := strings.Split(query, "&")
	slices.Sort(params)
	return path + "?" + strings.Join(params, "&") + fragment
}

// Structured reports whether a name is of the kind that may be written in more
// than one way.
func Structured(name string) bool { return strings.HasPrefix(name, scheme) }

// sortedParams reports whether the parts between ampersands are in order.
func sortedParams(query string) bool {
	last := ""
	for more := true; more; {
		var param string
		param, query, more = strings.Cut(query, "&")
		if param < last {
			return false
		}
		last = param
	}
	return true
}

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
	// written is the name as the origin wrote it; "" if it is canonical.
	written string
	// handles beside the name, canonical, sorted.
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

// handlesOf are those of a resource of this canonical name.
func handlesOf(name string, aliases []string) []string {
	glob := Glob(name)
	if len(aliases) == 0 && glob == "" {
		return nil
	}
	handles := make([]string, 0, len(aliases)+1)
	for _, a := range aliases {
		if a = Canonical(a); a != name && a != "" {
			handles = append(handles, a)
		}
	}
	if glob != "" {
		handles = append(handles, glob)
	}
	slices.Sort(handles)
	return slices.Compact(handles)
}

// Written is the resource's name as the origin wrote it.
func (r *Resource) Written() string {
	if r.more != nil && r.more.written != "" {
		return r.more.written
	}
	return r.Name
}

// Handles are what else the resource goes by, canonical and sorted; not to be
// changed. They are those of Aliases that the origin has not withdrawn since,
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

// asWritten reports whether the two are written alike.
func (r *Resource) asWritten(o *Resource) bool {
	return r.more == o.more || r.Written() == o.Written()
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

// likeMore reports whether a resource with m was written as r is, and still
// goes by all that it lists.
func (r *Raw) likeMore(m *more) bool {
	if m == nil {
		return r.written == ""
	}
	return !m.struck && m.written == r.written
}

// takeMore is what a resource made of r has beside the rest; nil if nothing.
func (r *Raw) takeMore(name string, aliases []string) *more {
	handles := handlesOf(name, aliases)
	if len(handles) == 0 && r.written == "" {
		return nil
	}
	return &more{written: strings.Clone(r.written), handles: handles}
}

// call sets the name as it was written.
func (r *Raw) call(written string) {
	r.Name = Canonical(written)
	if r.Name != written {
		r.written = written
	}
}
