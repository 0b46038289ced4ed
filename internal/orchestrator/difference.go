package orchestrator

import (
	"xdsrelay/internal/fanout"
	"xdsrelay/internal/xds"
)

// Difference is a resource that a client refused or does not have yet, against what
// it has of it.
type Difference struct {
	Name string
	// Offered is what it refused or is to take, Has what it has; nil: none.
	Offered, Has *xds.Resource
	// OfferedGone and HasGone: it is not held any more, so nobody knows.
	OfferedGone, HasGone bool
}

// Differences are those of what a client has not taken, by name, at most so many, and
// how many names there are beyond that, which are not looked at. false: so much came since that nobody knows which
// they are.
func (r *Registry) Differences(u *fanout.Untaken, most int) (out []Difference, more int, known bool) {
	g := r.group(u.Key)
	if g == nil {
		return nil, 0, false
	}
	v := find(*g.types.Load(), u.Type.URL)
	if v == nil {
		return nil, 0, false
	}
	now := v.held.Load()
	if now == nil || now.Lineage != u.Lineage {
		return nil, 0, false
	}
	past := v.history.Past(now)
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
			continue // nothing of it is another
		}
		out = append(out, d)
	}
	return out, 0, true
}

// Resources are what is held of a key, type by type in the order of their first use;
// false: the key is not in use. Nothing of it is copied.
func (r *Registry) Resources(key xds.Key) ([]*xds.Snapshot, bool) {
	g := r.group(key)
	if g == nil {
		return nil, false
	}
	var out []*xds.Snapshot
	for _, v := range *g.types.Load() {
		if s := v.held.Load(); s != nil {
			out = append(out, s)
		}
	}
	return out, true
}
