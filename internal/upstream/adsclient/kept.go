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

// Kept has the responses that a probe keeps back, the oldest first. Not safe for concurrent use.
type Kept []KeptResponse

// Add keeps an accepted response. What it says again is removed from the earlier ones, because clients
// may have got something newer from another origin by the time that the responses are applied.
func (k *Kept) Add(v xds.Variant, r *xds.Response, d Decision, now time.Time) {
	said := make(map[string]bool)
	for _, n := range r.Removed {
		said[n] = true
	}
	whole := v == xds.SotW && (d.Scope() == snapshot.ByWildcard || xds.TypeOf(r.TypeURL).FullState)
	for i := range r.Resources {
		if r.Resources[i].HasBody() {
			said[r.Resources[i].Name] = true
		} else {
			whole = false
		}
	}
	*k = slices.DeleteFunc(*k, func(old KeptResponse) bool {
		switch {
		case old.Response.TypeURL != r.TypeURL || old.Decision.Scope() != d.Scope():
			return false
		case whole: // r is now the first one that answers
			d.unasked, d.acceptedVersion = old.Decision.unasked, old.Decision.acceptedVersion
			return true
		}
		old.Response.Resources = slices.DeleteFunc(old.Response.Resources, func(p xds.ParsedResource) bool { return said[p.Name] })
		old.Response.Removed = slices.DeleteFunc(old.Response.Removed, func(n string) bool { return said[n] })
		return false
	})
	*k = append(*k, KeptResponse{r, d, now})
}
