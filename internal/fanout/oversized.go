package fanout

import (
	"slices"

	"xdsrelay/internal/xds"
)

// Oversized is what could not be sent for its size (P38), for people to read.
type Oversized struct {
	Version string `json:"version"`
	Bytes   int    `json:"bytes"`
	// Resource that alone is too large; empty: it is the whole response.
	Resource string `json:"resource,omitempty"`

	next *Oversized // another resource; nil: there is none
	had  bool       // the client has an older one of it, as far as it took that
}

// unsendable reports whether nothing of the response can be sent.
func (p *Plan) unsendable() bool { return p.oversized != nil && p.oversized.Resource == "" }

// stuck is a full-state response that is not sent for its size.
type stuck struct {
	key frameKey
	to  mark
}

// Stuck records that the plan's response is too large and cannot be split: it is
// not made again before it would be another.
func (s *Session) Stuck(p *Plan) { s.stuck = &stuck{p.key, markOf(p.to)} }

func (s *Session) isStuck(p *Plan) bool {
	return s.stuck != nil && p.key == s.stuck.key && markOf(p.to) == s.stuck.to
}

// maxMisfits bounds how many resources that are too large are told apart, of a
// type of a stream.
const maxMisfits = 8

// oversizedBy is what is not sent for its size once the plan went out as f. It is
// asked before the session moves.
func (s *Session) oversizedBy(p *Plan, f *Frame) *Oversized {
	if s.oversized == nil && p.oversized == nil {
		return nil
	}
	if p.unsendable() {
		return p.oversized
	}
	var all []Oversized
	for o := p.oversized; o != nil && len(all) < maxMisfits; o = o.next {
		now := *o
		if was := s.misfit(o.Resource); was != nil {
			now.had = was.had
		} else {
			_, was := s.had(o.Resource)
			now.had = was == xds.Present
		}
		all = append(all, now)
	}
	for o := s.oversized; o != nil && len(all) < maxMisfits; o = o.next {
		if o.Resource == "" {
			continue // something took its place
		}
		_, again := slices.BinarySearch(f.names, o.Resource)
		if !again && !slices.ContainsFunc(all, func(n Oversized) bool { return n.Resource == o.Resource }) {
			all = append(all, *o)
		}
	}
	var first *Oversized
	for i := range slices.Backward(all) {
		all[i].next = first
		first = &all[i]
	}
	return first
}

// unsent is what of the newest is not sent for its size; nil: nothing.
func (s *Session) unsent() *Oversized {
	for o := s.oversized; o != nil; o = o.next {
		if o.Resource == "" || s.misses(o) {
			return o
		}
	}
	return nil
}

// lacks reports whether the client was sent all but a resource that is too large:
// the session has moved on, and the client has no such version.
func (s *Session) lacks() bool {
	o := s.unsent()
	return o != nil && o.Resource != ""
}

// misses reports whether there is such a resource still, that the client asks for.
func (s *Session) misses(o *Oversized) bool {
	if !s.sub.Covers(o.Resource) {
		return false
	}
	_, was := s.had(o.Resource)
	return was == xds.Present
}

// misfit is what is known of name's being too large; nil: it is not.
func (s *Session) misfit(name string) *Oversized {
	for o := s.oversized; o != nil; o = o.next {
		if o.Resource == name && name != "" {
			return o
		}
	}
	return nil
}

// report tells of what was not sent for its size: each client counts, and of a
// snapshot it is said once.
func (st *stream) report(sl *slot, p *Plan) {
	sl.meters.Oversized.Inc()
	if framesOf(p.to).told.Swap(true) {
		return
	}
	what := "a response that cannot be split is not sent: it is too large"
	if !p.unsendable() {
		what = "a resource is not sent: it is too large for a response"
	}
	st.srv.log.Error(what, "key", sl.member.Key().String(), "type", sl.typ.URL, "variant", st.variant.String(),
		"version", p.oversized.Version, "resource", p.oversized.Resource, "bytes", p.oversized.Bytes, "limit", p.limit)
}
