package xds

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidwall/btree"
)

// Presence is what is known of a name.
type Presence uint8

const (
	// Pending: the origin has not spoken of it; nothing is sent for it (P25).
	Pending Presence = iota
	// Present: there is a resource.
	Present
	// Absent: the origin said that there is none.
	Absent
	// Lapsed: there was one, it is not held any more, and nobody said that it is
	// gone: its TTL is over (P62), or it was not to be kept (P63). Nothing is sent
	// for it, but to who would hold it for longer (Resource.Outlived).
	Lapsed
	// Elsewhere: there are resources that go by it, under names of their own
	// (P26, P28).
	Elsewhere
	// Unresolvable: the origin answered that it has none for this alias, in a
	// form that is passed on (P18).
	Unresolvable
)

// entry is all that is known of a name: what the wildcard brought, and what
// came for the name itself (P50). The pointer is nil for "not spoken of", lapsed
// for what is held no more, and gone for "absent"; the wildcard part
// is never that, since what a wildcard leaves out is simply not there. Beside it
// stand errors (P39).
type entry struct {
	wild, named *Resource
	errs        errs
}

// gone is an absence that the origin stated.
var gone, lapsed = hollow(""), hollow("")

// there reports whether it is a resource: only they have a body.
func there(r *Resource) bool { return r != nil && r.body != nil }

// effective is the resource a wildcard client would be given first.
func (e entry) effective() *Resource {
	switch {
	case there(e.wild):
		return e.wild
	case there(e.named):
		return e.named
	}
	return nil
}

// part is one of the two parts.
func (e *entry) part(wild bool) **Resource {
	if wild {
		return &e.wild
	}
	return &e.named
}

// visible is the resource that a client with sub is given, nil if none; listed
// says that sub has its name.
func (e entry) visible(sub *Subscription, listed bool) *Resource {
	wild := there(e.wild) && (sub.Wildcard || listed || e.wild.handled(sub.Names)) && !(sub.HasState && e.wild.stored)
	named := there(e.named) && (listed || e.named.handled(sub.Names)) && !(sub.HasState && e.named.stored)
	switch {
	case wild && (sub.Wildcard || !named):
		return e.wild
	case named:
		return e.named
	}
	return nil
}

// Snapshot is all that is known of one type under one key at a generation. It
// is immutable. Snapshots of one View are one lineage: what lies between two
// of them is in a log that both share.
type Snapshot struct {
	Type Type
	// Lineage names the View that made it, unique in the process; generations
	// of different lineages cannot be compared.
	Lineage uint64
	// Gen counts the snapshots of the lineage.
	Gen uint64
	// StateGen is the generation of the group's State in which it first stood.
	StateGen uint64
	// Origin whose word the newest part of it is.
	Origin string
	// Version is what goes into version_info and system_version_info (P61).
	Version string
	// Answered: the origin has answered the wildcard, be it with nothing.
	Answered bool
	// Complete: an origin has answered the wildcard, and no more of that answer is
	// to come (P67).
	Complete bool
	// Stale: some of it comes from the store, and no origin has answered it yet
	// (Builder.Recall).
	Stale bool
	// Received is when the newest change in it came.
	Received time.Time
	// Bytes is the size of all resources in it, and Retired of all that were
	// replaced since the lineage began: an old snapshot keeps at most the
	// difference in Retired alive.
	Bytes, Retired int64
	// Progress is how far its version has come; nil: nobody counts. It is set before
	// anybody has the snapshot.
	Progress *VersionProgress

	// Of the two parts (P50).
	wildOrigin, namedOrigin string
	// given is the version that the origin gave; "" for none.
	given string
	sum   Version // of the content

	entries *btree.Map[string, entry]
	links   *btree.BTreeG[link] // nil if there are none
	count   int                 // resources
	stated  int                 // absences
	errors  int
	lapsed  int // parts
	timed   int // parts with a TTL
	// uncached is how many parts are not to be kept (P63), of names and of the
	// wildcard.
	uncached [2]int
	// unresolved is how many aliases the origin could not resolve (P18).
	unresolved int
	// log is the tail of the lineage's log; the array is shared with newer
	// snapshots, which only append behind what this one sees.
	log []change

	derived atomic.Pointer[any]
}

// change is what one generation changed.
type change struct {
	gen   uint64
	names []string // sorted
	beats []string // whose TTL was renewed, sorted; names may have them as well
}

