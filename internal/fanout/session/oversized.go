package session

// Oversized is a response that is not sent because it is too large (P38).
type Oversized struct {
	Version string `json:"version"`
	Bytes   int    `json:"bytes"`
}

// stuck is a response that is not sent because it is too large.
type stuck struct {
	key FrameKey
	to  Mark
	Oversized
}

// Stuck records that the plan's response is too large. It is not made again before
// the snapshot or the subscription is another one.
func (s *Session) Stuck(p *Plan) { s.delivered.tooLarge = &stuck{p.Key, MarkOf(p.To), *p.Oversized} }

func (s *Session) isStuck(p *Plan) bool {
	return s.delivered.tooLarge != nil && p.Key == s.delivered.tooLarge.key && MarkOf(p.To) == s.delivered.tooLarge.to
}

// Unsent is the response that is not sent because it is too large; nil: there is none.
func (s *Session) Unsent() *Oversized {
	if s.delivered.tooLarge == nil {
		return nil
	}
	return &s.delivered.tooLarge.Oversized
}
