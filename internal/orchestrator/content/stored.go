package content

import (
	"slices"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Stored returns the snapshot in the store that may still be served, nil if none. Any goroutine may
// call it.
func (t *TypeContent) Stored() *snapshot.Snapshot { return t.stored.Load() }

// SetStored sets the snapshot in the store that may still be served; nil: none.
func (t *TypeContent) SetStored(s *snapshot.Snapshot) { t.stored.Store(s) }

// ApplyStored puts stored resources in the place of unknown ones that are subscribed, as updates of
// the origin that sent them (P66). The origin's answers replace them name by name. If only the
// wildcard brought a resource, a client that subscribes to its name gets it too. ApplyStored
// returns the number of resources, and whether there was anything, perhaps an empty answer to the
// wildcard. It is published at once.
func (t *TypeContent) ApplyStored() (resources int, applied bool) {
	stored, held := t.Stored(), t.Newest()
	if stored == nil {
		return 0, false
	}
	apply := func(wild bool, rs []*xds.Resource) {
		t.builder.ApplyStored(snapshot.Update{Type: t.typ.URL, Origin: stored.Origin, Version: stored.OriginVersion(),
			Wildcard: wild, Changed: rs, Received: stored.Received})
		resources, applied = resources+len(rs), true
	}
	wild := t.wildcard && stored.Answered && !answered(held)
	if wild {
		apply(true, slices.DeleteFunc(slices.Collect(stored.Part(snapshot.ByWildcard).Resources), func(r *xds.Resource) bool { return !r.Storable() }))
	}
	var named []*xds.Resource
	taken := make(map[string]bool)
	for name := range t.names.All() {
		if held.Part(snapshot.ByName).Known(name) || held.Part(snapshot.ByWildcard).Resource(name) != nil {
			continue
		}
		for _, n := range append(stored.NamesByAlias(name), name) {
			r := stored.Part(snapshot.ByName).Resource(n)
			if r == nil && !wild {
				r = stored.Part(snapshot.ByWildcard).Resource(n)
			}
			if r.Storable() && !taken[n] {
				taken[n] = true
				named = append(named, r)
			}
		}
	}
	if len(named) > 0 {
		apply(false, named)
	}
	if applied {
		t.snapshot()
		t.content.urgent = true
	}
	return resources, applied
}
