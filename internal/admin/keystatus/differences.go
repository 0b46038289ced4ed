package keystatus

import (
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/xds"
)

// Difference is a resource that a client NACKed or does not have yet, beside what the client has of
// it.
type Difference struct {
	Name string
	// Offered is what the client NACKed or does not have yet, Has what it has; nil: none.
	Offered, Has *xds.Resource
	// OfferedGone and HasGone: it is not remembered any more, so it is not known.
	OfferedGone, HasGone bool
}

// Differences returns what differs in what a client has not accepted, by name: at most most
// differences, and the number of further names, which are not compared. It returns false if
// the names are not remembered any more.
func (r *Reader) Differences(u *inspect.Unacknowledged, most int) (out []Difference, more int, known bool) {
	g := r.registry.Group(u.Key)
	if g == nil {
		return nil, 0, false
	}
	v := g.View(u.Type.URL)
	if v == nil {
		return nil, 0, false
	}
	now := v.Held()
	if now == nil || now.Lineage != u.Lineage {
		return nil, 0, false
	}
	past := v.History().Past(now)
	names := u.Names
	if names == nil {
		if names, known = past.Between(u.Has, u.Of, u.Sub); !known {
			return nil, 0, false
		}
	}
	for i, name := range names {
		if len(out) == most {
			return out, len(names) - i, true
		}
		d := Difference{Name: name}
		var held bool
		d.Offered, held = past.At(u.Of, u.Sub, name)
		d.OfferedGone = !held
		if u.Has > 0 {
			d.Has, held = past.At(u.Has, u.Sub, name)
			d.HasGone = !held
		}
		if u.Has > 0 && !d.OfferedGone && !d.HasGone && d.Offered == d.Has {
			continue // it is the same
		}
		out = append(out, d)
	}
	return out, 0, true
}
