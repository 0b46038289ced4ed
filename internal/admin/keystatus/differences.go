package keystatus

import (
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Differences returns what differs in what a client has not accepted: see orchestrator.Group. It
// returns false if that is not remembered any more, or if the key is not in use.
func (r *Reader) Differences(u *inspect.Unacknowledged, most int) (out []snapshot.Difference, more int, known bool) {
	g := r.registry.Group(u.Key)
	if g == nil {
		return nil, 0, false
	}
	return g.Differences(u.Type.URL, &u.Offer, most)
}

// Changes returns what a version of a type changed: see orchestrator.Group. It returns false if that is
// not remembered any more, or if the key is not in use.
func (r *Reader) Changes(key xds.Key, typ xds.TypeURL, version string, most int) (out []snapshot.Difference, more int, known bool) {
	g := r.registry.Group(key)
	if g == nil {
		return nil, 0, false
	}
	return g.Changes(typ, version, most)
}
