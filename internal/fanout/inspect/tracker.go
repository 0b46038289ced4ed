package inspect

import (
	"time"

	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/xds"
)

// Tracker records what happens to one type of a stream, for its status: times, counts, and the last
// NACK. It also counts the stream for the progress of each version. It is used under the stream's
// lock.
type Tracker struct {
	began      time.Time // when the type's first request came
	sent, acks uint64
	version    string // that was sent last
	// counted are the IDs of the versions for which the stream was counted.
	counted  struct{ sent, acked, nacked uint32 }
	answered time.Time // when the last ACK or NACK came; zero: none did
	nacks    uint64

	waiting   bool             // the origin had not answered something when the state was last looked at
	sotw      bool             // the variant
	changed   bool             // the client has changed its subscription since its first request
	requested time.Time        // when the subscription last changed while it was not waiting
	nack      *subscriber.Nack // the last one; nil: none
}

// NewTracker returns the tracker of a type whose first request comes now.
func NewTracker(now time.Time) Tracker { return Tracker{began: now} }

// Began is when the type's first request came.
func (t *Tracker) Began() time.Time { return t.began }

// EverSent reports whether a response was sent.
func (t *Tracker) EverSent() bool { return t.sent > 0 }

// Requested records that the client requests something else from now on. A client that waits for
// the origin's answer goes on waiting, because the change may have nothing to do with the name that
// it waits for.
func (t *Tracker) Requested(now time.Time, variant xds.Variant) {
	t.sotw, t.changed = variant == xds.SotW, t.changed || !t.requested.IsZero()
	if !t.waiting {
		t.requested = now
	}
}

// Sent records a response of this version. The session has moved already.
func (t *Tracker) Sent(p *session.Plan, version string) {
	t.sent++
	t.version = version
	if v := p.To.Progress; v != nil && !p.BeforeACK && t.counted.sent != v.ID() {
		t.counted.sent = v.ID()
		v.Send()
	}
}

// Acked records an ACK.
func (t *Tracker) Acked(out *session.Outcome, now time.Time) {
	t.acks++
	t.answered = now
	v := out.Progress
	if v == nil || t.counted.acked == v.ID() {
		return
	}
	t.counted.acked = v.ID()
	v.Ack()
	// The time says nothing for a version that is older than the stream, or whose resources the
	// client requested later.
	if out.News && v.At.After(t.began) {
		v.AckTime(now.Sub(v.At))
	}
}

// Nacked records a NACK. The caller may set n's message later, under the same lock.
func (t *Tracker) Nacked(out *session.Outcome, n *subscriber.Nack, now time.Time) {
	t.nacks++
	t.nack, t.answered = n, now
	if v := out.Progress; v != nil && t.counted.nacked != v.ID() {
		t.counted.nacked = v.ID()
		v.Nack()
	}
}

// nackedAt is when the last NACK came.
func (t *Tracker) nackedAt() time.Time {
	if t.nack == nil {
		return t.began
	}
	return t.nack.At
}

// lastNack returns a copy of the last NACK; nil: none.
func (t *Tracker) lastNack() *subscriber.Nack {
	if t.nack == nil {
		return nil
	}
	n := *t.nack
	return &n
}
