package xds

// Client features that decide what of a resource a client is given (P62).
const (
	// FeatureTTL: the client counts TTLs and takes heartbeats.
	FeatureTTL = "xds.config.supports-resource-ttl"
	// FeatureSotWResource: it takes wrapped resources in SotW, TTL and heartbeats
	// with them. The relay says it of itself upstream (P58).
	FeatureSotWResource = "xds.config.supports-resource-in-sotw"
	// FeatureUnwraps: it takes wrapped resources in SotW. gRPC says so; a
	// heartbeat without a body is unreadable to it.
	FeatureUnwraps = "xds.config.resource-in-sotw"
)

// features are the client features that the relay looks at.
type features struct{ ttl, sotwResource, unwraps bool }

func (f *features) add(name []byte) {
	switch string(name) {
	case FeatureTTL:
		f.ttl = true
	case FeatureSotWResource:
		f.sotwResource = true
	case FeatureUnwraps:
		f.unwraps = true
	}
}

// Form is what resources look like to a client.
type Form struct {
	Variant Variant
	// Timed: with their TTL, and in SotW wrapped in a Resource.
	Timed bool
	// Beats: a TTL is renewed by a Resource without a body; else by the whole.
	Beats bool
	// OriginVersions: incremental resources bear the origin's own version, where
	// it gave one (P61).
	OriginVersions bool
	// SeveralOrigins: one origin's version says nothing of what another one gives
	// under it, so that the content's is added.
	SeveralOrigins bool
}

// Form is what the node takes of a variant (P62).
func (n *Node) Form(v Variant) Form {
	f := Form{Variant: v, Timed: n.features.ttl, Beats: n.features.ttl}
	if v == SotW {
		f.Timed = n.features.sotwResource || n.features.unwraps
		f.Beats = f.Timed && (n.features.sotwResource || n.features.ttl)
	}
	return f
}

// Same reports whether a client of this form sees no difference between the
// two: no more is compared than it is given.
func (f Form) Same(a, b *Resource) bool {
	switch {
	case a == b:
		return true
	case a == nil || b == nil:
		return false
	case f.Timed:
		return a.Same(b)
	case f.Variant == Delta:
		return a.sameBut(b)
	}
	return a.sameBody(b)
}

// Version is what an incremental client of this form knows the resource by.
func (f Form) Version(r *Resource) string {
	switch {
	case !f.OriginVersions || r.Given == "":
		return r.Version.String()
	case f.SeveralOrigins:
		return r.Given + "/" + r.Version.String()
	}
	return r.Given
}
