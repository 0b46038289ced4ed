package fanout

// MaxResponse is the largest response that is sent, in bytes (P59), unless
// Options say otherwise.
const MaxResponse = 256 << 20

// nonceSize is what a nonce adds to a body, at most.
const nonceSize = 2 + prefixLen + 13

// Oversized is a response that is not sent because it is too large (P38).
type Oversized struct {
	Version string `json:"version"`
	Bytes   int    `json:"bytes"`
}

// made is what came of a plan: the frame, without body if there is nothing to
// send, or the size of a response that is too large.
type made struct {
	frame     *Frame
	oversized *Oversized
}

// take notes what came of the plan.
func (p *Plan) take(m made) *Frame {
	p.oversized = m.oversized
	return m.frame
}

// make makes the response of a difference, if it is not too large. Its size is known
// before anything is encoded.
func (fc *frameCache) make(p *Plan, replica string, c content) made {
	if size := c.body(p, replica).Size() + nonceSize; size > p.limit {
		return made{frame: emptyFrame, oversized: &Oversized{Version: p.to.Version, Bytes: size}}
	}
	return made{frame: fc.share(p, replica, c)}
}

// stuck is a response that is not sent because it is too large.
type stuck struct {
	key frameKey
	to  mark
	Oversized
}

// Stuck records that the plan's response is too large. It is not made again before
// the snapshot or the subscription is another one.
func (s *Session) Stuck(p *Plan) { s.stuck = &stuck{p.key, markOf(p.to), *p.oversized} }

func (s *Session) isStuck(p *Plan) bool {
	return s.stuck != nil && p.key == s.stuck.key && markOf(p.to) == s.stuck.to
}

// unsent is the response that is not sent because it is too large; nil: there is none.
func (s *Session) unsent() *Oversized {
	if s.stuck == nil {
		return nil
	}
	return &s.stuck.Oversized
}

// report tells of a response that is too large. Each client counts. The log has one
// line for a snapshot.
func (st *stream) report(sl *slot, p *Plan) {
	sl.meters.Oversized.Inc()
	if framesOf(p.to).told.Swap(true) {
		return
	}
	st.srv.log.Error("response not sent: it is too large", "key", sl.member.Key().String(), "type", sl.typ.URL,
		"variant", st.variant.String(), "version", p.oversized.Version, "bytes", p.oversized.Bytes, "limit", p.limit)
}
