package snapshot

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidwall/btree"

	"xdsrelay/internal/xds"
)

// Presence says what a client may know of a name.
type Presence uint8

const (
	// Pending: the origin has not answered for the name. Nothing is sent for it (P25).
	Pending Presence = iota
	// Present: there is a resource of this name.
	Present
	// Absent: the origin said that there is no such resource (P25).
	Absent
	// Expired: the resource is no longer held, although no origin said that it was deleted. Its TTL
	// is over (P62), or it must not be cached and its stream has ended (P63). Only a client that
	// would keep it for longer is told (Resource.ExpiresBefore).
	Expired
	// UnderOtherName: the name is an alias of resources with other names (P26, P28).
	UnderOtherName
	// Unresolvable: the origin answered that it has no resource for this alias. The answer is
	// passed on (P18).
	Unresolvable
)

// entry is all that is known of a name. It has two parts: what the wildcard brought, and what a
// subscription to the name brought (P50). Each part is one of
//   - nil: the origin said nothing of the name
//   - a resource
//   - a mark of a resource that is no longer held (xds.NewExpiredMark)
//   - in named only: removedByOrigin, or an unresolved answer (P18)
//
// The wildcard part needs no removedByOrigin: what the answer to the wildcard leaves out does not
// exist for the wildcard. Errors are kept beside both parts (P39).
type entry struct {
	wildcard, named *xds.Resource
	errors          entryErrors
}

// removedByOrigin marks a name that the origin said is absent.
var removedByOrigin = xds.NewPlaceholder("")

// effective returns the wildcard's resource, or else the named one; nil if there is none.
func (e entry) effective() *xds.Resource {
	switch {
	case e.wildcard.HasBody():
		return e.wildcard
	case e.named.HasBody():
		return e.named
	}
	return nil
}

// resource returns a pointer to the part of this scope.
func (e *entry) resource(scope Scope) **xds.Resource {
	if scope == ByWildcard {
		return &e.wildcard
	}
	return &e.named
}

// visible returns the resource that a client with sub receives; nil if none. listed says that
// sub.Names has its name. A client that resumes gets nothing from the store (P66).
func (e entry) visible(sub *Subscription, listed bool) *xds.Resource {
	wildcard := e.wildcard.HasBody() && (sub.Wildcard || listed || e.wildcard.RequestedByAlias(sub.Names)) && !(sub.Resumes && e.wildcard.IsStored())
	named := e.named.HasBody() && (listed || e.named.RequestedByAlias(sub.Names)) && !(sub.Resumes && e.named.IsStored())
	switch {
	case wildcard && (sub.Wildcard || !named):
		return e.wildcard
	case named:
		return e.named
	}
	return nil
}

// Snapshot is all that is known of one type under one key at one generation. It is immutable. The
// snapshots of one Builder are a lineage: they share a log of what changed between them.
type Snapshot struct {
	Type xds.Type
	// Lineage identifies the Builder, unique in the process. Generations of different lineages
	// cannot be compared.
	Lineage uint64
	// Gen numbers the snapshots of the lineage.
	Gen uint64
	// StateNumber is the number of the first State of the group that has this snapshot.
	StateNumber uint64
	// Origin is the origin of the newest update in the snapshot.
	Origin string
	// Version is the version_info or system_version_info of responses (P61).
	Version string
	// Answered: the origin has answered the wildcard, maybe with no resource.
	Answered bool
	// Complete: the answer of an origin to the wildcard counts as complete (P67).
	Complete bool
	// Settled: the answer was complete for so long that what it lacks does not exist (P67).
	Settled bool
	// Stale: something in it comes from the store, and no origin has confirmed it yet
	// (Builder.ApplyStored).
	Stale bool
	// Received is the time of the newest change in the snapshot.
	Received time.Time
	// Bytes is the size of all resources in the snapshot. Retired is the size of all resources that
	// the lineage has replaced. The difference in Retired bounds what an old snapshot keeps alive.
	Bytes, Retired int64
	// Progress counts the streams that were sent the snapshot's version; nil if nothing counts
	// them. NoteVersion sets it before the snapshot is published.
	Progress *VersionProgress

	// The origins of the two parts (P50).
	wildcardOrigin, namedOrigin partOrigin
	// given is the origin's version; "" if it gave none.
	given string
	sum   xds.Version // sum of the resources' Members: the version of the content
	// removed are the names that the origin removed from the wildcard on its open stream. nil once
	// the snapshot is Settled.
	removed *xds.NameSet

	entries    *btree.Map[string, entry]
	aliases    *btree.BTreeG[aliasEntry] // nil if no resource has an alias
	count      int                       // names with a resource
	absent     int                       // names that the origin said are absent
	errorCount int
	expired    int // parts with a mark of a resource that is no longer held
	ttls       int // parts with a TTL
	// uncacheable is the number of resources that must not be cached (P63), by Scope.
	uncacheable [2]int
	// unresolved is the number of aliases that the origin could not resolve (P18).
	unresolved int
	// log is the last part of the lineage's log. Newer snapshots share its array, and append after
	// the end of this slice.
	log    []change
	pushes pushes // the last part of the lineage's pushes

	derived atomic.Pointer[any]
}

