package snapshot

import (
	"slices"

	"xdsrelay/internal/xds"
)

// Offer is what a client was offered of a type, by generations of a lineage.
type Offer struct {
	Lineage uint64
	// Has is the generation of which the client acknowledged everything; 0: none. Of is the
	// generation that it was offered.
	Has, Of uint64
	Sub     *Subscription // of the client
	// Names are those that are concerned; nil: what differs between the two generations.
	Names []string
}

// Difference is a resource that a client was offered, beside what it has of it.
type Difference struct {
	Name string
	// Offered is what the client NACKed or does not have yet, Has what it has; nil: none.
	Offered, Has *xds.Resource
	// OfferedGone and HasGone: it is not remembered any more, so it is not known.
	OfferedGone, HasGone bool
}

// Differences returns what differs between an offer and what the client has, by name: at most most
// differences, and the number of further names, which are not compared. It returns false if the
// names are not remembered any more, or are those of another lineage.
func (p Past) Differences(o *Offer, most int) (out []Difference, more int, known bool) {
	if p.newest == nil || p.newest.Lineage != o.Lineage {
		return nil, 0, false
	}
	names := o.Names
	if names == nil {
		if names, known = p.Between(o.Has, o.Of, o.Sub); !known {
			return nil, 0, false
		}
	}
	for i, name := range names {
		if len(out) == most {
			return out, len(names) - i, true
		}
		d := Difference{Name: name}
		var held bool
		d.Offered, held = p.At(o.Of, o.Sub, name)
		d.OfferedGone = !held
		if o.Has > 0 {
			d.Has, held = p.At(o.Has, o.Sub, name)
			d.HasGone = !held
		}
		if o.Has > 0 && !d.OfferedGone && !d.HasGone && d.Offered == d.Has {
			continue // it is the same
		}
		out = append(out, d)
	}
	return out, 0, true
}

// Changes returns what a version changed, by name: Offered is what the version has, Has what the one
// before had. The results are those of Differences.
func (p Past) Changes(v *VersionProgress, most int) (out []Difference, more int, known bool) {
	to := v.Newest()
	if p.newest == nil || p.newest.Lineage != v.Lineage || !p.holds(to) || v.First > 1 && !p.holds(v.First-1) {
		return nil, 0, false
	}
	names := []string{}
	if v.First == 1 { // nothing was before
		p.newest.Resources(func(r *xds.Resource) bool {
			names = append(names, r.Name)
			return true
		})
	}
	for _, g := range p.generations {
		if v.First == 1 || g.gen >= v.First && g.gen <= to {
			names = append(names, g.names...)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	all := &Subscription{Wildcard: true, Names: xds.NewNameSet(names...)}
	out, more, known = p.Differences(&Offer{Lineage: v.Lineage, Has: v.First - 1, Of: to, Sub: all, Names: names}, most)
	never := func(d Difference) bool { return d.Offered == nil && d.Has == nil && !d.OfferedGone && !d.HasGone }
	return slices.DeleteFunc(out, never), more, known
}
