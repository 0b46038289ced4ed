package xds

// Subscription is what one client wants of one type. It is immutable; a group
// interns it, so that clients that want the same share one value, and sharing
// can be told by the pointer.
type Subscription struct {
	// Wildcard: the client wants whatever the origin thinks it needs (P21).
	Wildcard bool
	// Names asked for one by one, beside the wildcard or without it.
	Names *NameSet
}

// Nothing is the subscription of a client that wants nothing.
var Nothing = &Subscription{}

// Empty reports whether nothing is wanted.
func (s *Subscription) Empty() bool { return !s.Wildcard && s.Names.Len() == 0 }

// Equal reports whether both want the same, by content.
func (s *Subscription) Equal(o *Subscription) bool {
	return s == o || s.Wildcard == o.Wildcard && s.Names.Equal(o.Names)
}

// Covers reports whether name is wanted, by itself or by the wildcard.
func (s *Subscription) Covers(name string) bool { return s.Wildcard || s.Names.Has(name) }
