package orchestrator

import (
	"container/list"
	"slices"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
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

// updateNames brings the subscription of a view up to date with what members want. Names that no
// member wants and that the origin has not answered are forgotten at once, because there is nothing
// to keep.
func (g *Group) updateNames(v *View, now time.Time) {
	var wanted, unanswered []string
	held := v.part(false)
	for _, name := range v.touched {
		at := partName{name: name}
		switch {
		case v.index.HasName(name):
			g.linger.endLinger(v, at)
			wanted = append(wanted, name)
		case !v.names.Has(name):
		case held.Known(name):
			g.linger.beginLinger(v, at, now)
		default:
			unanswered = append(unanswered, name)
		}
	}
	v.touched = nil
	v.names = v.names.Add(wanted...)
	g.forget(v, unanswered, false, now)

	switch at := (partName{wildcard: true}); {
	case v.index.HasWildcard():
		g.linger.endLinger(v, at)
		v.wildcard = true
	case v.wildcard:
		g.linger.beginLinger(v, at, now)
	}
}

// forget forgets names of a view, and the wildcard if wildcard is set.
func (g *Group) forget(v *View, names []string, wildcard bool, now time.Time) {
	if len(names) == 0 && !wildcard {
		return
	}
	g.changed = true
	if v.forget(names, wildcard, g.gen+1) {
		g.publishSoon(now)
	}
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

// forgetLingering forgets names that have lingered long enough, and names that have to make room for
// wanted ones under names_per_key.
func (g *Group) forgetLingering(now time.Time) {
	i, s, over := &g.linger, g.settings(), 0
	if limit := s.Limits.NamesPerKey; limit > 0 {
		over = -limit
		for _, v := range g.views {
			over += v.names.Weight()
		}
	}
	names, wildcard := make(map[*View][]string), make(map[*View]bool)
	for e := i.lingering.Front(); e != nil; {
		l := e.Value.(*lingeringName)
		e = e.Next()
		due := i.runs && i.clock(now) >= l.since+s.Linger
		if !due && over <= 0 {
			break
		}
		switch {
		case !l.wildcard:
			names[l.view] = append(names[l.view], l.name)
			over -= xds.NameWeight(len(l.name))
		case !due:
			continue
		default: // if it serves, the next update of the interest makes it linger again
			wildcard[l.view] = !l.view.wildcardServes()
		}
		i.endLinger(l.view, l.partName)
	}
	for _, v := range g.views {
		g.forget(v, names[v], wildcard[v], now)
	}
}

// expire forgets names that have lingered long enough, and types that are neither wanted nor
// subscribed.
func (g *Group) expire(now time.Time) {
	for _, v := range g.views {
		g.updateNames(v, now)
	}
	g.linger.run(!g.linger.frozen && (!g.wasEverOpen.Load() || g.connected()), now)
	g.forgetLingering(now)
	unused := func(v *View) bool { return v.members == 0 && !v.subscribes() }
	if g.linger.frozen || !slices.ContainsFunc(g.views, unused) {
		return
	}
	for _, v := range g.views {
		if unused(v) {
			v.history.Close()
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
		snap, dropped := v.held.Load(), 0
		n := snap.Part(true).Uncacheable()
		wildcard := n > 0 && v.wildcard && !v.index.HasWildcard() && !v.wildcardServes()
		if wildcard {
			g.linger.endLinger(v, partName{wildcard: true})
			dropped = n
		}
		var names []string
		if snap.Part(false).Uncacheable() > 0 {
			for _, name := range v.builder.Uncacheable(false) {
				if by, wanted := v.requestedAs(name); !wanted {
					names = append(names, by...)
					dropped++
				}
			}
		}
		slices.Sort(names)
		names = slices.Compact(names)
		for _, name := range names {
			g.linger.endLinger(v, partName{name: name})
		}
		v.metrics.Dropped[telemetry.Unwanted].Add(dropped)
		g.forget(v, names, wildcard, now)
		g.urgent = g.urgent || dropped > 0
	}
}

// idle reports whether the key has been without members for IdleTTL. The time does not count while
// the origin could not send the held resources again (P52), and starts again when a stream opens.
func (g *Group) idle(now time.Time) bool {
	switch {
	case g.idleSince.IsZero() || !g.connected() && g.holds():
		g.idleFrom = time.Time{}
		return false
	case g.idleFrom.IsZero():
		g.idleFrom = now
	}
	return !now.Before(g.idleFrom.Add(g.settings().IdleTTL))
}
