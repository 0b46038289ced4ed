package upstream

import (
	"context"
	"slices"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// A resource without a body and with a TTL is a heartbeat (P62). It renews what
// it means: the version that the origin last gave. In incremental that is the
// resource's own, and so in SotW if the wrapped Resource bears one. Otherwise it
// is the version_info last taken, or any newer one: it says that the resource is
// unchanged since; but not if a response was refused meanwhile, which may have
// held another. A heartbeat of anything else is stale, and renews nothing.

// renews reports whether a resource without a body renews what is held under its
// name, if it is a heartbeat of that. What another origin gave has none.
func renews(v xds.Variant, raw *xds.Raw, r *xds.Response, held *xds.Resource, to verdict) bool {
	if held == nil || to.foreign.Has(held.Name) {
		return false
	}
	if v == xds.Delta || raw.OriginVersion != "" {
		return raw.OriginVersion == held.OriginVersion
	}
	return to.sound || r.Version == to.took
}

// echoes reports whether a SotW response is heartbeats alone, of which one
// cannot tell whether they mean what is held, since a response was refused. It
// is acknowledged, but under the version that is held.
func echoes(r *xds.Response, sound bool) bool {
	return !sound && len(r.Resources) > 0 &&
		!slices.ContainsFunc(r.Resources, func(raw xds.Raw) bool { return raw.HasBody() })
}

// failures are the resource_errors of a response to a, and the names that they
// say are absent, but for those that the same response brings (P39, P25).
func failures(a asked, r *xds.Response, snap *xds.Snapshot) (errors []*xds.ResourceError, absent []string) {
	if len(r.Errors) == 0 {
		return nil, nil
	}
	brought := make(map[string]struct{}, len(r.Resources))
	for i := range r.Resources {
		if r.Resources[i].HasBody() {
			brought[r.Resources[i].Name] = struct{}{}
		}
	}
	for _, e := range r.Errors {
		if !a.wildcard && !a.part(snap).Asked(e.Name, a.names) {
			continue
		}
		errors = append(errors, e)
		if _, there := brought[e.Name]; e.Absent() && !there {
			absent = append(absent, e.Name)
		}
	}
	return errors, absent
}

// partOf is a part of a type (P50).
type partOf struct {
	typ  xds.TypeURL
	wild bool
}

// noteUncacheable remembers that this attempt brought something that is not to
// be cached.
func (s *line) noteUncacheable(u *xds.Update) {
	if !slices.ContainsFunc(u.Changed, func(r *xds.Resource) bool { return r.Uncacheable }) {
		return
	}
	if s.uncacheable == nil {
		s.uncacheable = make(map[partOf]struct{})
	}
	s.uncacheable[partOf{u.Type, u.Wildcard}] = struct{}{}
}

// uncache makes the group drop what is not to be cached, once the stream that
// brought it has ended (P63). The next stream then asks for it as for what is not
// held.
func (s *line) uncache(ctx context.Context) error {
	for p := range s.uncacheable {
		n := s.held(p.typ).Part(p.wild).Uncacheable()
		changed, err := s.apply(ctx, xds.Update{Type: p.typ, Wildcard: p.wild, Ended: true})
		if err != nil {
			return err
		}
		delete(s.uncacheable, p)
		if changed { // else nobody held it
			s.counters(p.typ).Dropped[telemetry.StreamEnded].Add(n)
		}
	}
	return nil
}
