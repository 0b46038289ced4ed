package xds

// Client features that decide which parts of a resource a client receives (P62).
const (
	// FeatureTTL: the client counts TTLs and accepts heartbeats.
	FeatureTTL = "xds.config.supports-resource-ttl"
	// FeatureSupportsResourceInSotW: the client accepts wrapped resources in SotW, with TTLs and
	// heartbeats. The relay announces it upstream (P58).
	FeatureSupportsResourceInSotW = "xds.config.supports-resource-in-sotw"
	// FeatureResourceInSotW: the client accepts wrapped resources in SotW. gRPC announces it, but
	// cannot read a heartbeat, which has no body.
	FeatureResourceInSotW = "xds.config.resource-in-sotw"
)

// features are the client features that the relay reads.
type features struct{ ttl, supportsResourceInSotW, resourceInSotW bool }

func (f *features) add(name []byte) {
	switch string(name) {
	case FeatureTTL:
		f.ttl = true
	case FeatureSupportsResourceInSotW:
		f.supportsResourceInSotW = true
	case FeatureResourceInSotW:
		f.resourceInSotW = true
	}
}

// ResourceFormat says how resources are encoded for a client.
type ResourceFormat struct {
	Variant Variant
	// WithTTL: resources have their TTL. In SotW they are wrapped in a Resource, which carries the
	// TTL.
	WithTTL bool
	// Heartbeats: a Resource without a body renews a TTL. Without it, the whole resource is sent
	// again.
	Heartbeats bool
	// OriginVersions: in delta, resources have the origin's own version if it gave one (P61).
	OriginVersions bool
	// SeveralOrigins: there is more than one origin, and different origins may use one version for
	// different contents. The content's version is added to the origin's.
	SeveralOrigins bool
	// Relay: the client is another relay of the cluster, in delta. Responses are not cut (P38). The first
	// response of a type is sent once the answer is complete (P67), even if it is empty. What the relay
	// has is not sent again (P27, P37).
	Relay bool
}

// ResourceFormat returns the format in which this node receives resources in variant v (P62).
func (n *Node) ResourceFormat(v Variant) ResourceFormat {
	f := ResourceFormat{Variant: v, WithTTL: n.features.ttl, Heartbeats: n.features.ttl}
	if v == SotW {
		f.WithTTL = n.features.supportsResourceInSotW || n.features.resourceInSotW
		f.Heartbeats = f.WithTTL && (n.features.supportsResourceInSotW || n.features.ttl)
	}
	return f
}

// Same reports whether a client with this format sees no difference between a and b. It compares
// only the parts that the client receives. Both may be nil.
func (f ResourceFormat) Same(a, b *Resource) bool {
	switch {
	case a == b:
		return true
	case a == nil || b == nil:
		return false
	case f.WithTTL:
		return a.Same(b)
	case f.Variant == Delta:
		return a.sameExceptTTL(b)
	}
	return a.sameBody(b)
}

// Version returns the version by which a delta client with this format knows r.
func (f ResourceFormat) Version(r *Resource) string {
	switch {
	case !f.OriginVersions || r.GivenVersion == "":
		return r.Version.String()
	case f.SeveralOrigins:
		return r.GivenVersion + "/" + r.Version.String()
	}
	return r.GivenVersion
}