// Len returns the number of resources.
func (s *Snapshot) Len() int {
	if s == nil {
		return 0
	}
	return s.count
}

// Stated returns the number of names that the origin said are absent.
func (s *Snapshot) Stated() int {
	if s == nil {
		return 0
	}
	return s.stated
}

// Failed returns the number of errors kept (P39).
func (s *Snapshot) Failed() int {
	if s == nil {
		return 0
	}
	return s.errors
}

// Timed reports whether any resource has a TTL.
func (s *Snapshot) Timed() bool { return s != nil && s.timed > 0 }

// Derived returns what make returned when it was first called for this
// snapshot, or since Release: a place for what is computed from it (encoded
// frames). It is safe for concurrent use and has one user. make may be called
// more than once at a time, and all get what one call made.
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

// Release lets go of what was derived, once the snapshot is superseded or nobody is
// left who was sent it: it can be made again.
func (s *Snapshot) Release() { s.derived.Store(nil) }

// spent are the bytes, over all lineages of the process, of resources that were
// replaced, of what each generation has of its own, and of what was derived from
// snapshots, since it began.
var spent atomic.Int64

// generationBytes is about what a snapshot does not share with the one before, in
// bytes: itself, and in its tree the way down to what changed.
const generationBytes = 8 << 10

// Spent returns how many bytes were ever replaced, or derived from snapshots that
// will be. Snapshots that have become old since some time keep about no more alive
// than it has grown by, and what was derived from the newest of each lineage before.
func Spent() int64 { return spent.Load() }

// Derived counts what was added to what is derived from a snapshot.
func Derived(bytes int64) { spent.Add(bytes) }

// Look returns what a client with sub may know of name: of the resource of this
// name, which sub may cover by one of its handles, or else of the handle (Own
// tells of the resource then). What
// sub does not cover is Pending, and so is everything in a nil snapshot. A
// wildcard client gets the wildcard's copy of a name that both hold, who asks for
// the name alone the other; either is served from the one that is left (P50). To
// the wildcard absent is what its answer left out. To who asks for the name that
// answer says nothing, with the wildcard or without: what a wildcard covers is
// the origin's choice, and the name has an answer of its own.
func (s *Snapshot) Look(sub *Subscription, name string) (*Resource, Presence) {
	if s == nil {
		return nil, Pending
	}
	listed := sub.Names.Has(name)
	asked := listed || sub.Wildcard
	if !asked && s.links == nil {
		return nil, Pending
	}
	e, _ := s.entries.Get(name)
	if r := e.visible(sub, listed); r != nil {
		return r, Present
	}
	switch {
	case sub.HasState && (isStored(e.wild) || isStored(e.named)):
		return nil, Pending // P66: the store may be older than what the client has
	case hasLapsed(e.named) && e.named.handled(sub.Names):
		return e.named, Lapsed
	case !asked:
		return nil, Pending
	case s.links != nil && s.elsewhere(sub, name):
		return nil, Elsewhere
	}
	return s.missing(sub, listed, e)
}

// missing is what a client with sub may know of a name that it asks for, and of
// which it is given nothing.
func (s *Snapshot) missing(sub *Subscription, listed bool, e entry) (*Resource, Presence) {
	switch {
	case listed && e.named == gone:
		return nil, Absent
	case listed && hasLapsed(e.named):
		return e.named, Lapsed
	case sub.Wildcard && hasLapsed(e.wild):
		return e.wild, Lapsed
	case listed && e.named.Unresolved():
		return e.named, Unresolvable
	case sub.Wildcard && !listed && s.AnswersWildcard(sub):
		return nil, Absent
	}
	return nil, Pending
}

// Given is the origin's version of the type; "" if it gave none, and Version is made
// of the content (P61).
func (s *Snapshot) Given() string { return s.given }

// AnyLapsed reports whether anything was held whose TTL is over, and of which nobody has
// spoken since (P62).
func (s *Snapshot) AnyLapsed() bool { return s.lapsed > 0 }

// Alike reports whether the same is in both, whatever it is called and whose word it is.
func (s *Snapshot) Alike(o *Snapshot) bool { return s.sum == o.sum && s.count == o.count }

