package snapshot

import (
	"time"

	"xdsrelay/internal/xds"
)

// Update is what an origin said about one type. It is the same for SotW and delta. It has no
// resource that was not requested (P65).
type Update struct {
	Type xds.TypeURL
	// Origin is the name of the origin.
	Origin string
	// Domain has the origins that give the same versions (P55). The name of the origin if empty.
	Domain string
	// Relayed: another relay of the cluster brought the update, and not an origin.
	Relayed bool
	// Version is the origin's newest version for the type, from version_info or
	// system_version_info. It is "" if the origin filled in none, or if the update is not a
	// response (P61).
	Version string
	// Unversioned: the update is a response in which the origin filled in no version.
	Unversioned bool
	// Wildcard: the update answers the wildcard. Otherwise it answers subscriptions to names.
	Wildcard bool
	// WildcardID is that of the subscription which the update answers, as in TypeInterest.
	WildcardID uint64
	// Partial: more of the answer to the wildcard may follow in another update. A delta origin may
	// split it (P67).
	Partial bool
	// Changed has new resources. They may be equal to those held; Builder.Apply compares them.
	Changed []*xds.Resource
	// Pushed has the names of the resources that the origin sent under a new version, changed or not,
	// and not in answer to a new stream. A client that NACKed one of them gets it again (P15).
	Pushed []string
	// Removed has names of deleted resources and, for subscriptions to names, of absent ones (P25).
	// A resource that was subscribed to by an alias is listed by its own name.
	Removed []string
	// Errors has the origin's errors for names without a resource (P39). If an error says that the
	// resource does not exist, Removed has its name too.
	Errors []*xds.ResourceError
	// Unresolved has the origin's answers that it has no resource for an alias (P18).
	Unresolved []xds.Unresolved
	// Received is the time at which the response was read.
	Received time.Time
	// Ended: the stream for the wildcard, or for names, has ended. Apply then drops the resources
	// of that part that must not be cached (P63), and ignores all other fields.
	Ended bool
}

// Scope returns the scope of the part that the update belongs to.
func (u *Update) Scope() Scope { return ScopeOf(u.Wildcard) }

// Versioned reports whether the update says which version the origin gives, or that it gives none.
func (u *Update) Versioned() bool { return u.Version != "" || u.Unversioned }
