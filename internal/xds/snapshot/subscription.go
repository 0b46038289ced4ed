package snapshot

import (
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"xdsrelay/internal/xds"
)

// Subscription is what one client subscribes to of one type. It is immutable, except for Unshared.
// A group interns it: clients with equal subscriptions share one value, so their pointers are
// equal.
type Subscription struct {
	// Wildcard: the client subscribes to whatever the origin sends it (P21).
	Wildcard bool
	// Names are the names that the client subscribes to, with or without the wildcard: names of
	// resources, aliases and globs.
	Names *xds.NameSet
	// Resumes: the client stated the versions that it has from an earlier stream. It gets nothing
	// from the store (P66).
	Resumes bool
	// Brought are the names that another relay stated to have. They count as received (P65). Of a client
	// there are none.
	Brought *xds.NameSet
	// Unshared is a hint and no part of the content: only one client has this value so far. Nothing
	// that is made for it can be shared.
	Unshared atomic.Bool
}

// Stated returns the names in a request's initial_resource_versions.
func Stated(r *xds.Request) []string {
	names := make([]string, len(r.Initial))
	for i, e := range r.Initial {
		names[i] = string(e.Name)
	}
	return names
}

// Nothing is the empty subscription.
var Nothing = &Subscription{}

// NamesWait is how long at most a client that resumes waits for unanswered names (P67). The time
// starts when anything that the client requests is answered. Listeners and routes wait for
// full-state responses of clusters for NamesWait at most, or for WildcardWait if the clusters wait
// for the wildcard. That time starts with the client's first request for the type.
const (
	NamesWait    = 5 * time.Second
	WildcardWait = 15 * time.Second
)

// RoutesWait returns for how long at most listeners and routes wait for the full-state response of
// clusters to a client with s, before the origin has answered anything (P67).
func (s *Subscription) RoutesWait() time.Duration {
	switch {
	case !s.Resumes || s.Empty():
		return 0
	case s.Wildcard:
		return WildcardWait
	}
	return NamesWait
}

// Empty reports whether the client subscribes to nothing.
func (s *Subscription) Empty() bool { return !s.Wildcard && s.Names.Len() == 0 }

// Equal reports whether both have the same content.
func (s *Subscription) Equal(o *Subscription) bool {
	return s == o || s.Wildcard == o.Wildcard && s.Resumes == o.Resumes && s.Names.Equal(o.Names) && s.Brought.Equal(o.Brought)
}

// Covers reports whether s covers name, by its list or by the wildcard. It does not look at the
// aliases of the resource (see Resource.RequestedBy).
func (s *Subscription) Covers(name string) bool { return s.Wildcard || s.Names.Has(name) }

// Reaches reports whether s covers a resource of this name, by Covers or by the name's glob. It
// cannot know the aliases.
func (s *Subscription) Reaches(name string) bool {
	if s.Covers(name) {
		return true
	}
	glob := xds.Glob(name)
	return glob != "" && s.Names.Has(glob)
}

// Unanswered yields the names, "*" for the wildcard, that sub requests and that the origin has not
// answered yet. s may be nil.
func (s *Snapshot) Unanswered(sub *Subscription) iter.Seq[string] {
	return func(yield func(string) bool) {
		if sub.Wildcard && !s.AnswersWildcard(sub) && !yield("*") {
			return
		}
		for name := range sub.Names.All() {
			_, is := s.Look(sub, name)
			if (is == Pending || is == Expired) && s.Error(sub, name) == nil && !yield(name) {
				return
			}
		}
	}
}

// AnyUnanswered reports whether Unanswered yields any names.
func (s *Snapshot) AnyUnanswered(sub *Subscription) bool {
	for range s.Unanswered(sub) {
		return true
	}
	return false
}

// Interest is what a group requests on one of its upstream streams, for all types. It is immutable.
type Interest struct {
	Types []TypeInterest // in the order in which the types were first used
}

// TypeInterest is what a stream requests of one type: either the wildcard or names (P50).
type TypeInterest struct {
	Type     xds.TypeURL
	Wildcard bool
	// WildcardID tells the key's subscription to the wildcard from those before, which have ended.
	WildcardID uint64
	Names      *xds.NameSet
	// Again has those of Names that are requested once more, without another change. Clients
	// requested these aliases again, which the origin could not resolve (P18).
	Again []string
	// Brought has those of Names that other relays received from origins, if a SotW origin is asked.
	Brought *xds.NameSet
}

// Scope returns the scope of what is requested.
func (t TypeInterest) Scope() Scope { return ScopeOf(t.Wildcard) }

// Empty reports whether nothing of the type is requested.
func (t TypeInterest) Empty() bool { return !t.Wildcard && t.Names.Len() == 0 }

// Empty reports whether nothing is requested.
func (i *Interest) Empty() bool {
	return i == nil || !slices.ContainsFunc(i.Types, func(t TypeInterest) bool { return !t.Empty() })
}

// Same reports whether a stream with the interest o needs no request for i. Name sets compare the
// chunks that they do not share. Names to request again always need one.
func (i *Interest) Same(o *Interest) bool {
	return slices.EqualFunc(i.Types, o.Types, func(x, y TypeInterest) bool {
		return x.Type == y.Type && x.Wildcard == y.Wildcard && x.WildcardID == y.WildcardID && x.Names.Equal(y.Names) && len(x.Again) == 0
	})
}

// Of returns what is requested of typ.
func (i *Interest) Of(typ xds.TypeURL) TypeInterest {
	if i != nil {
		for _, t := range i.Types {
			if t.Type == typ {
				return t
			}
		}
	}
	return TypeInterest{Type: typ}
}
