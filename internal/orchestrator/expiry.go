package orchestrator

import (
	"slices"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// lapse lets go of what has expired by now (P62), and publishes that at once:
// it is served to nobody new. Who holds it counts its TTL alone.
func (g *Group) expireTTLs(now time.Time) {
	for _, v := range g.views {
		if n := v.builder.Expire(now); n > 0 {
			v.meters.Dropped[telemetry.Expired].Add(n)
			g.publishNow(v, now)
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
func (g *Group) publishNow(v *View, now time.Time) {
	if v.snapshot(g.gen + 1) {
		g.publishSoon(now)
		g.urgent = true
	}
}

// shed lets go of what is not to be cached and nobody asks for any more (P63). It does
// not linger, also if all members have left. Its names go from the interest with it, so
// that the origin answers a client that asks for them again. So does the wildcard, with
// all that it brought.
func (g *Group) dropUnwanted(now time.Time) {
	for _, v := range g.views {
		snap := v.held.Load()
		if n := snap.Part(true).Uncacheable(); n > 0 && v.wildcard && !v.index.HasWildcard() && !v.wildcardServes() {
			v.meters.Dropped[telemetry.Unwanted].Add(n)
			g.interest.endLinger(v, partName{wildcard: true})
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
			g.interest.endLinger(v, partName{name: name})
		}
		if v.forget(names, false, g.gen+1) {
			g.publishSoon(now)
			g.urgent = true
		}
		g.changed = true
	}
}

// brings reports whether an update has something that is not to be cached.
func hasUncacheable(u *xds.Update) bool {
	return slices.ContainsFunc(u.Changed, func(r *xds.Resource) bool { return r.Uncacheable })
}
