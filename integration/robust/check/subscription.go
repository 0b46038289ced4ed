package check

import "slices"

// Types that the checker knows more of than their names. They are written out
// here: a history is not judged by the table of what is under test.
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

// full: a SotW response has all of the type that is asked for, and what is
// missing is gone.
func full(typ string) bool { return typ == Listener || typ == Cluster || typ == scoped }

// legacy: no names ask for everything.
func legacy(typ string) bool { return full(typ) }

// subscription is what a stream asks for of a type.
type subscription struct {
	spoken bool
	brings bool // it had something of the type on an earlier stream
	named  bool // names were given, ever
	wild   bool
	names  map[string]bool
}

// ask takes a request, and returns the names that are no longer asked for.
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
