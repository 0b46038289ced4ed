package fanout

import (
	"iter"
	"time"

	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/xds"
)

// Standing is where a type of a stream stands: which versions its client has.
type Standing struct {
	Key    xds.Key
	Type   xds.TypeURL
	Stream uint64
	Node   string
	Host   string // the peer's
	State  string
	Since  time.Time // of the state
	// Has is the newest generation of the key's type that the client acknowledged, or in
	// which nothing is for it that it was not sent; Lineage is that of the generations.
	// Where a refusal stands it is older than what was refused. 0: none.
	Lineage, Has uint64
	// Nack is the refusal that stands; nil: none does. Final: no response that could end
	// it is to be sent, or is unanswered.
	Nack  *Nack
	Final bool
}

// Standings are those of all streams, and of all that poll, whose key and type are
// wanted. One stream is locked at a time, for a few words.
func (s *Server) Standings(wanted func(xds.Key, xds.TypeURL) bool) iter.Seq[Standing] {
	return func(yield func(Standing) bool) {
		look := newSurvey()
		var found []Standing
		for _, st := range s.all() {
			found = st.appendStandings(look, wanted, found[:0])
			for _, f := range found {
				if !yield(f) {
					return
				}
			}
		}
		for _, p := range s.pollers.all() {
			if wanted(p.member.Key(), p.typ.URL) && !yield(s.pollers.standing(p)) {
				return
			}
		}
	}
}

func (st *stream) appendStandings(look *survey, wanted func(xds.Key, xds.TypeURL) bool, to []Standing) []Standing {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, sl := range st.order {
		if sl.member == nil || !wanted(sl.member.Key(), sl.Type.URL) {
			continue
		}
		at := sl.stands(look)
		out := Standing{
			Key: sl.member.Key(), Type: sl.Type.URL, Stream: st.id, Node: st.node.ID, Host: listener.Host(st.from),
			State: at.state, Since: at.since, Lineage: at.lineage, Has: at.has,
		}
		if at.state == Refused && sl.nack != nil {
			n := *sl.nack
			out.Nack, out.Final = &n, !at.unsent && !sl.AwaitsAnswer()
		}
		to = append(to, out)
	}
	return to
}

// survey is one look at many sessions.
type survey struct {
	session.Survey
	now time.Time
}

func newSurvey() *survey { return &survey{session.NewSurvey(), time.Now()} }

// place is where a session stands.
type place struct {
	state        string
	since        time.Time
	unsent       bool // something of the newest is for it that it was not sent
	lineage, has uint64
}

// stands says where the slot stands. Under the stream's lock.
func (s *slot) stands(look *survey) place {
	newest := s.coming()
	var at place
	if newest != nil {
		at.lineage = newest.Lineage
		at.unsent = look.Unsent(&s.Session, newest)
	}
	refusing := s.Refusing()
	at.has = s.AckedGeneration(newest, at.unsent || refusing || s.AwaitsAnswer())
	switch {
	case refusing:
		at.state, at.since = Refused, s.refusedAt()
	case s.AwaitsAnswer():
		at.state, at.since = Unanswered, s.UnansweredSince()
	case s.counts.sent == 0 && (at.unsent || !s.Began()):
		at.state, at.since = NotSent, s.began
	case at.unsent:
		at.state, at.since = Unanswered, s.cameAt(newest)
	case look.Awaiting(&s.Session, newest):
		at.state, at.since = NotSent, s.asked
	default:
		at.state, at.since = Synced, s.began
		if s.answered.After(at.since) {
			at.since = s.answered
		}
	}
	return at
}

// coming is the newest snapshot, be it on its way to the stream's State yet.
func (s *slot) coming() *xds.Snapshot {
	if s.member == nil {
		return nil
	}
	return s.member.Newest()
}

// refusedAt is when the refusal was made that stands.
func (s *slot) refusedAt() time.Time {
	if s.nack == nil {
		return s.began
	}
	return s.nack.At
}

// cameAt is when that came which was not sent: the newest of it, or the client.
func (s *slot) cameAt(newest *xds.Snapshot) time.Time {
	at := s.began
	if r := newest.Progress; r != nil && r.At.After(at) {
		at = r.At
	}
	return at
}

// counted are the versions for which the stream was counted, by their ids.
type counted struct{ sent, acked, refused uint32 }

// sending counts a response that is sent. Under the stream's lock, when the session
// has moved.
func (s *slot) sending(p *session.Plan) {
	if v := p.To.Progress; v != nil && !p.BeforeACK && s.counted.sent != v.ID() {
		s.counted.sent = v.ID()
		v.Send()
	}
}

// answering counts an answer. Under the stream's lock.
func (s *slot) answering(out *session.Outcome, now time.Time) {
	v := out.Progress
	if v == nil {
		return
	}
	switch {
	case out.Answer == session.Acked && s.counted.acked != v.ID():
		s.counted.acked = v.ID()
		v.Ack()
		// The time says nothing for a version that was there when the client came, or that
		// it asked for later.
		if out.News && v.At.After(s.began) {
			v.Time(now.Sub(v.At))
		}
	case out.Answer == session.Nacked && s.counted.refused != v.ID():
		s.counted.refused = v.ID()
		v.Refuse()
	}
}
