package orchestrator

import (
	"container/list"
	"slices"
	"sync/atomic"
	"time"

	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/orchestrator/subscriptions"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// View is one type of a group: what is held, who wants it, and what of it is
// asked for.
//
// What is held came for what is asked for, and nothing else: names that leave
// the interest are forgotten in the same step, and an update that was on its way
// is not let in any more (P65). Otherwise something could stay that no removal
// would ever reach.
type View struct {
	typ         xds.Type
	meters      *telemetry.Type
	storeWriter *storeWriter // nil: nothing of it is kept
	history     *history.Type

	// held is the newest snapshot, published or not; nil before the first
	// update. Read by anyone.
	held atomic.Pointer[xds.Snapshot]
	// stored is what the store has and may still be served; nil: nothing.
	// Read by anyone.
	stored atomic.Pointer[xds.Snapshot]

	// The rest is owned by the group's goroutine.
	builder *xds.Builder
	index   subscriptions.Index[*member]
	members int // of this type, whatever they want

	// What is asked for: what members want, and what lingers. wildcardOn and namesOn are
	// the streams that carry it, which differ; nil: nothing is asked for (P50).
	wildcard            bool
	names               *xds.NameSet
	wildcardOn, namesOn *upstreamHandle
	// again is what the origin is to be asked once more (P18).
	again []string

	// touched are names whose first asker came or whose last one left, since
	// names was last brought up to date; some may be there twice.
	touched []string

	// lingering is what of that nobody wants, with its place in the group's list.
	lingering  map[partName]*list.Element
	removals   removals
	completion completion
}

func newView(t xds.Type, meters *telemetry.Type, past *history.History) *View {
	return &View{
		typ: t, meters: meters,
		history: past.NewType(t),
		builder: xds.NewBuilder(t), index: subscriptions.New[*member](),
		lingering: make(map[partName]*list.Element),
	}
}

// subscribe indexes a member's new subscription in place of its old one.
func (v *View) subscribe(m *member, sub *xds.Subscription) {
	was := m.sub
	if was == sub {
		return
	}
	v.touched = v.index.Replace(m, was, sub, v.touched)
	m.sub = sub
}

// asks reports whether anything is asked for.
func (v *View) subscribes() bool { return v.wildcard || v.names.Len() > 0 }

// part of what is held of the type.
func (v *View) part(wild bool) xds.Part { return v.held.Load().Part(wild) }

// at is the stream that carries a part.
func (v *View) at(wild bool) *upstreamHandle {
	if wild {
		return v.wildcardOn
	}
	return v.namesOn
}

// apply takes over an update of a stream. It reports whether there is a new
// snapshot, and whether that holds a first answer, which is not to wait. Deletions
// wait for delay (P36).
func (v *View) apply(from *upstreamHandle, u xds.Update, delay time.Duration, stateGen uint64) (changed, first bool) {
	if from != v.at(u.Wildcard) {
		v.meters.Unasked.Add(len(u.Changed)) // it does not carry this any more
		return false, false
	}
	if u.Ended { // not to be served any more, nor to wait (P63)
		return v.builder.Apply(u) && v.snapshot(stateGen), true
	}
	v.dropUnasked(&u)
	was := v.held.Load()
	first = was == nil || u.Wildcard && !was.Answered || !u.Wildcard && v.answersUnknown(&u, was)
	v.completion.note(v.builder, &u, from.openedAt.Load())
	v.applyDelayed(u, delay)
	noRoom := v.builder.NoRoom()
	v.meters.Failures[telemetry.Kept].Add(len(u.Errors) - noRoom)
	v.meters.Failures[telemetry.NoRoom].Add(noRoom)
	return v.snapshot(stateGen), first
}

// admit takes out of u what is not asked for any more.
func (v *View) dropUnasked(u *xds.Update) {
	if u.Wildcard {
		return
	}
	if slices.ContainsFunc(u.Changed, func(r *xds.Resource) bool { return !v.askedFor(r) }) {
		all := u.Changed // the caller's
		u.Changed = nil
		for _, r := range all {
			if v.askedFor(r) {
				u.Changed = append(u.Changed, r)
			}
		}
		v.meters.Unasked.Add(len(all) - len(u.Changed))
	}
	if slices.ContainsFunc(u.Removed, func(n string) bool { return !v.answers(n) }) {
		u.Removed = slices.DeleteFunc(slices.Clone(u.Removed), func(n string) bool { return !v.answers(n) })
	}
	u.Errors = slices.DeleteFunc(slices.Clone(u.Errors), func(e *xds.ResourceError) bool { return !v.answers(e.Name) })
	v.dropUnaskedHandles(u)
}

// news reports whether u speaks of a name of which nothing was known.
func (v *View) answersUnknown(u *xds.Update, was *xds.Snapshot) bool {
	return slices.ContainsFunc(u.Changed, func(r *xds.Resource) bool { return !was.Known(r.Name) }) ||
		slices.ContainsFunc(u.Removed, func(n string) bool { return !was.Known(n) }) ||
		slices.ContainsFunc(u.Errors, func(e *xds.ResourceError) bool { return !was.Known(e.Name) }) ||
		v.answersUnknownHandle(u, was)
}

// snapshot makes the newest snapshot, and reports whether it is another one.
func (v *View) snapshot(stateGen uint64) bool {
	was := v.held.Load()
	v.builder.Settle(v.names)
	now, names := v.builder.Snapshot(was, stateGen)
	if now == was {
		return false
	}
	v.history.Note(was, now, names)
	v.held.Store(now)
	return true
}

// close forgets the history of the type.
func (v *View) close() { v.history.Close() }

// forget drops names from what is asked for, and the wildcard if so, together
// with what they brought. It reports whether there is a new snapshot.
func (v *View) forget(names []string, wildcard bool, stateGen uint64) bool {
	v.names = v.names.Remove(names...)
	v.removals.forget(names, wildcard)
	v.builder.ForgetBut(v.names, names...)
	if wildcard {
		v.wildcard, v.completion = false, completion{}
		v.builder.EndWildcard()
	}
	return v.held.Load() != nil && v.snapshot(stateGen)
}

// wake wakes the members that see something else in next than in prev. It returns how many
// it woke.
func (v *View) wake(prev, next *xds.Snapshot) (woken int) {
	v.index.Affected(prev, next, func(m *member) {
		m.waker.Wake()
		woken++
	})
	return woken
}

// answered reports whether the origin has answered the wildcard.
func answered(s *xds.Snapshot) bool { return s != nil && s.Answered }
