package fanout

import (
	"time"

	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// slot is one type of one stream: its session with what surrounds it. Its
// number on the stream is its dirty bit.
type slot struct {
	session.Session // under the stream's lock, but for what Subscribe says

	st     *stream
	node   *xds.Node // as it was when the type first spoke (P1)
	bit    uint64
	member Member // nil: the type stays unanswered (P5, P6)
	meter
	began time.Time

	// Under the stream's lock.
	epoch  uint64      // counts requests, so that a plan is not applied to a session that moved on
	alarm  time.Time   // when the slot is looked at again; zero: not set
	timer  *time.Timer // of the alarm; nil: it was never set
	counts slotCounts
	lacks  bool // nothing of what it asks for can be had now (P53)
	// version that was sent last.
	version string
	// marks are where this type stood when a type that warms was last sent, by
	// that type's order (P19).
	marks    [warmers]session.SnapshotID
	nack     *Nack     // the last refusal; nil: none
	answered time.Time // when the last answer came; zero: none did
	asked    time.Time // when it asked for what it asks for now
	counted  counted
}

// meter is where what becomes of a member is counted: looked up once, when it
// joins, and not for each message. It is released when the member has left.
type meter struct {
	perKey *telemetry.Key
	meters *telemetry.Type
}

func (s *Server) meter(key xds.Key, url xds.TypeURL) meter {
	of := s.meters.Key(key)
	return meter{of, of.Type(url)}
}

// uncounted is of who is in no group.
var uncounted telemetry.Type

// warmers is one more than the order of the last type that warms.
const warmers = 2

// slotCounts are of the responses on this stream.
type slotCounts struct{ sent, acks, nacks uint64 }

// Wake implements Waker.
func (s *slot) Wake() { s.st.wake(s.bit) }

// Lack implements Waker.
func (s *slot) Lack(r *Refusal) {
	st := s.st
	st.mu.Lock()
	s.lacks = r != nil
	all := s.lacks
	for _, o := range st.slots {
		all = all && (o.lacks || o.member == nil || o.Requested().Empty())
	}
	st.mu.Unlock()
	if all {
		st.end(r)
	}
}

// End implements Waker.
func (s *slot) End(r *Refusal) { s.st.end(r) }

// wakeAt has the slot looked at again at the time (P19, P67). Under the stream's lock.
func (s *slot) wakeAt(at time.Time) {
	s.alarm = at
	if s.timer == nil {
		s.timer = time.AfterFunc(time.Until(at), s.ring)
	} else {
		s.timer.Reset(time.Until(at))
	}
}

// ring is called when the alarm is due.
func (s *slot) ring() {
	s.st.mu.Lock()
	s.alarm = time.Time{}
	s.st.mu.Unlock()
	s.Wake()
}

// snapshot is the newest that the member sees.
func (s *slot) snapshot() *xds.Snapshot {
	if s.member == nil {
		return nil
	}
	return s.member.State().Snapshot(s.Type.URL)
}
