package orchestrator

import (
	"container/list"
	"slices"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// linger has the names that a group still subscribes to although no member wants them any more,
// over all its types (P52). It belongs to the group's goroutine. Names that the origin has not
// answered do not linger.
//
// Lingering names are in one list and expire after Settings.Linger. The clock stops while the key
// has no members or no stream is open, because the origin could not send their resources again
// (P53). Under names_per_key, wanted names take the room of lingering names, the oldest first.
type linger struct {
	lingering list.List // of *lingeringName, in order of since
	// frozen: no member is left, or no member that joined since has subscribed yet.
	frozen bool
	// The clock has counted ran, plus the time since from if runs is set.
	ran  time.Duration
	runs bool
	from time.Time
}

// lingeringName is a name, or the wildcard, that is subscribed although no member wants it.
type lingeringName struct {
	view *View
	partName
	since time.Duration // on the clock
}

// update brings the subscription up to date with what members want. It returns the names that no
// member wants and that the origin has not answered. They are forgotten at once, because there is
// nothing to keep.
func (i *linger) update(views []*View, now time.Time) (unanswered map[*View][]string) {
	unanswered = make(map[*View][]string)
	for _, v := range views {
		var wanted []string
		held := v.part(false)
		for _, name := range v.touched {
			at := partName{name: name}
			switch {
			case v.index.HasName(name):
				i.endLinger(v, at)
				wanted = append(wanted, name)
			case !v.names.Has(name):
			case held.Known(name):
				i.beginLinger(v, at, now)
			default:
				unanswered[v] = append(unanswered[v], name)
			}
		}
		v.touched = nil
		v.names = v.names.Add(wanted...)

		switch at := (partName{wildcard: true}); {
		case v.index.HasWildcard():
			i.endLinger(v, at)
			v.wildcard = true
		case v.wildcard:
			i.beginLinger(v, at, now)
		}
	}
	return unanswered
}

// beginLinger records that no member wants a name any more.
func (i *linger) beginLinger(v *View, at partName, now time.Time) {
	if v.lingering[at] == nil {
		v.lingering[at] = i.lingering.PushBack(&lingeringName{v, at, i.clock(now)})
	}
}

// endLinger ends the lingering of a name.
func (i *linger) endLinger(v *View, at partName) {
	if e := v.lingering[at]; e != nil {
		i.lingering.Remove(e)
		delete(v.lingering, at)
	}
}

// drop removes everything of a view.
func (i *linger) drop(v *View) {
	for at := range v.lingering {
		i.endLinger(v, at)
	}
}

// clock returns how long the clock has run.
func (i *linger) clock(now time.Time) time.Duration {
	if i.runs {
		return i.ran + now.Sub(i.from)
	}
	return i.ran
}

// run starts or stops the clock.
func (i *linger) run(on bool, now time.Time) {
	if on != i.runs {
		i.ran, i.runs, i.from = i.clock(now), on, now
	}
}

// next returns when the next name expires; zero: none expires by time alone.
func (i *linger) next(linger time.Duration) time.Time {
	if e := i.lingering.Front(); e != nil && i.runs {
		return i.from.Add(e.Value.(*lingeringName).since + linger - i.ran)
	}
	return time.Time{}
}

// wildcardServes reports whether a member that subscribes to a name gets the wildcard's copy
// because there is no other. The wildcard stays until there is one. Otherwise the member would lose
// the resource, or keep it after the origin deletes it (P50).
func (v *View) wildcardServes() bool {
	wild, named := v.part(true), v.part(false)
	for name := range v.names.All() {
		if v.index.HasName(name) && !named.Answers(name) && wild.Answers(name) {
			return true
		}
	}
	return false
}

// expired lists the expired subscriptions of one type.
type expired struct {
	names    []string
	wildcard bool
}

// expire removes names that have lingered long enough, and names that have to make room for wanted
// ones under names_per_key.
func (i *linger) expire(views []*View, now time.Time, s *Settings) map[*View]*expired {
	over := 0
	if limit := s.Limits.NamesPerKey; limit > 0 {
		over = -limit
		for _, v := range views {
			over += v.names.Weight()
		}
	}
	out := make(map[*View]*expired)
	for e := i.lingering.Front(); e != nil; {
		l := e.Value.(*lingeringName)
		e = e.Next()
		due := i.runs && i.clock(now) >= l.since+s.Linger
		if !due && over <= 0 {
			break
		}
		if !due && l.wildcard {
			continue
		}
		if l.wildcard && l.view.wildcardServes() {
			i.endLinger(l.view, l.partName) // the next update of the interest makes it linger again
			continue
		}
		i.endLinger(l.view, l.partName)
		if out[l.view] == nil {
			out[l.view] = new(expired)
		}
		if l.wildcard {
			out[l.view].wildcard = true
			continue
		}
		out[l.view].names = append(out[l.view].names, l.name)
		over -= xds.NameWeight(len(l.name))
	}
	return out
}

// wanted returns the number of names that members want, over all types, by their weight.
func wanted(views []*View) int {
	n := 0
	for _, v := range views {
		n += v.index.Weight()
	}
	return n
}

// expire forgets names that have lingered long enough, and types that are neither wanted nor
// subscribed.
func (g *Group) expire(now time.Time) {
	for v, names := range g.linger.update(g.views, now) {
		g.changed = true
		v.forget(names, false, g.gen+1) // nothing of them is held, so no client sees a difference
	}
	g.linger.run(!g.linger.frozen && (!g.wasEverOpen.Load() || g.connected()), now)
	for v, gone := range g.linger.expire(g.views, now, g.settings()) {
		g.changed = true
		if v.forget(gone.names, gone.wildcard, g.gen+1) {
			g.publishSoon(now)
		}
	}
	unused := func(v *View) bool { return v.members == 0 && !v.subscribes() }
	if g.linger.frozen || !slices.ContainsFunc(g.views, unused) {
		return
	}
	for _, v := range g.views {
		if unused(v) {
			v.close()
			if v.held.Load() != nil {
				g.publishSoon(now)
			}
		}
	}
	g.setViews(slices.DeleteFunc(slices.Clone(g.views), unused))
}

// dropUnwanted forgets do_not_cache resources that no member wants any more (P63). They do not
// linger, not even if all members have left. Their names leave the interest too, so that the origin
// answers the next client that subscribes to them. The same holds for the wildcard, with everything
// that it brought.
func (g *Group) dropUnwanted(now time.Time) {
	for _, v := range g.views {
		snap := v.held.Load()
		if n := snap.Part(true).Uncacheable(); n > 0 && v.wildcard && !v.index.HasWildcard() && !v.wildcardServes() {
			v.metrics.Dropped[telemetry.Unwanted].Add(n)
			g.linger.endLinger(v, partName{wildcard: true})
			if v.forget(nil, true, g.gen+1) {
				g.publishSoon(now)
				g.urgent = true
			}
			g.changed = true
		}
		if snap.Part(false).Uncacheable() == 0 {
			continue
		}
		var names []string
		n := 0
		for _, name := range v.builder.Uncacheable(false) {
			if by, wanted := v.requestedAs(name); !wanted {
				names = append(names, by...)
				n++
			}
		}
		if n == 0 {
			continue
		}
		slices.Sort(names)
		names = slices.Compact(names)
		v.metrics.Dropped[telemetry.Unwanted].Add(n)
		for _, name := range names {
			g.linger.endLinger(v, partName{name: name})
		}
		if v.forget(names, false, g.gen+1) {
			g.publishSoon(now)
			g.urgent = true
		}
		g.changed = true
	}
}

// hasUncacheable reports whether an update has a do_not_cache resource.
func hasUncacheable(u *snapshot.Update) bool {
	return slices.ContainsFunc(u.Changed, func(r *xds.Resource) bool { return r.Uncacheable })
}

// idle reports whether the key has been without members for IdleTTL. The time starts again
// when a stream opens.
func (g *Group) idle(now time.Time) bool {
	switch {
	case g.idleSince.IsZero() || g.idleSuspended():
		g.idleFrom = time.Time{}
		return false
	case g.idleFrom.IsZero():
		g.idleFrom = now
	}
	return !now.Before(g.idleFrom.Add(g.settings().IdleTTL))
}

// idleSuspended reports whether the idle time does not count, because the origin could not send the
// held resources again (P52).
func (g *Group) idleSuspended() bool {
	return !g.connected() && g.holds()
}
