package orchestrator

import (
	"slices"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// lapse lets go of what has expired by now (P62), and publishes that at once:
// it is served to nobody new. Who holds it counts its TTL alone.
func (g *Group) lapse(now time.Time) {
	for _, v := range g.views {
		if n := v.builder.Expire(now); n > 0 {
			v.meters.Dropped[telemetry.Expired].Add(n)
			g.let(v, now)
		}
	}
}

// nextExpiry is when the next resource expires; zero: none will.
func (g *Group) nextExpiry() (first time.Time) {
	for _, v := range g.views {
		if at := v.builder.NextExpiry(); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// let publishes, at once, that something of v is held no more.
func (g *Group) let(v *view, now time.Time) {
	if v.snapshot(g.gen + 1) {
		g.stale(now)
		g.urgent = true
	}
}

// shed lets go of what is not to be cached and nobody asks for any more (P63):
// it does not linger, be it that all members have left. Names go from the
// interest with it, so that who asks for them again is answered by the origin.
// A wildcard stays, since it brought other things as well, and is asked for anew
// once somebody wants it.
func (g *Group) shed(now time.Time) {
	for _, v := range g.views {
		snap := v.held.Load()
		if n := snap.Part(true).Uncacheable(); n > 0 && v.wildcard && !v.index.wildcard() {
			v.meters.Dropped[telemetry.Unwanted].Add(n)
			v.builder.Apply(xds.Update{Wildcard: true, Ended: true})
			v.reask = true
			g.let(v, now)
		}
		if snap.Part(false).Uncacheable() == 0 {
			continue
		}
		var names []string
		n := 0
		for _, name := range v.builder.Uncacheable(false) {
			if by, wanted := v.askedBy(name); !wanted {
				names = append(names, by...)
				n++
			}
		}
		if n == 0 {
			continue
		}
		slices.Sort(names)
		names = slices.Compact(names)
		v.meters.Dropped[telemetry.Unwanted].Add(n)
		for _, name := range names {
			g.interest.stay(v, partName{name: name})
		}
		if v.forget(names, false, g.gen+1) {
			g.stale(now)
			g.urgent = true
		}
		g.changed = true
	}
}

// reask has the origin asked anew for wildcards of which something was let go
// because nobody wanted them, and that are wanted again: the stream is told to
// end each, and then to ask for it.
func (g *Group) reask() {
	for _, v := range g.views {
		if !v.reask || !v.index.wildcard() {
			v.reask = v.reask && v.wildcard
			continue
		}
		v.reask = false
		for _, l := range g.lines() {
			if !l.sent.Of(v.typ.URL).Wildcard {
				continue
			}
			l.sent = &xds.Interest{Types: slices.DeleteFunc(slices.Clone(l.sent.Types), func(t xds.TypeInterest) bool {
				return t.Type == v.typ.URL
			})}
			l.stream.SetInterest(l.sent)
		}
	}
}

// brings reports whether an update has something that is not to be cached.
func brings(u *xds.Update) bool {
	return slices.ContainsFunc(u.Changed, func(r *xds.Resource) bool { return r.Uncacheable })
}
