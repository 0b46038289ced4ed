package check

import (
	"maps"
	"slices"
)

// holds checks what a client holds of a type at a rest. It must be the current content of the first
// or of the second origin for everything that it subscribes to.
func (c *checker) holds(e *Event) {
	s := c.stream(e)
	if s == nil || s.closedN > 0 {
		c.violate(RuleNewest, &stream{client: e.Client, id: e.Stream, key: e.Key}, e, e.Type, "", 0, "at rest it has no stream")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(e.Resources)) {
		if came := c.received[e.Client][[2]string{e.Type, name}]; came != e.Resources[name] {
			c.violate(RuleNewest, s, e, e.Type, name, s.opened, "at rest it has %s, and what it received last since %s is %s", short(e.Resources[name]), clock(s.opened), some(came))
		}
	}
	var least []Violation
	for o := range c.origins {
		before := len(c.found)
		c.against(s, e, o)
		found := slices.Clone(c.found[before:])
		c.found = c.found[:before]
		if len(found) == 0 {
			return
		}
		if least == nil || len(found) < len(least) {
			least = found
		}
	}
	c.found = append(c.found, least...)
}

// against compares with one origin.
func (c *checker) against(s *stream, e *Event, o int) {
	sub := s.sub(e.Type)
	newest := make(map[string]string)
	for _, name := range c.names[[2]string{s.key, e.Type}] {
		newest[name] = c.last(resource{s.key, e.Type, name}, o).content
	}
	received := make(map[string]bool)
	for r := range s.received {
		received[r.name] = received[r.name] || r.typ == e.Type
	}
	w := Wants{Received: received, Type: e.Type, Names: slices.Collect(maps.Keys(sub.names)), Wild: sub.wild, Variant: s.variant, Upstream: c.upstream[s.relay]}
	for _, l := range w.Lacks(e.Resources, newest) {
		at := c.last(resource{s.key, e.Type, l.Name}, o).t
		c.violate(RuleNewest, s, e, e.Type, l.Name, at, "at rest it has %s, and %s has %s since %s", some(l.Has), c.origins[o], some(l.Newest), clock(at))
	}
}

// last returns the newest state of an origin.
func (c *checker) last(r resource, o int) state {
	l := c.of(r)[o]
	return l[len(l)-1]
}

func some(content string) string {
	if content == "" {
		return "nothing"
	}
	return short(content)
}

// Wants is a client's subscription to a type. Variant is the client's own, Upstream that of its
// relay. Received are the names that were added or removed on its stream.
type Wants struct {
	Type              string
	Names             []string
	Wild              bool
	Variant, Upstream string
	Received          map[string]bool
}

// Lack is a name for which a client does not have the newest content. Empty means none.
type Lack struct{ Name, Has, Newest string }

// Lacks compares what is held with the newest contents.
func (w Wants) Lacks(held, newest map[string]string) []Lack {
	asked := make(map[string]bool)
	for _, name := range w.Names {
		asked[name] = true
	}
	if w.Wild {
		for name := range newest {
			asked[name] = true
		}
	}
	for name := range held {
		asked[name] = true
	}
	// If one side is SotW, a removed resource may stay until its parent changes (P60).
	stays := !full(w.Type) && (w.Upstream == SotW || w.Variant == SotW && !w.Wild)
	var out []Lack
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		// A resource that a client resumed with from another relay may be unknown to this one. An
		// origin's silence does not mean that it does not exist (P57), also in SotW (P65).
		unknown := !w.Wild && !w.Received[name]
		if held[name] != newest[name] && (newest[name] != "" || !stays && !unknown) {
			out = append(out, Lack{name, held[name], newest[name]})
		}
	}
	return out
}
