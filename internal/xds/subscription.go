package xds

import "sync/atomic"

// Subscription is what one client wants of one type. It is immutable; a group
// interns it, so that clients that want the same share one value, and sharing
// can be told by the pointer.
type Subscription struct {
	// Wildcard: the client wants whatever the origin thinks it needs (P21).
	Wildcard bool
	// Names asked for one by one, beside the wildcard or without it: names of
	// resources, aliases and globs.
	Names *NameSet
	// HasState: the client came with versions of another stream, so it gets nothing
	// from the store (P66).
	HasState bool
	// Sole is a hint, and no part of the content: one client alone was given it
	// by a group so far, so what is made for it is nobody else's.
	Sole atomic.Bool
}

// Nothing is the subscription of a client that wants nothing.
var Nothing = &Subscription{}

// Empty reports whether nothing is wanted.
func (s *Subscription) Empty() bool { return !s.Wildcard && s.Names.Len() == 0 }

// Equal reports whether both want the same, by content.
func (s *Subscription) Equal(o *Subscription) bool {
	return s == o || s.Wildcard == o.Wildcard && s.HasState == o.HasState && s.Names.Equal(o.Names)
}

// Covers reports whether name is wanted, by itself or by the wildcard. A
// resource may be wanted by one of its handles as well (Resource.AskedBy).
func (s *Subscription) Covers(name string) bool { return s.Wildcard || s.Names.Has(name) }

// Reaches reports whether a resource of this name would be wanted, as far as
// the name tells: also by the glob that it falls under.
func (s *Subscription) Reaches(name string) bool {
	if s.Covers(name) {
		return true
	}
	glob := Glob(name)
	return glob != "" && s.Names.Has(glob)
}
