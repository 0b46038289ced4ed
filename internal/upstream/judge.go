package upstream

import (
	"time"

	"xdsrelay/internal/xds"
)

// tally is what of a response went no further.
type tally struct {
	unasked  int // resources that nobody had asked for: dropped, no fault (P65)
	bodyless int // heartbeats and unresolved aliases: no fault, not stored (P18)
}

// judge makes an update of a response to a, given what is held. The snapshot
// must be the newest. Unchanged resources share what is held.
func judge(v xds.Variant, a asked, r *xds.Response, snap *xds.Snapshot, now time.Time) (xds.Update, tally) {
	t := xds.TypeOf(r.TypeURL)
	u := xds.Update{Type: r.TypeURL, Version: r.Version, Wildcard: a.wildcard, Received: now}
	var n tally
	wanted := func(name string) bool {
		if a.wildcard || a.names.Has(name) {
			return true
		}
		n.unasked++
		return false
	}
	u.Changed = make([]*xds.Resource, 0, len(r.Resources))
	for i := range r.Resources {
		raw := &r.Resources[i]
		switch {
		case !raw.HasBody():
			n.bodyless++
		case wanted(raw.Name):
			u.Changed = append(u.Changed, raw.Take(t, a.part(snap).Share(raw.Name)))
		}
	}
	if v == xds.SotW {
		u.Removed = missing(t, a, r, snap, n.bodyless)
		return u, n
	}
	for _, name := range r.Removed {
		if wanted(name) {
			u.Removed = append(u.Removed, name)
		}
	}
	return u, n
}

// missing is what a SotW response removes by leaving it out: of the full-state
// types only, and never if it holds heartbeats alone; only names that are held
// of the part that it answers. A name asked for and never received stays
// pending, also where the wildcard has it. What is held has been in a response
// since the name was last added to the union, since a name that leaves it is
// forgotten, and asked for again as if it were new (P65).
func missing(t xds.Type, a asked, r *xds.Response, snap *xds.Snapshot, bodyless int) []string {
	if !t.FullState || a.empty() || bodyless > 0 && bodyless == len(r.Resources) {
		return nil
	}
	there := make(map[string]struct{}, len(r.Resources))
	for i := range r.Resources {
		there[r.Resources[i].Name] = struct{}{}
	}
	var gone []string
	for res := range a.covers(snap) {
		if _, ok := there[res.Name]; !ok {
			gone = append(gone, res.Name)
		}
	}
	return gone
}
