package orchestrator

import (
	"container/list"
	"slices"
	"sync/atomic"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// view is one type of a group: what is held, who wants it, and what of it is
// asked for.
//
// What is held came for what is asked for, and nothing else: names that leave
// the interest are forgotten in the same step, and an update that was on its way
// is not let in any more (P65). Otherwise something could stay that no removal
// would ever reach.
type view struct {
	typ    xds.Type
	meters *telemetry.Type

	// held is the newest snapshot, published or not; nil before the first
	// update. Read by anyone.
	held atomic.Pointer[xds.Snapshot]

	// The rest is owned by the group's goroutine.
	builder *xds.Builder
	index   index
	members int // of this type, whatever they want
	round   uint64

	// What is asked for: what members want, and what lingers. Where both are
	// set, the wildcard alone is in the interest.
	wildcard bool
	names    *xds.NameSet
	// written is how names are to be written (P28), again what the origin is to be
	// asked once more (P18).
	written xds.Spelling
	again   []string

	// touched are names whose first asker came or whose last one left, since
	// names was last brought up to date; some may be there twice.
	touched []string

	// lingering are the names of names that nobody wants, with their place in
	// one of the group's lists; wildLingers is that of the wildcard.
	lingering   map[string]*list.Element
	reask       bool // the wildcard is to be asked for anew once it is wanted (P63)
	wildLingers *list.Element
}

func newView(t xds.Type, meters *telemetry.Type) *view {
	return &view{
		typ: t, meters: meters,
		builder: xds.NewBuilder(t), index: newIndex(),
		lingering: make(map[string]*list.Element),
	}
}

// subscribe indexes a member's new subscription in place of its old one.
func (v *view) subscribe(m *member, sub *xds.Subscription) {
	was := m.sub
	if was == sub {
		return
	}
	v.touched = v.index.replace(m, was, sub, v.touched)
	m.sub = sub
}

// interest is what is asked of the origin.
func (v *view) interest() xds.TypeInterest {
	if v.wildcard {
		return xds.TypeInterest{Type: v.typ.URL, Wildcard: true}
	}
	again := v.again
	v.again = nil
	return xds.TypeInterest{Type: v.typ.URL, Names: v.names, Written: v.written, Again: again}
}

// asks reports whether anything is asked for.
func (v *view) asks() bool { return v.wildcard || v.names.Len() > 0 }

// apply takes an update over. It reports whether there is a new snapshot, and
// whether that holds a first answer, which is not to wait.
func (v *view) apply(u xds.Update, stateGen uint64) (changed, first bool) {
	if u.Ended { // not to be served any more, nor to wait (P63)
		return v.builder.Apply(u) && v.snapshot(stateGen), true
	}
	was := v.held.Load()
	if !v.admit(&u, was) {
		return false, false
	}
	first = was == nil || u.Wildcard && !was.Answered || !u.Wildcard && v.news(&u, was)
	v.builder.Apply(u)
	noRoom := v.builder.NoRoom()
	v.meters.Failures[telemetry.Kept].Add(len(u.Errors) - noRoom)
	v.meters.Failures[telemetry.NoRoom].Add(noRoom)
	if u.Wildcard && v.names.Len() > 0 {
		v.supersede(&u, was)
	}
	return v.snapshot(stateGen), first
}

// supersede makes what the wildcard says of names count for those who ask for
// them, since the wildcard alone is asked for: its copy takes the place of what
// came for the name, and once its copy goes the name is absent.
//
// Of names that the wildcard never had it says nothing, whatever its answer
// leaves out (P16, P51): what came for them is kept, and nobody brings it up to
// date, nor answers what is pending, until the wildcard is given up. A removal
// of such a name is no word of the origin's either: origins answer so a name
// that is unsubscribed beside a wildcard which does not cover it (P24).
func (v *view) supersede(u *xds.Update, was *xds.Snapshot) {
	var brought []string
	for _, r := range u.Changed {
		if v.askedFor(r) {
			brought = append(brought, r.Name)
		}
	}
	v.builder.Forget(brought...)
	gone := *u
	gone.Wildcard, gone.Changed, gone.Removed = false, nil, nil
	for _, name := range u.Removed {
		if _, is := was.Look(everything, name); is == xds.Present && v.names.Has(name) {
			gone.Removed = append(gone.Removed, name)
		}
	}
	if len(gone.Removed) > 0 {
		v.builder.Apply(gone)
	}
}

// admit takes out of u what is not asked for any more, and reports whether the
// rest is to be applied.
func (v *view) admit(u *xds.Update, was *xds.Snapshot) bool {
	if u.Wildcard {
		if !v.wildcard {
			v.meters.Unasked.Add(len(u.Changed))
		}
		return v.wildcard
	}
	if v.wildcard && answered(was) {
		return false // the wildcard alone is asked for, and this is older
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
	v.admitHandles(u)
	return true
}

// news reports whether u speaks of a name of which nothing was known.
func (v *view) news(u *xds.Update, was *xds.Snapshot) bool {
	return slices.ContainsFunc(u.Changed, func(r *xds.Resource) bool { return !was.Known(r.Name) }) ||
		slices.ContainsFunc(u.Removed, func(n string) bool { return !was.Known(n) }) ||
		slices.ContainsFunc(u.Errors, func(e *xds.ResourceError) bool { return !was.Known(e.Name) }) ||
		v.newsOfHandles(u, was)
}

// snapshot makes the newest snapshot, and reports whether it is another one.
func (v *view) snapshot(stateGen uint64) bool {
	was := v.held.Load()
	v.builder.Settle(v.names)
	now, _ := v.builder.Snapshot(was, stateGen)
	v.held.Store(now)
	return now != was
}

// forget drops names from what is asked for, and the wildcard if so, together
// with what they brought. It reports whether there is a new snapshot.
func (v *view) forget(names []string, wildcard bool, stateGen uint64) bool {
	v.names, v.written = v.names.Remove(names...), v.written.Without(names...)
	v.builder.ForgetBut(v.names, names...)
	if wildcard {
		v.wildcard = false
		v.builder.EndWildcard(v.names)
	}
	return v.held.Load() != nil && v.snapshot(stateGen)
}

// wake wakes the members on track t that see something else in next than in
// prev.
func (v *view) wake(t *track, prev, next *xds.Snapshot) {
	v.round++
	wake := func(w *wanter) {
		for _, m := range w.members.list {
			if m.track.Load() == t {
				m.waker.Wake()
			}
		}
	}
	v.index.affected(prev, next, v.round, wake)
	v.index.renewed(prev, next, v.round, wake)
}

// lingerer is something that is still asked for though nobody wants it.
type lingerer struct {
	view     *view
	name     string
	wildcard bool
	in       *list.List // where it waits
	until    time.Time
}
