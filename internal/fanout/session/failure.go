package session

import (
	"slices"

	"xdsrelay/internal/xds"
)

// What an origin says of a name instead of giving the resource (P39) is said
// once to each client that asks for the name, and is over with the next
// resource. Which of the two a client was given last is what decides: so where
// both are news the resource goes first, and the error with the next response.

// clears: the next resource, changed or not, tells a client that what it heard
// instead is over (P39).
func clears(told, now *xds.ResourceError, is xds.Presence) bool {
	return told != nil && now == nil && is == xds.Present
}

// part takes out errors of names whose resource is in the same response: a
// client would have to guess which of the two came later. They follow. A
// full-state response holds both, since it has to hold every resource.
func (c *Content) part() {
	if c.full || len(c.Errors) == 0 {
		return
	}
	in := make(map[string]struct{}, len(c.Changed))
	for _, r := range c.Changed {
		in[r.Name] = struct{}{}
	}
	c.Errors = slices.DeleteFunc(slices.Clone(c.Errors), func(e *xds.ResourceError) bool {
		_, both := in[e.Name]
		if both {
			c.Later = append(c.Later, e.Name)
		}
		return both
	})
}

// told is what the client has been told last of an error of name (P39).
func (s *Session) told(name string) *xds.ResourceError {
	if e, ok := s.delivered.errors[name]; ok {
		return e
	}
	return s.base().error(s.sub.effective, name)
}

// owe has the errors follow that could not stand beside their resources (P39).
func (s *Session) owe(frame *Manifest) {
	for _, name := range frame.Later {
		s.warn(name, nil)
	}
}

func (s *Session) warn(name string, e *xds.ResourceError) {
	if s.delivered.errors == nil {
		s.delivered.errors = make(map[string]*xds.ResourceError)
	}
	s.delivered.errors[name] = e
}

// warning puts the error of name into the plan, if there is one. It reports
// whether that is all there is to say of the name.
func (s *Session) warning(name string, cur *xds.Snapshot, p *Plan) (all bool) {
	e := cur.Error(s.sub.effective, name)
	if e == nil {
		return false
	}
	p.content.Errors = append(p.content.Errors, e)
	if _, fresh := s.forced.names[name]; fresh || s.isRefused(name) {
		return false
	}
	resource, _ := s.difference(name, cur)
	return !resource
}
