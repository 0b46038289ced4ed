package inspect

import (
	"time"

	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// TypeState says which versions of a type a client has.
type TypeState struct {
	Key    xds.Key
	Type   xds.TypeURL
	Stream uint64
	Node   string
	Host   string // the peer's
	// Conn identifies the connection of a stream; nil: the client polls. Names identifies what the
	// client requests of the type.
	Conn  any
	Names uint64
	State string
	Since time.Time // of the state
	// WaitingSince is since when the client has been NOT SENT or UNCONFIRMED because the origin has not answered
	// something; zero: it is not. It is not exact: the relay looks every ten seconds.
	WaitingSince time.Time
	// Oversized: the newest response is not sent because it is too large (P38).
	Oversized bool
	// Has is the newest generation of the key's type of which the client has all that it requests;
	// 0: none. It is older than a generation that the client rejected. Lineage is the lineage of
	// the generations.
	Lineage, Has uint64
	// Nack is the NACK that holds; nil: none. Final: no response that could end it is to be sent,
	// or is in flight.
	Nack  *subscriber.Nack
	Final bool
}

// Survey looks at many clients at one time. It shares results between sessions.
type Survey struct {
	session.ComparisonCache
	Now time.Time

	node   string      // whose states are in states
	states []TypeState // see markOlder
}

func newSurvey() *Survey {
	return &Survey{ComparisonCache: session.NewComparisonCache(), Now: time.Now()}
}

// StreamType is one type of a stream. It is used under the stream's lock.
type StreamType struct {
	Session    *session.Session
	Subscriber subscriber.Subscriber // nil: the type gets no response
	NoKey      string                // the reason why Subscriber is nil; empty: it has no request yet
	*Tracker
}

type typeState struct {
	state        string
	since        time.Time
	unsent       bool // the newest snapshot has something for it that was not sent
	waiting      bool // it is NOT SENT or UNCONFIRMED because the origin has not answered something
	lineage, has uint64
}

func (t StreamType) state(look *Survey) typeState {
	newest := t.newest()
	var at typeState
	if newest != nil {
		at.lineage = newest.Lineage
		at.unsent = look.Unsent(t.Session, newest)
	}
	s := t.Session
	nacked := s.NacksSomething()
	at.has = s.AckedGeneration(newest, at.unsent || nacked || s.PendingACK())
	switch {
	case nacked:
		at.state, at.since = StateNacked, t.nackedAt()
	case s.PendingACK():
		at.state, at.since = StateStale, s.PendingACKSince()
	case t.sent == 0 && (at.unsent || !s.Began()):
		at.state, at.since = StateNotSent, t.began
	case at.unsent:
		at.state, at.since = StateStale, t.since(newest)
	case look.AnyUnanswered(s, newest):
		t.waiting = true
		at.state, at.since, at.waiting = StateNotSent, t.requested, true
		if t.unconfirmed(newest) {
			at.state, at.has = StateUnconfirmed, 0
		}
	default:
		t.waiting = false
		at.state, at.since = StateSynced, t.began
		if t.answered.After(at.since) {
			at.since = t.answered
		}
	}
	return at
}

// unconfirmed reports whether the client brought all that the origin has not answered, and was sent
// nothing.
func (t StreamType) unconfirmed(newest *snapshot.Snapshot) bool {
	s := t.Session
	if t.sent > 0 || !s.Resumes() {
		return false
	}
	if t.sotw {
		return !t.changed // it has stated one version for all names
	}
	for name := range s.UnansweredNames(newest) {
		if name != "*" && !s.Brought(name) {
			return false
		}
	}
	return true
}

// newest is the newest snapshot. It may be newer than that of the State that the stream sees.
func (t StreamType) newest() *snapshot.Snapshot {
	if t.Subscriber == nil {
		return nil
	}
	return t.Subscriber.Newest()
}

// since is when both the newest snapshot and the client were there.
func (t StreamType) since(newest *snapshot.Snapshot) time.Time {
	if v := newest.Progress; v != nil && v.At.After(t.began) {
		return v.At
	}
	return t.began
}

// TypeState returns the state of the type, without that of its stream. The type has a subscriber.
func (t StreamType) TypeState(look *Survey) TypeState {
	at := t.state(look)
	out := TypeState{
		Key: t.Subscriber.Key(), Type: t.Session.Type.URL, Names: namesOf(t.Session.Requested()),
		State: at.state, Since: at.since, Lineage: at.lineage, Has: at.has,
		Oversized: t.Session.Oversized() != nil,
	}
	if at.waiting {
		out.WaitingSince = at.since
	}
	if at.state == StateNacked && t.nack != nil {
		out.Nack, out.Final = t.lastNack(), !at.unsent && !t.Session.PendingACK()
	}
	return out
}

// namesOf identifies what a subscription requests.
func namesOf(s *snapshot.Subscription) uint64 {
	sum := s.Names.Sum() << 1
	if s.Wildcard {
		sum |= 1
	}
	return sum
}
