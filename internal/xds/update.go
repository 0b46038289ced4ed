package xds

import "time"

// Update is what came from an origin: the
// only currency between SotW and delta. It holds no resource that was
// not asked for (P65).
type Update struct {
	Type TypeURL
	// Origin that it came from.
	Origin string
	// Version is the origin's newest for the type, from version_info or
	// system_version_info; "" where it filled none, and where this is no response
	// of it but a conclusion (P61).
	Version string
	// Unversioned: it is a response in which the origin filled none.
	Unversioned bool
	// Wildcard: the update answers the wildcard; else names asked for.
	Wildcard bool
	// Partial: the rest of the answer to the wildcard may follow in another
	// update, as delta allows (P67).
	Partial bool
	// Changed may hold resources equal to what is held; the View tells.
	Changed []*Resource
	// Removed names are gone, or, asked for by name, absent (P25). Of a resource
	// that came for a handle it is the resource's name.
	Removed []string
	// Errors are what the origin said instead of giving a resource (P39). One
	// that says that there is none comes with the name in Removed.
	Errors []*ResourceError
	// Unresolved: the origin has no resource for these (P18).
	Unresolved []Unresolved
	// Received is when the response was read.
	Received time.Time
	// Ended: the stream that brought this part of the type, the wildcard's or that
	// of names, has ended, and what is not to be kept (P63) goes with it. Nothing
	// else of the update counts.
	Ended bool
}

// Versioned reports whether the update says which version the origin gives, or
// that it gives none.
func (u *Update) Versioned() bool { return u.Version != "" || u.Unversioned }

// Unresolved is the origin's word that it has no resource for an alias: a
// Resource without a body, which is passed on to those who asked (P18).
type Unresolved struct {
	Resource *Resource
	Names    []string // that were asked for
}

// Interest is what a group wants of one of its streams, for all types. It is
// immutable.
type Interest struct {
	Types []TypeInterest // in the order of the types' first use
}

// TypeInterest is what a stream is to ask for of one type: the wildcard or
// names, never both (P50).
type TypeInterest struct {
	Type     TypeURL
	Wildcard bool
	Names    *NameSet
	// Again are those of Names to be asked for once more, though nothing else
	// changed: clients ask again for what the origin could not resolve (P18).
	Again []string
}

// Empty reports whether nothing of the type is wanted.
func (t TypeInterest) Empty() bool { return !t.Wildcard && t.Names.Len() == 0 }

// Of returns what is wanted of typ.
func (i *Interest) Of(typ TypeURL) TypeInterest {
	if i != nil {
		for _, t := range i.Types {
			if t.Type == typ {
				return t
			}
		}
	}
	return TypeInterest{Type: typ}
}
