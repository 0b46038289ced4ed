package check

import "slices"

// Types with rules of their own in the checker. They are repeated here so that the checker does not
// use the table that it tests.
const (
	prefix   = "type.googleapis.com/envoy.config."
	Listener = prefix + "listener.v3.Listener"
	Route    = prefix + "route.v3.RouteConfiguration"
	Cluster  = prefix + "cluster.v3.Cluster"
	Endpoint = prefix + "endpoint.v3.ClusterLoadAssignment"
	scoped   = prefix + "route.v3.ScopedRouteConfiguration"
)

// Variants.
const (
	SotW  = "sotw"
	Delta = "delta"
)

// full: a SotW response has all subscribed resources of the type, and a missing one is removed.
func full(typ string) bool { return typ == Listener || typ == Cluster || typ == scoped }

// legacy: a request without names subscribes to everything.
func legacy(typ string) bool { return full(typ) }

// subscription is a stream's subscription to a type.
type subscription struct {
	spoken  bool
	resumes bool // it had something of the type on an earlier stream
	named   bool // names were listed at some time
	wild    bool
	names   map[string]bool
}

// ask applies a request, and returns the names that are no longer subscribed.
func (s *subscription) ask(variant string, e *Event) (dropped []string) {
	first := !s.spoken
	s.spoken = true
	if variant == Delta {
		if first {
			s.wild = len(e.Names) == 0 && legacy(e.Type)
		}
		for _, name := range e.Names {
			if name == "*" {
				s.wild = true
			} else {
				s.names[name] = true
			}
		}
		for _, name := range e.Dropped {
			if name == "*" {
				s.wild = false
			} else {
				delete(s.names, name)
			}
		}
		return e.Dropped
	}
	s.named = s.named || len(e.Names) > 0
	s.wild = !s.named && legacy(e.Type) || slices.Contains(e.Names, "*")
	before := s.names
	s.names = make(map[string]bool, len(e.Names))
	for _, name := range e.Names {
		if name != "*" {
			s.names[name] = true
		}
	}
	for name := range before {
		if !s.names[name] {
			dropped = append(dropped, name)
		}
	}
	return dropped
}
