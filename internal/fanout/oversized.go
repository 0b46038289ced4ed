package fanout

import "slices"

// Oversized is what could not be sent for its size (P38), for people to read.
type Oversized struct {
	Version string `json:"version"`
	Bytes   int    `json:"bytes"`
	// Resource that alone is too large; empty: it is the whole response.
	Resource string `json:"resource,omitempty"`
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

// note keeps for status what the plan could not send, until something took its
// place. Under the stream's lock.
func (s *slot) note(p *Plan, f *Frame) {
	was := s.oversized
	switch {
	case p.oversized != nil:
		s.oversized = p.oversized
	case f.Empty() || was == nil:
	case was.Resource == "":
		s.oversized = nil
	default:
		if _, again := slices.BinarySearch(f.names, was.Resource); again {
			s.oversized = nil
		}
	}
}

// unsent is what status shows of it. Under the stream's lock.
func (s *slot) unsent() *Oversized {
	if o := s.oversized; o != nil && (o.Resource == "" || s.sub.Covers(o.Resource)) {
		return o
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
