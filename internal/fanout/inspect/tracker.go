package inspect

import (
	"time"

	"xdsrelay/internal/fanout/member"
	"xdsrelay/internal/fanout/session"
)

// Tracker notes what happens to one type of a stream, for its status: times, counts, and the last
// refusal. It also counts the stream for the progress of each version. It is used under the
// stream's lock.
type Tracker struct {
	began     time.Time // when the type first spoke
	requested time.Time // when it began to ask for what it asks for now
	answered  time.Time // when the last ACK or NACK came; zero: none did

	sent, acks, nacks uint64
	version           string       // that was sent last
	nack              *member.Nack // the last refusal; nil: none

	// counted are the IDs of the versions for which the stream was counted.
	counted struct{ sent, acked, refused uint32 }
}

// NewTracker returns the tracker of a type that speaks first now.
func NewTracker(now time.Time) Tracker { return Tracker{began: now} }

// Began is when the type first spoke.
func (t *Tracker) Began() time.Time { return t.began }

// EverSent reports whether a response was sent.
func (t *Tracker) EverSent() bool { return t.sent > 0 }

// Asked notes that the client asks for something else from now on.
func (t *Tracker) Requested(now time.Time) { t.requested = now }

// Sent notes a response that is sent, of this version. The session has moved already.
func (t *Tracker) Sent(p *session.Plan, version string) {
	t.sent++
	t.version = version
	if v := p.To.Progress; v != nil && !p.BeforeACK && t.counted.sent != v.ID() {
		t.counted.sent = v.ID()
		v.Send()
	}
}

// Acked notes an ACK.
func (t *Tracker) Acked(out *session.Outcome, now time.Time) {
	t.acks++
	t.answered = now
	v := out.Progress
	if v == nil || t.counted.acked == v.ID() {
		return
	}
	t.counted.acked = v.ID()
	v.Ack()
	// The time says nothing for a version that was there when the client came, or that the
	// client asked for later.
	if out.News && v.At.After(t.began) {
		v.AckTime(now.Sub(v.At))
	}
}

// Nacked notes a NACK. The caller may set n's message later, under the same lock.
func (t *Tracker) Nacked(out *session.Outcome, n *member.Nack, now time.Time) {
	t.nacks++
	t.nack, t.answered = n, now
	if v := out.Progress; v != nil && t.counted.refused != v.ID() {
		t.counted.refused = v.ID()
		v.Refuse()
	}
}

// refusedAt is when the refusal came that stands.
func (t *Tracker) nackedAt() time.Time {
	if t.nack == nil {
		return t.began
	}
	return t.nack.At
}

// lastNack returns a copy of the last refusal; nil: none.
func (t *Tracker) lastNack() *member.Nack {
	if t.nack == nil {
		return nil
	}
	n := *t.nack
	return &n
}
