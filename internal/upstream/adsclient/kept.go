package adsclient

import (
	"slices"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// KeptResponse is an accepted response that is not applied yet.
type KeptResponse struct {
	Response *xds.Response
	Decision Decision
	Received time.Time
}

// Kept has the responses that a probe keeps back, mostly one for each part of a type. Not safe for concurrent use.
type Kept []KeptResponse

// Add keeps an accepted response, together with what it does not say again of the earlier ones. So clients,
// which may have got something newer from another origin, get the newest content at once.
func (k *Kept) Add(v xds.Variant, r *xds.Response, d Decision, now time.Time) {
	said := make(map[string]bool)
	for _, n := range r.Removed {
		said[n] = true
	}
	whole, heartbeats := v == xds.SotW && (d.Scope() == snapshot.ByWildcard || xds.TypeOf(r.TypeURL).FullState || r.LacksNames), false
	for i := range r.Resources {
		if r.Resources[i].HasBody() {
			said[r.Resources[i].Name] = true
		} else {
			heartbeats = true
		}
	}
	*k = slices.DeleteFunc(*k, func(old KeptResponse) bool {
		if old.Response.TypeURL != r.TypeURL || old.Decision.Scope() != d.Scope() || whole && heartbeats {
			return false // heartbeats are of the resources of old
		}
		if !whole {
			r.Resources = append(slices.DeleteFunc(old.Response.Resources, func(p xds.ParsedResource) bool { return said[p.Name] }), r.Resources...)
			r.Removed = append(slices.DeleteFunc(old.Response.Removed, func(n string) bool { return said[n] }), r.Removed...)
			r.Errors = append(old.Response.Errors, r.Errors...)
		}
		d.unasked, d.acceptedVersion = old.Decision.unasked, old.Decision.acceptedVersion // r is now the first answer
		return true
	})
	*k = append(*k, KeptResponse{r, d, now})
}
