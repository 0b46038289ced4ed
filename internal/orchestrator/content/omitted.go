package content

import (
	"slices"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Requests to a SotW origin omit the name of a ClusterLoadAssignment once the origin has removed
// the last cluster that leads to it (P37), even if clients still want the name (P52). Some origins
// answer no request with a name that they do not have (java-control-plane in ADS mode), so the name
// would hold up all others. Clients keep what is held until the removal of the cluster takes effect
// (P36).
//
// A request to a delta origin has only the names that change, so nothing is omitted there.

// omitFollowers decides, after update u, which names requests for the following type omit. was is
// the snapshot before u.
func (t *TypeContent) omitFollowers(was *snapshot.Snapshot, u *snapshot.Update, now time.Time) {
	i := slices.IndexFunc(t.content.types, func(o *TypeContent) bool { return o.typ.URL == t.typ.Follower })
	if !t.content.sotw || i < 0 {
		return
	}
	removed := make(map[string]partName) // names to which u may have removed the last cluster, with that
	for _, name := range u.Removed {
		if had := was.Part(u.Scope()).Resource(name); had != nil {
			removed[had.Follows] = partName{u.Scope(), name}
		}
	}
	for _, r := range u.Changed {
		if had := was.Part(u.Scope()).Resource(r.Name); had != nil && had.Follows != r.Follows {
			removed[had.Follows] = partName{u.Scope(), r.Name}
		}
	}
	t.content.types[i].omit(removed, t, now)
}

// omit omits those of the removed names to which no resource of the leader leads, and ends that for
// names to which one leads again. If there are names, the cost follows the number of resources, as
// that of a SotW response does.
func (t *TypeContent) omit(removed map[string]partName, leader *TypeContent, now time.Time) {
	if len(removed)+len(t.omitted) == 0 {
		return
	}
	leads := make(map[string]bool)
	for _, scope := range []snapshot.Scope{snapshot.ByWildcard, snapshot.ByName} {
		for r := range leader.part(scope).Resources {
			if leader.removals.waiting[partName{scope, r.Name}] == nil { // it is not removed
				leads[r.Follows] = true
			}
		}
	}
	for name := range t.omitted {
		if leads[name] {
			delete(t.omitted, name)
			delete(t.removals.waiting, partName{name: name})
		}
	}
	for name, cluster := range removed {
		at := partName{name: name}
		if t.omits(at) || leads[name] || !t.names.Has(name) {
			continue
		}
		put(&t.omitted, name, cluster)
		t.removals.wait(at, now)
	}
}

// omits reports whether requests omit a subscribed name.
func (t *TypeContent) omits(at partName) bool {
	_, omitted := t.omitted[at.name]
	return omitted && at.scope == snapshot.ByName
}

// ToRequest returns the subscribed names without those that are omitted. Once the last cluster of a
// name is not subscribed any more, the origin would not report its return, so the name is
// requested.
func (t *TypeContent) ToRequest() *xds.NameSet {
	var omit []string
	for name, cluster := range t.omitted {
		if slices.ContainsFunc(t.content.types, func(o *TypeContent) bool {
			return o.typ.Follower == t.typ.URL && (cluster.scope == snapshot.ByWildcard && o.wildcard || cluster.scope == snapshot.ByName && o.isRequested(cluster.name))
		}) {
			omit = append(omit, name)
		}
	}
	return t.names.Remove(omit...)
}
