package audience

import (
	"container/list"
	"slices"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Audience has the subscriptions of a key's clients. The zero Audience has no types.
//
// Names that no subscriber wants any more linger: they stay subscribed for a while (P52). Names
// that the origin has not answered do not linger. Lingering names of all types are in one list. The
// clock of their time stops while the key has no subscribers or no stream is open, because the
// origin could not send their resources again (P53). Under names_per_key, wanted names take the
// room of lingering names, the oldest first.
type Audience[M comparable] struct {
	UserAgents UserAgents

	types     []*TypeAudience[M]
	lingering list.List // of *lingeringName[M], in order of since
	// frozen: no subscriber is left, or no subscriber that joined since has subscribed yet.
	frozen bool
	// The clock has counted ran, plus the time since from if runs is set.
	ran  time.Duration
	runs bool
	from time.Time
}

// TypeAudience has the subscriptions to one resource type.
type TypeAudience[M comparable] struct {
	audience *Audience[M]
	newest   func() *snapshot.Snapshot

	index       index[M]
	subscribers int            // whatever they subscribe to
	nacking     map[M]struct{} // subscribers whose clients NACK something; nil: none did so far

	// The union: what subscribers want, and what lingers.
	wildcard bool
	names    *xds.NameSet
	// touched has the names that got their first subscriber or lost their last one since names was
	// updated. It may contain a name twice.
	touched   []string
	lingering map[subscribed]*list.Element
	lapsed    []string // names that Expire is about to forget
	forgotten []string // names that left the union since the last TakeForgotten
}

// subscribed is a subscribed name, or the wildcard.
type subscribed struct {
	wildcard bool
	name     string
}

// lingeringName is a name, or the wildcard, that is subscribed although no subscriber wants it.
type lingeringName[M comparable] struct {
	typ *TypeAudience[M]
	subscribed
	since time.Duration // on the clock
}

// Add adds a type. newest returns the newest snapshot of what the key holds of it, nil if nothing.
func (a *Audience[M]) Add(newest func() *snapshot.Snapshot) *TypeAudience[M] {
	t := &TypeAudience[M]{audience: a, newest: newest, index: newIndex[M](), lingering: make(map[subscribed]*list.Element)}
	a.types = append(a.types, t)
	return t
}

// Remove removes a type, which has no subscribers.
func (a *Audience[M]) Remove(t *TypeAudience[M]) {
	for at := range t.lingering {
		t.endLinger(at)
	}
	a.types = slices.DeleteFunc(a.types, func(o *TypeAudience[M]) bool { return o == t })
}

// Freeze stops the clock of lingering names until the next Subscribe. It is called when the last
// subscriber has left.
func (a *Audience[M]) Freeze() { a.frozen = true }

// Join counts a subscriber in. It subscribes to nothing yet.
func (t *TypeAudience[M]) Join() { t.subscribers++ }

// Leave removes a subscriber, whose subscription is sub.
func (t *TypeAudience[M]) Leave(m M, sub *snapshot.Subscription) {
	t.Withdraw(m, sub)
	t.subscribers--
}

// Withdraw removes what a subscriber, whose subscription is sub, wants and NACKs. It stays a
// subscriber.
func (t *TypeAudience[M]) Withdraw(m M, sub *snapshot.Subscription) {
	t.replace(m, sub, snapshot.Nothing)
	t.SetNacking(m, false)
}

// Subscribe replaces the subscription of a subscriber, was, by sub.
func (t *TypeAudience[M]) Subscribe(m M, was, sub *snapshot.Subscription) {
	t.replace(m, was, sub)
	t.audience.frozen = false
}

func (t *TypeAudience[M]) replace(m M, was, sub *snapshot.Subscription) {
	if was != sub {
		t.touched = t.index.replace(m, was, sub, t.touched)
	}
}

// Exceeds reports whether a subscriber that replaced its subscription was by sub would make the
// wanted names of all types weigh more than limit (see xds.NameWeight). A subscriber that makes the
// key no larger does not exceed. limit 0 means no limit.
func (t *TypeAudience[M]) Exceeds(limit int, was, sub *snapshot.Subscription) bool {
	used := 0
	for _, o := range t.audience.types {
		used += o.index.weight
	}
	return limit > 0 && used+sub.Names.Weight() > limit && t.index.growsBy(was, sub, max(limit-used, 0))
}

// SetNacking records whether the client of a subscriber NACKs something.
func (t *TypeAudience[M]) SetNacking(m M, nacks bool) {
	switch {
	case !nacks:
		delete(t.nacking, m)
	case t.nacking == nil:
		t.nacking = make(map[M]struct{})
		fallthrough
	default:
		t.nacking[m] = struct{}{}
	}
}

// Subscribers returns the number of subscribers, whatever they subscribe to.
func (t *TypeAudience[M]) Subscribers() int { return t.subscribers }

// Union returns what the key subscribes to at its origin: what subscribers want, and what lingers.
func (t *TypeAudience[M]) Union() (names *xds.NameSet, wildcard bool) { return t.names, t.wildcard }

// TakeForgotten returns the names that have left the union since the last call.
func (t *TypeAudience[M]) TakeForgotten() []string {
	out := t.forgotten
	t.forgotten = nil
	return out
}

// Unused reports whether the type is neither wanted nor subscribed. No type is unused while the
// clock is frozen, because its subscribers may come back.
func (t *TypeAudience[M]) Unused() bool {
	return t.subscribers == 0 && !t.wildcard && t.names.Len() == 0 && !t.audience.frozen
}

// Affected calls wake for each subscriber for which next differs from prev. If the origin sent
// anything again, it also does so for those whose clients NACK something (P15). So it may call
// wake twice for one of them.
func (t *TypeAudience[M]) Affected(prev, next *snapshot.Snapshot, wake func(M)) {
	t.index.affected(prev, next, wake)
	if prev != nil && next.PushedSince(prev.Lineage, prev.Gen) {
		for m := range t.nacking {
			wake(m)
		}
	}
}

// Merge brings the unions up to date with what subscribers want. Names that no subscriber wants and
// that the origin has not answered are forgotten at once, because there is nothing to keep.
func (a *Audience[M]) Merge(now time.Time) {
	for _, t := range a.types {
		t.merge(now)
	}
}

func (t *TypeAudience[M]) merge(now time.Time) {
	var wanted, unanswered []string
	held := t.newest().Part(snapshot.ByName)
	for _, name := range t.touched {
		at := subscribed{name: name}
		switch {
		case t.index.hasName(name):
			t.endLinger(at)
			wanted = append(wanted, name)
		case !t.names.Has(name):
		case held.Known(name):
			t.beginLinger(at, now)
		default:
			unanswered = append(unanswered, name)
		}
	}
	t.touched = nil
	t.names = t.names.Add(wanted...)
	t.forget(unanswered)

	switch at := (subscribed{wildcard: true}); {
	case t.index.hasWildcard():
		t.endLinger(at)
		t.wildcard = true
	case t.wildcard:
		t.beginLinger(at, now)
	}
}

// Drop forgets at once the names of one resource, unless a subscriber wants any of them.
func (t *TypeAudience[M]) Drop(names []string) {
	if !slices.ContainsFunc(names, t.index.hasName) {
		t.forget(names)
	}
}

// DropWildcard forgets the wildcard at once, unless a subscriber wants or needs it.
func (t *TypeAudience[M]) DropWildcard() {
	if t.wildcard && !t.index.hasWildcard() && !t.wildcardServes() {
		t.forgetWildcard()
	}
}

// wildcardServes reports whether a subscriber that subscribes to a name gets the wildcard's copy
// because there is no other. The wildcard stays until there is one. Otherwise the subscriber would
// lose the resource, or keep it after the origin deletes it (P50).
func (t *TypeAudience[M]) wildcardServes() bool {
	wild, named := t.newest().Part(snapshot.ByWildcard), t.newest().Part(snapshot.ByName)
	for name := range t.names.All() {
		if t.index.hasName(name) && !named.Answers(name) && wild.Answers(name) {
			return true
		}
	}
	return false
}

// forget removes names from the union.
func (t *TypeAudience[M]) forget(names []string) {
	for _, name := range names {
		if t.names.Has(name) {
			t.forgotten = append(t.forgotten, name)
		}
		t.endLinger(subscribed{name: name})
	}
	t.names = t.names.Remove(names...)
}

// forgetWildcard removes the wildcard from the union.
func (t *TypeAudience[M]) forgetWildcard() {
	t.endLinger(subscribed{wildcard: true})
	t.wildcard = false
}
