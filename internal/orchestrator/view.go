package orchestrator

import (
	"container/list"
	"slices"
	"sync/atomic"
	"time"

	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/orchestrator/subscriptions"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// View is one type of a group: the held resources, the members' subscriptions, and the group's
// subscription.
//
// Every held resource was sent for a subscription. Names that leave the interest are forgotten in
// the same step, and an update for them that arrives later is dropped (P65). Otherwise a resource
// could stay that no removal would ever reach. What is held of names that requests omit is forgotten
// later (followers.go).
//
// Clients subscribe by name, by alias (P26) and by glob (P28), and the group subscribes to the same
// at the origin. A resource is held under its own name, for as long as any name, alias or glob that
// stands for it is subscribed.
type View struct {
	typ         xds.Type
	metrics     *telemetry.Type
	storeWriter *storeWriter // nil: nothing is stored
	history     *history.Type

	// held is the newest snapshot, published or not; nil before the first update. Any goroutine
	// reads it.
	held atomic.Pointer[snapshot.Snapshot]
	// stored is the snapshot in the store that may still be served, nil if none. Any goroutine
	// reads it.
	stored atomic.Pointer[snapshot.Snapshot]

	// The group's goroutine owns the fields below.
	builder *snapshot.Builder
	index   subscriptions.Index[*member]
	members int // of this type, whatever they subscribe to
	// nacking has the members whose clients NACK something; nil: none did so far.
	nacking map[*member]struct{}

	// The subscription: what members want, and what lingers. wildcardOn and namesOn are the streams
	// that carry it. They differ; nil: nothing is subscribed (P50).
	wildcard            bool
	names               *xds.NameSet
	wildcardOn, namesOn *upstreamHandle
	// omitted are those of names that requests omit, with the last resource that led to each
	// (followers.go).
	omitted map[string]partName
	// again has the names to request again from the origin (P18, P25). requestedAgain has when that
	// was done last for names that do not exist.
	again          []string
	requestedAgain map[string]time.Time

	// touched has the names that got their first subscriber or lost their last one since names was
	// updated. It may contain a name twice.
	touched []string

	// lingering has the names that are subscribed but not wanted, with their elements of the
	// group's list.
	lingering  map[partName]*list.Element
	removals   removals
	completion completion
}

func newView(t xds.Type, metrics *telemetry.Type, past *history.History) *View {
	return &View{
		typ: t, metrics: metrics,
		history: past.NewType(t),
		builder: snapshot.NewBuilder(t), index: subscriptions.New[*member](),
		lingering: make(map[partName]*list.Element),
	}
}

// part returns the held part that the wildcard, or names, brought.
func (v *View) part(wild bool) snapshot.Part { return v.held.Load().Part(wild) }

// streamOf returns the upstream stream that carries a part; nil if none does.
func (v *View) streamOf(wild bool) *upstreamHandle {
	if wild {
		return v.wildcardOn
	}
	return v.namesOn
}

// apply applies an update of a stream. It reports whether there is a new snapshot, and whether
// the snapshot has a first answer, which is published at once. Deletions wait for delay (P36).
func (v *View) apply(from *upstreamHandle, u snapshot.Update, delay time.Duration, stateGen uint64) (changed, first bool) {
	if from != v.streamOf(u.Wildcard) {
		v.metrics.NotRequested.Add(len(u.Changed)) // another stream carries the part now
		return false, false
	}
	if u.Ended { // its resources must not be served any more (P63)
		return v.builder.Apply(u) && v.snapshot(stateGen), true
	}
	v.dropNotRequested(&u)
	was := v.held.Load()
	first = was == nil || u.Wildcard && !was.Answered || !u.Wildcard && v.answersUnknown(&u, was)
	v.completion.note(v.builder, &u, from.status.Load())
	v.applyDelayed(u, delay)
	noRoom := v.builder.DroppedErrors()
	v.metrics.Failures[telemetry.Kept].Add(len(u.Errors) - noRoom)
	v.metrics.Failures[telemetry.NoRoom].Add(noRoom)
	return v.snapshot(stateGen), first
}

// dropNotRequested removes from u the names that are no longer subscribed.
func (v *View) dropNotRequested(u *snapshot.Update) {
	if u.Wildcard {
		return
	}
	all := len(u.Changed)
	u.Changed = without(u.Changed, func(r *xds.Resource) bool { return !r.RequestedBy(v.names) })
	v.metrics.NotRequested.Add(all - len(u.Changed))
	u.Removed = without(u.Removed, func(n string) bool { return !v.isRequested(n) })
	u.Errors = without(u.Errors, func(e *xds.ResourceError) bool { return !v.isRequested(e.Name) })
	var left []xds.Unresolved
	for _, w := range u.Unresolved {
		w.Names = without(w.Names, func(n string) bool { return !v.names.Has(n) })
		if len(w.Names) > 0 {
			left = append(left, w)
		}
	}
	u.Unresolved = left
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
func (v *View) answersUnknown(u *snapshot.Update, was *snapshot.Snapshot) bool {
	return slices.ContainsFunc(u.Changed, func(r *xds.Resource) bool { return !was.Known(r.Name) }) ||
		slices.ContainsFunc(u.Removed, func(n string) bool { return !was.Known(n) }) ||
		slices.ContainsFunc(u.Errors, func(e *xds.ResourceError) bool { return !was.Known(e.Name) }) ||
		v.answersUnknownAlias(u, was)
}

// answersUnknownAlias reports whether u has an alias or a glob that was unknown before.
func (v *View) answersUnknownAlias(u *snapshot.Update, was *snapshot.Snapshot) bool {
	part := was.Part(false)
	news := func(n string) bool { return v.names.Has(n) && part.Unanswered(n) }
	return slices.ContainsFunc(u.Changed, func(r *xds.Resource) bool { return slices.ContainsFunc(r.AliasesAndGlob(), news) }) ||
		slices.ContainsFunc(u.Unresolved, func(w xds.Unresolved) bool { return slices.ContainsFunc(w.Names, news) })
}

// isRequested reports whether name, or the resource held under it, is subscribed.
func (v *View) isRequested(name string) bool {
	return v.held.Load().Part(false).Requested(name, v.names)
}

// requestedAs returns the subscribed names of the resource held under name, and whether a member
// wants any of them.
func (v *View) requestedAs(name string) (by []string, wanted bool) {
	for _, n := range append(slices.Clone(v.held.Load().Part(false).Held(name).AliasesAndGlob()), name) {
		if v.names.Has(n) {
			by = append(by, n)
		}
		wanted = wanted || v.index.HasName(n)
	}
	return by, wanted
}

// requestAgain requests names again that the origin could not resolve (P18), and those that do not
// exist: some origins make a resource when it is requested (P25). The latter are requested at most
// once in linger. A SotW origin sees them in each request.
func (g *Group) requestAgain(v *View, names []string) {
	if len(names) == 0 {
		return
	}
	now := time.Now()
	if again := v.builder.RequestAgain(names...); len(again) > 0 {
		v.again = append(v.again, again...)
		if v.snapshot(g.gen + 1) {
			g.publishSoon(now)
		}
	}
	for _, name := range names {
		if g.opts.SotWOrigins || !v.isAbsent(name) || now.Before(v.requestedAgain[name].Add(g.settings().Linger)) {
			continue
		}
		put(&v.requestedAgain, name, now)
		v.again = append(v.again, name)
	}
}

// isAbsent reports whether the origin said that a subscribed name does not exist.
func (v *View) isAbsent(name string) bool {
	_, is := v.held.Load().Look(&snapshot.Subscription{Names: v.names}, name)
	return is == snapshot.Absent
}

// absent returns the absent names (isAbsent) of a member's new subscription that its old one does
// not have.
func (v *View) absent(was, is *snapshot.Subscription) (names []string) {
	if v.held.Load().AbsentNames() == 0 {
		return nil
	}
	for name, added := range was.Names.Diff(is.Names) {
		if added && v.isAbsent(name) {
			names = append(names, name)
		}
	}
	return names
}

// snapshot makes the newest snapshot. It reports whether it differs from the one before.
func (v *View) snapshot(stateGen uint64) bool {
	was := v.held.Load()
	v.builder.ResolveAliases(v.names)
	now, names := v.builder.Snapshot(was, stateGen)
	if now == was {
		return false
	}
	v.history.Note(was, now, names)
	v.held.Store(now)
	return true
}

// forget removes names from the subscription, and the wildcard if wildcard is set, with the
// resources that they brought. It reports whether there is a new snapshot.
func (v *View) forget(names []string, wildcard bool, stateGen uint64) bool {
	v.names = v.names.Remove(names...)
	for _, name := range names {
		delete(v.omitted, name)
		delete(v.requestedAgain, name)
	}
	v.removals.forget(names, wildcard)
	v.builder.Forget(v.names, names...)
	if wildcard {
		v.wildcard = false
		v.builder.EndWildcard()
	}
	return v.held.Load() != nil && v.snapshot(stateGen)
}

// wake wakes the members for which next differs from prev. It returns their number. If the origin
// sent anything again, it also wakes those whose clients NACK something (P15).
func (v *View) wake(prev, next *snapshot.Snapshot) (woken int) {
	wake := func(m *member) {
		m.waker.Wake()
		woken++
	}
	v.index.Affected(prev, next, wake)
	if prev != nil && next.PushedSince(prev.Lineage, prev.Gen) {
		for m := range v.nacking {
			wake(m)
		}
	}
	return woken
}

// setNacking records whether the client of a member NACKs something.
func (v *View) setNacking(m *member, nacks bool) {
	if nacks {
		put(&v.nacking, m, struct{}{})
	} else {
		delete(v.nacking, m)
	}
}

// put sets m[k], and makes the map if it is nil.
func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[k] = v
}

// answered reports whether the origin has answered the wildcard.
func answered(s *snapshot.Snapshot) bool { return s != nil && s.Answered }

// completion says when the answer of a delta origin to a wildcard counts as complete, and when it is
// settled (P67). The origin may split it over several responses, and does not say which is the last
// one. An origin that serves many keys may pause between them. So the answer is complete when no
// response has added a name for as long as the longest pause so far.
type completion struct {
	requested time.Time     // when the wildcard was assigned to its stream
	stream    uint64        // the number of the stream that brought the newest response; 0: none did
	newest    time.Time     // when the newest response came
	added     time.Time     // when the newest response that added a name came, or the first one of the stream
	pause     time.Duration // the longest so far on the stream
	due       time.Time     // when it is complete or settled by time alone; zero: that takes a response
}

const (
	// completeAfter is for how long at least no response has added a name when the answer is complete.
	completeAfter = time.Second
	// settledAfter is the same for a settled answer. It is longer because a resource too many does less
	// harm than one too few.
	settledAfter = 15 * time.Second
)

// note notes a response before b applies it. status is that of the stream that brought it: each stream
// starts its answer again.
func (c *completion) note(b *snapshot.Builder, u *snapshot.Update, status *upstream.Status) {
	if !u.Wildcard || !u.Partial {
		return
	}
	now := time.Now()
	if status.Stream != c.stream {
		c.stream, c.added = status.Stream, now
		c.pause = min(now.Sub(status.OpenedAt), now.Sub(c.requested)) // since the request, which is the later one
	} else {
		c.pause = max(c.pause, now.Sub(c.newest))
		if b.AddsResources(u) {
			c.added = now
		}
	}
	c.newest = now
}

// completeWildcards publishes which answers to wildcards are complete or settled by now. While the
// stream is closed, and before a new one has a response, the rest may be missing.
func (g *Group) completeWildcards(now time.Time) {
	for _, v := range g.views {
		c, h, held := &v.completion, v.streamOf(true), v.held.Load()
		c.due = time.Time{}
		if h == nil || held == nil || held.Settled {
			continue
		}
		if s := h.status.Load(); !s.Connected || s.Stream != c.stream {
			v.builder.StreamEnded()
		} else {
			complete, settled := c.added.Add(max(c.pause, completeAfter)), c.added.Add(max(c.pause, settledAfter))
			if c.due = complete; held.Complete || !now.Before(complete) {
				v.builder.Complete()
				c.due = settled
			}
			if !now.Before(settled) {
				v.builder.Settle()
				c.due = time.Time{}
			}
		}
		if v.snapshot(g.gen + 1) {
			g.publishSoon(now)
		}
		if v.storeWriter != nil && v.held.Load().Complete && !held.Complete {
			v.storeWriter.completed()
		}
	}
}
