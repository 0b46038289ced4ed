package content

import (
	"slices"
	"sync/atomic"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Content is what origins sent for a key. Use New.
//
// Every held resource was sent for a subscription. Names that leave the subscription are forgotten
// at once, and an update for them that arrives later is dropped (P65). Otherwise a resource could
// stay that no removal would ever reach. What is held of names that requests omit is forgotten
// later (omitted.go).
//
// A key subscribes by name, by alias (P26) and by glob (P28). A resource is held under its own
// name, for as long as any name, alias or glob that stands for it is subscribed.
type Content struct {
	sotw        bool // origins speak SotW
	types       []*TypeContent
	stateNumber uint64 // the newest State's
	wildcards   uint64 // subscriptions to wildcards that have ended

	unpublished bool // a type has a snapshot that is newer than the State's
	// sourceChanged: what FromOrigins returns may have changed since its last call, although the State
	// has not.
	sourceChanged bool
	urgent        bool // and it must not wait
}

// TypeContent is what origins sent of one resource type.
type TypeContent struct {
	content *Content
	typ     xds.Type
	history History

	newest atomic.Pointer[snapshot.Snapshot]
	stored atomic.Pointer[snapshot.Snapshot]

	builder  *snapshot.Builder
	wildcard bool // the wildcard is subscribed
	// wildcardID is that of the subscription to the wildcard: the number of those of the key that had
	// ended before.
	wildcardID uint64
	names      *xds.NameSet
	// omitted are those of names that requests omit, with the last resource that led to each
	// (omitted.go).
	omitted map[string]partName
	// requestedAgain has when names that do not exist were requested again last.
	requestedAgain map[string]time.Time

	removals   removals
	completion completion
	// answeredOn is the number of the stream to an origin that brought the newest update of each part; 0:
	// a relay brought it.
	answeredOn map[snapshot.Scope]uint64
	empty      *snapshot.Snapshot // see nothing
}

// History learns of each snapshot before other goroutines see it, as history.TypeHistory does.
type History interface {
	// Note adds the snapshot s. It was just made in the place of prev and differs from it in names.
	Note(prev, s *snapshot.Snapshot, names []string)
}

// Stream is the newest of the upstream streams that carry a part one after another.
type Stream struct {
	Number   uint64 // each of them has another one
	OpenedAt time.Time
	Open     bool
}

// New makes a Content without types. sotw says that origins speak SotW.
func New(sotw bool) *Content { return &Content{sotw: sotw} }

// Add adds a type.
func (c *Content) Add(typ xds.Type, h History) *TypeContent {
	t := &TypeContent{content: c, typ: typ, history: h, builder: snapshot.NewBuilder(typ)}
	c.types = append(c.types, t)
	return t
}

// Remove removes a type with what is held of it.
func (c *Content) Remove(t *TypeContent) {
	c.unpublished = c.unpublished || t.Newest() != nil
	c.types = slices.DeleteFunc(c.types, func(o *TypeContent) bool { return o == t })
}

// Unpublished reports whether anything is newer than the State, and whether it must not wait,
// because a client may be waiting for a first answer, or must not get something any more.
func (c *Content) Unpublished() (unpublished, urgent bool) {
	return c.unpublished, c.unpublished && c.urgent
}

// Publish makes the newest snapshots a State. key identifies the key in States.
func (c *Content) Publish(key uint64) *snapshot.State {
	c.unpublished, c.urgent = false, false
	c.stateNumber++
	var snapshots []*snapshot.Snapshot
	for _, t := range c.types {
		if s := t.Newest(); s != nil {
			snapshots = append(snapshots, s)
		}
	}
	return snapshot.NewState(key, c.stateNumber, snapshots)
}

// FromOrigins returns the part of the State s that origins said to this relay: neither what is stored,
// nor what another relay brought. It is for other relays. open returns the number of the open stream to
// an origin that carries a part of a type; 0: there is none. late: the origin's stream has been open for
// so long that names which it has not answered count as answered. A type of which no origin said
// anything is then there without content, so that a relay gets a response for its names.
func (c *Content) FromOrigins(key uint64, s *snapshot.State, open func(*TypeContent, snapshot.Scope) uint64, late bool) *snapshot.State {
	c.sourceChanged = false
	var out []*snapshot.Snapshot
	number := uint64(0)
	if s != nil {
		number = s.Number
	}
	for _, t := range c.types {
		held := s.Snapshot(t.typ.URL)
		switch {
		case held != nil && t.isFromOrigin(open, late):
			out = append(out, held) // relays see nothing stored in it, since they resume (P66)
		case !t.wildcard && late && t.answeredOn[snapshot.ByName] == 0:
			out = append(out, t.nothing())
		}
	}
	return snapshot.NewState(key, number, out)
}

// isFromOrigin reports whether an origin answered for each subscribed part on the stream that is open,
// and for the wildcard completely. What came before may be older than what the other relays have. Of
// names that it leaves unanswered on the stream, what came before counts once it is late: a SotW origin
// says nothing if none of them exists any more.
func (t *TypeContent) isFromOrigin(open func(*TypeContent, snapshot.Scope) uint64, late bool) bool {
	answered := func(part snapshot.Scope) bool {
		stream := open(t, part)
		return stream != 0 && stream == t.answeredOn[part]
	}
	return (!t.wildcard || answered(snapshot.ByWildcard) && t.completion.done) && (t.names.Len() == 0 || answered(snapshot.ByName) ||
		late && (t.wildcard || t.answeredOn[snapshot.ByName] != 0))
}

// nothing returns the type's snapshot without content; always the same.
func (t *TypeContent) nothing() *snapshot.Snapshot {
	if t.empty == nil {
		t.empty, _ = snapshot.NewBuilder(t.typ).Snapshot(nil, 0)
	}
	return t.empty
}

// ChangeSource says that FromOrigins has to be called, because its arguments differ.
func (c *Content) ChangeSource() { c.sourceChanged = true }

// SourceChanged reports whether FromOrigins has to be called although there is no new State.
func (c *Content) SourceChanged() bool { return c.sourceChanged }

// Next returns when time alone changes something next; zero: never. Deletions wait for delay.
func (c *Content) Next(delay time.Duration) (first time.Time) {
	for _, t := range c.types {
		for _, at := range []time.Time{t.removals.due(delay), t.completion.due, t.builder.NextExpiry()} {
			if !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	return first
}

// Holds reports whether there is anything to serve: a resource, or the origin's statement that
// there is none.
func (c *Content) Holds() bool {
	return slices.ContainsFunc(c.types, func(t *TypeContent) bool {
		s := t.Newest()
		return s.Len() > 0 || s.AbsentNames() > 0 || s.ErrorCount() > 0 || answered(s)
	})
}

// Newest returns the newest snapshot, published or not; nil before the first update. Any goroutine
// may call it.
func (t *TypeContent) Newest() *snapshot.Snapshot { return t.newest.Load() }

// part returns the held part that the wildcard, or names, brought.
func (t *TypeContent) part(scope snapshot.Scope) snapshot.Part { return t.Newest().Part(scope) }

// Applied is what an Update did.
type Applied struct {
	Changed bool // there is a new snapshot
	// NotRequested counts resources that were dropped, because they are not subscribed.
	NotRequested int
	// KeptErrors and DroppedErrors count errors in place of resources. The latter found no room.
	KeptErrors, DroppedErrors int
}

// Apply applies an update that stream from brought. Deletions wait for delay (P36). A first answer
// is published at once.
func (t *TypeContent) Apply(u snapshot.Update, from Stream, now time.Time, delay time.Duration) Applied {
	was := t.Newest()
	if u.Ended { // its resources must not be served any more (P63)
		changed := t.builder.Apply(u) && t.snapshot()
		t.content.urgent = t.content.urgent || changed
		t.omitFollowers(was, &u, now)
		return Applied{Changed: changed}
	}
	if u.Wildcard && u.WildcardID != t.wildcardID { // the stream has yet to learn that the subscription ended
		return Applied{NotRequested: len(u.Changed)}
	}
	all := u
	dropped := t.dropNotRequested(&u)
	stream := from.Number
	if u.Relayed {
		stream = 0
	}
	another := u.Relayed || t.answeredOn[u.Scope()] != stream
	if another {
		put(&t.answeredOn, u.Scope(), stream)
		t.content.sourceChanged = true
	}
	first := was == nil || another || u.Wildcard && !was.Answered || !u.Wildcard && t.answersUnknown(&u, was)
	t.completion.note(t.builder, &u, from, now)
	t.applyDelayed(u, now, delay)
	noRoom := t.builder.DroppedErrors()
	changed := t.snapshot()
	t.content.urgent = t.content.urgent || changed && first
	t.omitFollowers(was, &all, now)
	return Applied{changed, dropped, len(u.Errors) - noRoom, noRoom}
}

// dropNotRequested removes from u the names that are not subscribed. It returns the number of
// dropped resources.
func (t *TypeContent) dropNotRequested(u *snapshot.Update) (dropped int) {
	if u.Wildcard {
		return 0
	}
	all := len(u.Changed)
	u.Changed = without(u.Changed, func(r *xds.Resource) bool { return !r.RequestedBy(t.names) })
	u.Removed = without(u.Removed, func(n string) bool { return !t.isRequested(n) })
	u.Errors = without(u.Errors, func(e *xds.ResourceError) bool { return !t.isRequested(e.Name) })
	var left []xds.Unresolved
	for _, w := range u.Unresolved {
		w.Names = without(w.Names, func(n string) bool { return !t.names.Has(n) })
		if len(w.Names) > 0 {
			left = append(left, w)
		}
	}
	u.Unresolved = left
	return all - len(u.Changed)
}

// without returns list without the elements for which drop returns true. It does not change list,
// whose array others own.
func without[T any](list []T, drop func(T) bool) []T {
	if !slices.ContainsFunc(list, drop) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), drop)
}

// answersUnknown reports whether u has a name that was unknown before.
func (t *TypeContent) answersUnknown(u *snapshot.Update, was *snapshot.Snapshot) bool {
	return slices.ContainsFunc(u.Changed, func(r *xds.Resource) bool { return !was.Known(r.Name) }) ||
		slices.ContainsFunc(u.Removed, func(n string) bool { return !was.Known(n) }) ||
		slices.ContainsFunc(u.Errors, func(e *xds.ResourceError) bool { return !was.Known(e.Name) }) ||
		t.answersUnknownAlias(u, was)
}

// answersUnknownAlias reports whether u has an alias or a glob that was unknown before.
func (t *TypeContent) answersUnknownAlias(u *snapshot.Update, was *snapshot.Snapshot) bool {
	part := was.Part(snapshot.ByName)
	news := func(n string) bool { return t.names.Has(n) && part.Unanswered(n) }
	return slices.ContainsFunc(u.Changed, func(r *xds.Resource) bool { return slices.ContainsFunc(r.AliasesAndGlob(), news) }) ||
		slices.ContainsFunc(u.Unresolved, func(w xds.Unresolved) bool { return slices.ContainsFunc(w.Names, news) })
}

// isRequested reports whether name, or the resource held under it, is subscribed.
func (t *TypeContent) isRequested(name string) bool {
	return t.part(snapshot.ByName).Requested(name, t.names)
}

// snapshot makes the newest snapshot. It reports whether it differs from the one before.
func (t *TypeContent) snapshot() bool {
	was := t.Newest()
	t.builder.ResolveAliases(t.names)
	now, names := t.builder.Snapshot(was, t.content.stateNumber+1)
	if now == was {
		return false
	}
	t.history.Note(was, now, names)
	t.newest.Store(now)
	t.content.unpublished = true
	return true
}

// SetSubscribed sets what the key subscribes to. The names of forgotten are those that leave. They,
// and the wildcard if it leaves, are forgotten with the resources that they brought (P65). changed
// says that the subscription was another one. uncacheable is the number of forgotten do_not_cache
// resources, which is published at once (P63).
func (t *TypeContent) SetSubscribed(names *xds.NameSet, wildcard bool, forgotten []string) (changed bool, uncacheable int) {
	if names == t.names && wildcard == t.wildcard {
		return false, 0
	}
	for _, name := range forgotten {
		delete(t.omitted, name)
		delete(t.requestedAgain, name)
	}
	ended := t.wildcard && !wildcard
	switch {
	case ended:
		t.content.wildcards++
	case !t.wildcard:
		t.wildcardID = t.content.wildcards
	}
	t.names, t.wildcard = names, wildcard
	if len(forgotten) == 0 && !ended {
		return true, 0
	}
	t.removals.forget(forgotten, ended)
	t.builder.Forget(names, forgotten...)
	if ended {
		t.completion = completion{}
		t.builder.EndWildcard()
	}
	if t.Newest() == nil {
		return true, 0
	}
	uncacheable = t.uncacheable()
	t.snapshot()
	uncacheable -= t.uncacheable()
	t.content.urgent = t.content.urgent || uncacheable > 0
	return true, uncacheable
}

// WildcardID is that of the subscription to the wildcard, as in snapshot.TypeInterest.
func (t *TypeContent) WildcardID() uint64 { return t.wildcardID }

// uncacheable returns the number of held do_not_cache resources.
func (t *TypeContent) uncacheable() int {
	return t.part(snapshot.ByWildcard).Uncacheable() + t.part(snapshot.ByName).Uncacheable()
}

// WildcardUncacheable reports whether the wildcard brought do_not_cache resources (P63).
func (t *TypeContent) WildcardUncacheable() bool {
	return t.part(snapshot.ByWildcard).Uncacheable() > 0
}

// Uncacheable returns the do_not_cache resources that names brought (P63). Each is all names that
// stand for it.
func (t *TypeContent) Uncacheable() (all [][]string) {
	if t.part(snapshot.ByName).Uncacheable() == 0 {
		return nil
	}
	for _, name := range t.builder.Uncacheable(snapshot.ByName) {
		all = append(all, append(slices.Clone(t.part(snapshot.ByName).Resource(name).AliasesAndGlob()), name))
	}
	return all
}

// Absent returns the names of a client's new subscription that its old one does not have, and that
// the origin said do not exist.
func (t *TypeContent) Absent(was, is *snapshot.Subscription) (names []string) {
	if t.Newest().AbsentNames() == 0 {
		return nil
	}
	for name, added := range was.Names.Diff(is.Names) {
		if added && t.isAbsent(name) {
			names = append(names, name)
		}
	}
	return names
}

// isAbsent reports whether the origin said that a subscribed name does not exist.
func (t *TypeContent) isAbsent(name string) bool {
	_, is := t.Newest().Look(&snapshot.Subscription{Names: t.names}, name)
	return is == snapshot.Absent
}

// RequestAgain returns which of names to request again: those that the origin could not resolve
// (P18), and those that do not exist: some origins make a resource when it is requested (P25). The
// latter are requested at most once in pause. A SotW origin sees them in each request.
func (t *TypeContent) RequestAgain(names []string, now time.Time, pause time.Duration) (again []string) {
	if again = t.builder.RequestAgain(names...); len(again) > 0 {
		t.snapshot()
	}
	for _, name := range names {
		if !t.content.sotw && t.isAbsent(name) && !now.Before(t.requestedAgain[name].Add(pause)) {
			put(&t.requestedAgain, name, now)
			again = append(again, name)
		}
	}
	return again
}

// Expire drops the resources whose TTL has ended (P62), and returns their number. That is published
// at once: new clients do not get them. A client that has one ends the TTL itself.
func (t *TypeContent) Expire(now time.Time) int {
	n := t.builder.Expire(now)
	if n > 0 && t.snapshot() {
		t.content.urgent = true
	}
	return n
}

// Has reports whether anything that sub subscribes to is held, answered or stored.
func (t *TypeContent) Has(sub *snapshot.Subscription) bool {
	held, stored := t.Newest(), t.Stored()
	if sub.Wildcard && (answered(held) || answered(stored)) {
		return true
	}
	for name := range sub.Names.All() {
		if !held.Part(snapshot.ByName).HasNoAnswer(name) || serves(held, name) || serves(stored, name) {
			return true
		}
	}
	return false
}

// serves reports whether a client that subscribes to name gets a resource, even if it is the
// wildcard's (P50).
func serves(s *snapshot.Snapshot, name string) bool {
	return s.Resource(name) != nil || len(s.NamesByAlias(name)) > 0
}

func answered(s *snapshot.Snapshot) bool { return s != nil && s.Answered }

// put sets m[k], and makes the map if it is nil.
func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[k] = v
}