// Held returns the resource held under name, whoever asked for it; nil if none.
func (s *Snapshot) Held(name string) *Resource {
	if s == nil {
		return nil
	}
	e, _ := s.entries.Get(name)
	return e.effective()
}

// Known reports whether anything is known of name, its absence included.
func (s *Snapshot) Known(name string) bool {
	if s == nil {
		return false
	}
	e, ok := s.entries.Get(name)
	return ok && e != entry{}
}

// Resources calls yield for every resource held, in order of names.
func (s *Snapshot) Resources(yield func(*Resource) bool) {
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
func (s *Snapshot) Covered(sub *Subscription, yield func(*Resource) bool) {
	if s == nil {
		return
	}
	if sub.Wildcard {
		s.entries.Scan(func(name string, e entry) bool {
			r := e.visible(sub, !there(e.wild) && sub.Names.Has(name))
			return r == nil || yield(r)
		})
		return
	}
	if s.links != nil {
		s.coveredByHandles(sub, yield)
		return
	}
	for name := range sub.Names.All() {
		if r, is := s.Look(sub, name); is == Present && !yield(r) {
			return
		}
	}
}

// Changes returns the names covered by sub, sorted, of which s may know
// something else than from does; from may be nil, older, newer, or of another
// lineage. Names of resources that sub covers by a handle are among them, and
// handles that lead nowhere any more, or to something now. The cost follows the
// log between the two where it reaches, else the sizes of the snapshots, or of
// sub if that is a list of names.
func (s *Snapshot) Changes(from *Snapshot, sub *Subscription) []string {
	if s == from {
		return nil
	}
	if names, ok := between(from, s); ok {
		return slices.DeleteFunc(names, func(n string) bool { return !covers(from, s, sub, n) })
	}
	if !sub.Wildcard {
		var names []string
		for n := range sub.Names.All() {
			if from.get(n) != s.get(n) {
				names = append(names, n)
			}
		}
		own := len(names)
		if names = linkedBy(sub, from, s, names); len(names) > own {
			slices.Sort(names)
			names = slices.Compact(names)
		}
		return names
	}
	names := linkedBy(sub, from, s, nil)
	if s != nil {
		s.entries.Scan(func(n string, e entry) bool {
			if from.get(n) != e {
				names = append(names, n)
			}
			return true
		})
	}
	if from != nil {
		from.entries.Scan(func(n string, _ entry) bool {
			if s == nil {
				names = append(names, n)
			} else if _, ok := s.entries.Get(n); !ok {
				names = append(names, n)
			}
			return true
		})
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (s *Snapshot) get(name string) entry {
	if s == nil {
		return entry{}
	}
	e, _ := s.entries.Get(name)
	return e
}

func (s *Snapshot) answered() bool { return s != nil && s.Answered }

// between returns the names changed between two snapshots of one lineage, in
// either direction, sorted; false if the log does not reach. The slice is the
// caller's.
func between(a, b *Snapshot) ([]string, bool) {
	log, ok := logBetween(a, b)
	var names []string
	for _, c := range log {
		names = append(names, c.names...)
	}
	if len(log) > 1 {
		slices.Sort(names)
		names = slices.Compact(names)
	}
	return names, ok
}

// logBetween is the log between two snapshots; false if it does not reach.
func logBetween(a, b *Snapshot) ([]change, bool) {
	if a == nil || b == nil || a.Lineage != b.Lineage {
		return nil, false
	}
	if a.Gen > b.Gen {
		a, b = b, a
	}
	if len(b.log) == 0 || b.log[0].gen > a.Gen+1 {
		return nil, false
	}
	first, _ := slices.BinarySearchFunc(b.log, a.Gen+1, func(c change, g uint64) int {
		return int(int64(c.gen) - int64(g))
	})
	return b.log[first:], true
}

// Generations counts the snapshots after from, up to and with to, that changed
// anything that sub covers; 1 where that cannot be told.
func Generations(from, to *Snapshot, sub *Subscription) int {
	if from == nil || from.Lineage != to.Lineage || from.Gen >= to.Gen || len(to.log) == 0 || to.log[0].gen > from.Gen+1 {
		return 1
	}
	n := 0
	for _, c := range slices.Backward(to.log) {
		if c.gen <= from.Gen {
			break
		}
		if slices.ContainsFunc(c.names, func(n string) bool { return covers(from, to, sub, n) }) {
			n++
		}
	}
	return n
}
