package orchestrator

import (
	"slices"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Requests to a SotW origin omit the name of a ClusterLoadAssignment once the origin has removed the
// last cluster that leads to it (P37), even if clients still want the name (P52). Some origins answer
// no request with a name that they do not have (java-control-plane in ADS mode), so the name would
// hold up all others. Clients keep what is held until the removal of the cluster takes effect (P36).
//
// A request to a delta origin has only the names that change, so nothing is omitted there.

// applyToView applies an update to its view. With a SotW origin it also decides which names requests
// for the following type omit.
func (g *Group) applyToView(v *View, from *upstreamHandle, u snapshot.Update) (changed, first bool) {
	was := v.part(u.Wildcard)
	changed, first = v.apply(from, u, g.removalDelay(), g.gen+1)
	follower := find(g.views, v.typ.Follower)
	if !g.opts.SotWOrigins || follower == nil || from != v.streamOf(u.Wildcard) {
		return changed, first
	}
	removed := make(map[string]partName) // names to which u may have removed the last cluster, with that
	for _, name := range u.Removed {
		if had := was.Held(name); had != nil {
			removed[had.Follows] = partName{u.Wildcard, name}
		}
	}
	for _, r := range u.Changed {
		if had := was.Held(r.Name); had != nil && had.Follows != r.Follows {
			removed[had.Follows] = partName{u.Wildcard, r.Name}
		}
	}
	follower.omit(removed, v)
	return changed, first
}

// omit omits those of the removed names to which no resource of the leader leads, and ends that for
// names to which one leads again. If there are names, the cost follows the number of resources, as
// that of a SotW response does.
func (v *View) omit(removed map[string]partName, leader *View) {
	if len(removed)+len(v.omitted) == 0 {
		return
	}
	leads := make(map[string]bool)
	for _, wildcard := range []bool{true, false} {
		for r := range leader.part(wildcard).Resources {
			if leader.removals.waiting[partName{wildcard, r.Name}] == nil { // it is not removed
				leads[r.Follows] = true
			}
		}
	}
	for name := range v.omitted {
		if leads[name] {
			delete(v.omitted, name)
			delete(v.removals.waiting, partName{name: name})
		}
	}
	for name, by := range removed {
		at := partName{name: name}
		if v.omits(at) || leads[name] || !v.names.Has(name) {
			continue
		}
		put(&v.omitted, name, by)
		v.removals.wait(at, time.Now())
	}
}

// omits reports whether requests omit a subscribed name.
func (v *View) omits(at partName) bool {
	_, is := v.omitted[at.name]
	return is && !at.wildcard
}

// namesToRequest returns the subscribed names without those that are omitted. Once the last cluster
// of a name is not subscribed any more, the origin would not report its return, so the name is
// requested.
func (v *View) namesToRequest(views []*View) *xds.NameSet {
	var omit []string
	for name, by := range v.omitted {
		if slices.ContainsFunc(views, func(o *View) bool {
			return o.typ.Follower == v.typ.URL && (by.wildcard && o.wildcard || !by.wildcard && o.isRequested(by.name))
		}) {
			omit = append(omit, name)
		}
	}
	return v.names.Remove(omit...)
}