// ID identifies a snapshot in the process, and does not keep it alive. The zero ID is that of a nil
// snapshot.
type ID struct{ Lineage, Gen uint64 }

func (s *Snapshot) ID() ID {
	if s == nil {
		return ID{}
	}
	return ID{s.Lineage, s.Gen}
}

// Look returns what a client with sub may know of name. It is the first of these that applies:
//   - Present: the resource of this name, if sub covers it by its name or by an alias. If both
//     parts have one, a client with the wildcard gets the wildcard's, and another client the named
//     one (P50).
//   - Pending: sub does not cover the name, or the client resumes and the resource comes from the
//     store (P66)
//   - UnderOtherName: name is an alias of a resource that the client receives under another name.
//     LookOwnName then returns what is known of a resource of this name.
//   - Absent, Expired or Unresolvable: what is known instead of the resource
//   - Pending: the origin has not answered for the name
//
// An expired named resource is returned before UnderOtherName if sub covers it by an alias. A name
// that the answer to the wildcard leaves out is Absent for a client that does not list the name. A
// listed name has an answer of its own. In a nil snapshot every name is Pending.
func (s *Snapshot) Look(sub *Subscription, name string) (*xds.Resource, Presence) {
	if s == nil {
		return nil, Pending
	}
	listed := sub.Names.Has(name)
	covered := listed || sub.Wildcard
	if !covered && s.aliases == nil {
		return nil, Pending
	}
	e, _ := s.entries.Get(name)
	if r := e.visible(sub, listed); r != nil {
		return r, Present
	}
	switch {
	case sub.Resumes && (e.wildcard.IsStored() || e.named.IsStored()):
		return nil, Pending // P66: what is stored may be older than what the client has
	case e.named.IsExpiredMark() && e.named.RequestedByAlias(sub.Names):
		return e.named, Expired
	case !covered:
		return nil, Pending
	case s.aliases != nil && s.hasOtherName(sub, name):
		return nil, UnderOtherName
	}
	return s.lookWithoutResource(sub, name, listed, e)
}

// lookWithoutResource is the part of Look for a name that sub covers and for which it gets no
// resource.
func (s *Snapshot) lookWithoutResource(sub *Subscription, name string, listed bool, e entry) (*xds.Resource, Presence) {
	switch {
	case listed && e.named == removedByOrigin:
		return nil, Absent
	case listed && e.named.IsExpiredMark():
		return e.named, Expired
	case sub.Wildcard && e.wildcard.IsExpiredMark():
		return e.wildcard, Expired
	case listed && e.named.Unresolved():
		return e.named, Unresolvable
	case sub.Wildcard && !listed && (s.AnswersWildcard(sub) || s.removed.Has(name)):
		return nil, Absent
	}
	return nil, Pending
}

// AnswersWildcard reports whether a client with sub gets an answer to the wildcard. A client that
// resumes needs a complete answer (P67) that is not from the store (P66). With less, it would
// delete what it has.
func (s *Snapshot) AnswersWildcard(sub *Subscription) bool {
	return s.answered() && (s.Complete || !sub.Resumes)
}

// RemovedByOrigin reports whether the origin removed a name from the wildcard on its open stream.
// It is always false once the snapshot is Settled.
func (s *Snapshot) RemovedByOrigin(name string) bool { return s.removed.Has(name) }

// RemovalsDiffer reports whether clients that resume may be told to remove other names than in
// prev, although no resource changed (P67).
func (s *Snapshot) RemovalsDiffer(prev *Snapshot) bool {
	return s != nil && prev != nil && (s.Settled != prev.Settled || s.removed != prev.removed)
}

func (s *Snapshot) answered() bool { return s != nil && s.Answered }

// Resource returns the resource of this name, whichever part has it; nil if none.
func (s *Snapshot) Resource(name string) *xds.Resource {
	if s == nil {
		return nil
	}
	e, _ := s.entries.Get(name)
	return e.effective()
}

// Known reports whether anything is known of name: a resource, its absence, a mark or an error.
func (s *Snapshot) Known(name string) bool {
	if s == nil {
		return false
	}
	e, ok := s.entries.Get(name)
	return ok && e != entry{}
}

func (s *Snapshot) get(name string) entry {
	if s == nil {
		return entry{}
	}
	e, _ := s.entries.Get(name)
	return e
}

