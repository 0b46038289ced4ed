package upstream

import (
	"time"

	"xdsrelay/internal/xds"
)

// tally is what of a response went no further.
type tally struct {
	unasked  int // resources that nobody had asked for: dropped, no fault (P65)
	bodyless int // heartbeats and unresolved aliases: no fault (P18)
	renewed  int // heartbeats, and
	stale    int // those that mean nothing held (P62)
}

// judge makes an update of a response that is to be taken, given what is held.
// The snapshot must be the newest. Unchanged resources share what is held.
func judge(v xds.Variant, to verdict, r *xds.Response, snap *xds.Snapshot, now time.Time) (xds.Update, tally) {
	t, a := xds.TypeOf(r.TypeURL), to.asked
	u := xds.Update{Type: r.TypeURL, Version: r.Version, Wildcard: a.wildcard, Received: now}
	u.Partial = u.Wildcard && v == xds.Delta
	var n tally
	wanted := func(asked bool) bool {
		if !asked {
			n.unasked++
		}
		return asked
	}
	u.Unversioned = r.Version == ""
	u.Changed = make([]*xds.Resource, 0, len(r.Resources))
	for i := range r.Resources {
		raw := &r.Resources[i]
		switch {
		case !raw.HasBody():
			n.bodyless++
			held := a.part(snap).Held(raw.Name)
			if raw.Unresolved(held) {
				if word, asked := raw.TakeUnresolved(a.names); wanted(asked) {
					u.Unresolved = append(u.Unresolved, word)
				}
				continue
			}
			ttl, timed := raw.TTL()
			if !timed || !wanted(a.wildcard || raw.AskedBy(a.names)) {
				continue
			}
			if renews(v, raw, r, held, to) {
				u.Changed = append(u.Changed, held.Renew(ttl, now))
				n.renewed++
			} else {
				n.stale++
			}
		case wanted(a.wildcard || raw.AskedBy(a.names)):
			u.Changed = append(u.Changed, raw.Take(t, a.part(snap).Share(raw.Name)).Start(now))
		case a.part(snap).Asked(raw.Name, a.names):
			u.Removed = append(u.Removed, raw.Name) // it goes by nothing any more that was asked for
		}
	}
	errors, absent := failures(a, r, snap)
	u.Errors, u.Removed = errors, append(u.Removed, absent...)
	if v == xds.SotW {
		if echoes(r, to.sound) {
			u.Version, u.Unversioned = to.took, false
		}
		u.Removed = append(u.Removed, missing(t, a, r, snap, n.bodyless)...)
		return u, n
	}
	for _, name := range r.Removed {
		if wanted(a.wildcard || a.part(snap).Asked(name, a.names)) {
			u.Removed = append(u.Removed, name)
		}
	}
	return u, n
}

// complete: what a SotW response of the type leaves out is gone.
func complete(t xds.Type, r *xds.Response, bodyless int) bool {
	return t.FullState && (bodyless == 0 || bodyless < len(r.Resources))
}

// missing is what a SotW response removes by leaving it out: of the full-state
// types only, and never if it holds heartbeats alone; only names that are held
// of the part that it answers. A name asked for and never received stays
// pending, also where the wildcard has it. What is held has been in a response
// since the name was last added to the union, since a name that leaves it is
// forgotten, and asked for again as if it were new (P65). What the response gives
// an error for is not left out: the error says what is to be said (P39).
func missing(t xds.Type, a asked, r *xds.Response, snap *xds.Snapshot, bodyless int) []string {
	if a.empty() || !complete(t, r, bodyless) {
		return nil
	}
	there := make(map[string]struct{}, len(r.Resources))
	for i := range r.Resources {
		there[r.Resources[i].Name] = struct{}{}
	}
	for _, e := range r.Errors {
		there[e.Name] = struct{}{}
	}
	var gone []string
	for res := range a.covers(snap) {
		if _, ok := there[res.Name]; !ok {
			gone = append(gone, res.Name)
		}
	}
	// Who still holds what is held here no more is to hear that it went.
	for name := range a.part(snap).Lapsed {
		if _, ok := there[name]; !ok && (a.wildcard || a.part(snap).Asked(name, a.names)) {
			gone = append(gone, name)
		}
	}
	return gone
}