// Resources calls yield for each resource, in order of names.
func (s *Snapshot) Resources(yield func(*xds.Resource) bool) {
	if s == nil {
		return
	}
	s.entries.Scan(func(_ string, e entry) bool {
		if r := e.effective(); r != nil {
			return yield(r)
		}
		return true
	})
}

// Covered calls yield for each resource that sub covers, in order of names.
func (s *Snapshot) Covered(sub *Subscription, yield func(*xds.Resource) bool) {
	if s == nil {
		return
	}
	if sub.Wildcard {
		s.entries.Scan(func(name string, e entry) bool {
			r := e.visible(sub, !e.wildcard.HasBody() && sub.Names.Has(name))
			return r == nil || yield(r)
		})
		return
	}
	if s.aliases != nil {
		s.coveredByAliases(sub, yield)
		return
	}
	for name := range sub.Names.All() {
		if r, is := s.Look(sub, name); is == Present && !yield(r) {
			return
		}
	}
}

// HasPlaces reports whether the wildcard brought resources that are told apart by their place in a
// SotW response (P3).
func (s *Snapshot) HasPlaces() (has bool) {
	if s == nil || s.Type.Known() {
		return false
	}
	s.entries.Ascend(xds.PlacePrefix, func(name string, e entry) bool {
		has = xds.IsPlace(name) && e.wildcard.HasBody()
		return !has && xds.IsPlace(name)
	})
	return has
}

func (s *Snapshot) Len() int {
	if s == nil {
		return 0
	}
	return s.count
}

// AbsentNames returns the number of names that the origin said are absent.
func (s *Snapshot) AbsentNames() int {
	if s == nil {
		return 0
	}
	return s.absent
}

// ErrorCount returns the number of names with an error (P39).
func (s *Snapshot) ErrorCount() int {
	if s == nil {
		return 0
	}
	return s.errorCount
}

// HasTTLs reports whether any resource has a TTL.
func (s *Snapshot) HasTTLs() bool { return s != nil && s.ttls > 0 }

// HasExpired reports whether a resource is no longer held, although no origin said that it was
// deleted (P62, P63).
func (s *Snapshot) HasExpired() bool { return s.expired > 0 }

// OriginVersion returns the origin's version of the type. It is "" if the origin gave none; Version
// is then made from the content (P61).
func (s *Snapshot) OriginVersion() string { return s.given }

// SameResources reports whether both snapshots have the same resources, whatever their versions and
// origins.
func (s *Snapshot) SameResources(o *Snapshot) bool { return s.sum == o.sum && s.count == o.count }

// Derived returns what make computes from this snapshot, such as encoded frames. It calls make at
// the first call and after Release. Concurrent callers may each call make, but all get the same
// result. It is safe for concurrent use. A snapshot has room for one such value.
func (s *Snapshot) Derived(make func() any) any {
	if have := s.derived.Load(); have != nil {
		return *have
	}
	made := make()
	if !s.derived.CompareAndSwap(nil, &made) {
		return s.Derived(make)
	}
	return made
}

// Release drops what Derived computed. It is called when the snapshot is superseded, or when no
// client needs it any more.
func (s *Snapshot) Release() { s.derived.Store(nil) }

// supersededBytes is the number of bytes that old snapshots may keep alive, summed over all
// lineages since the process began. It counts replaced resources, snapshotBytes per snapshot, and
// what was derived from snapshots.
var supersededBytes atomic.Int64

// snapshotBytes is about what a snapshot does not share with the one before it, in bytes: itself,
// and the tree nodes on the way to what changed.
const snapshotBytes = 8 << 10

// SupersededBytes returns the total number of bytes that old snapshots may have kept alive since
// the process began. Snapshots superseded since a given time keep at most about its growth alive,
// plus what was derived from the newest snapshots before that time.
func SupersededBytes() int64 { return supersededBytes.Load() }

// CountDerived adds to SupersededBytes the size of what was derived from a snapshot, in bytes.
func CountDerived(bytes int64) { supersededBytes.Add(bytes) }

// State has a group's snapshots of all types at one time. It is immutable. A group publishes
// the State that its subscribers see.
type State struct {
	// Group identifies the group, unique in the process. Number numbers its States.
	Group, Number uint64

	snapshots []*Snapshot
}

// NewState returns the State of these snapshots, one for each type.
func NewState(group, number uint64, snapshots []*Snapshot) *State {
	return &State{Group: group, Number: number, snapshots: slices.Clone(snapshots)}
}

// Snapshot returns the snapshot of typ; nil if nothing is known of the type.
func (s *State) Snapshot(typ xds.TypeURL) *Snapshot {
	if s == nil {
		return nil
	}
	for _, snap := range s.snapshots {
		if snap.Type.URL == typ {
			return snap
		}
	}
	return nil
}
