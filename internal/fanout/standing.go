package fanout

import (
	"iter"
	"slices"
	"time"

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
		if sl.member == nil || !wanted(sl.member.Key(), sl.typ.URL) {
			continue
		}
		at := sl.stands(look)
		out := Standing{
			Key: sl.member.Key(), Type: sl.typ.URL, Stream: st.id, Node: st.node.ID, Host: host(st.from),
			State: at.state, Since: at.since, Lineage: at.lineage, Has: at.has,
		}
		if at.state == Refused && sl.nack != nil {
			n := *sl.nack
			out.Nack, out.Final = &n, !at.unsent && len(sl.flights) == 0
		}
		to = append(to, out)
	}
	return to
}

// survey is one look at many sessions. Sessions that are equal in what they subscribe to and
// what they were sent are compared with the newest snapshot once.
type survey struct {
	now   time.Time
	seen  map[alike]bool
	waits map[asker]bool
}

func newSurvey() *survey {
	return &survey{now: time.Now(), seen: make(map[alike]bool), waits: make(map[asker]bool)}
}

// asker is a subscription and the newest snapshot for it.
type asker struct {
	sub *xds.Subscription
	to  mark
}

// alike is what a session's having anything to send follows from, if it is in step
// with what it was sent.
type alike struct {
	sub      *xds.Subscription
	form     xds.Form
	full     bool
	from, to mark
}

// maxAlike bounds what a survey remembers.
const maxAlike = 1 << 16

// pending is the session's Pending of what is newest. Under the stream's lock.
func (v *survey) pending(s *Session, newest *xds.Snapshot) bool {
	plain := !s.owed && s.fresh == nil && s.early == nil && s.warned == nil && s.awaits == nil && !s.anew
	if !plain {
		return s.Pending(newest)
	}
	if s.sent == newest {
		return false
	}
	k := alike{s.sub, s.form, s.full(), markOf(s.sent), markOf(newest)}
	if is, ok := v.seen[k]; ok {
		return is
	}
	is := s.Pending(newest)
	if len(v.seen) < maxAlike {
		v.seen[k] = is
	}
	return is
}

// unsent reports whether something of the newest is for the session that it was not sent.
// Under the stream's lock.
func (v *survey) unsent(s *Session, newest *xds.Snapshot) bool {
	return s.stuck != nil || v.pending(s, newest) || s.silent(newest) && s.wants(newest)
}

// wants reports whether any name that it asks for is there.
func (s *Session) wants(newest *xds.Snapshot) bool {
	for name := range s.sub.Names.All() {
		if _, is := newest.Look(s.sub, name); is == xds.Present || is == xds.Elsewhere {
			return true
		}
	}
	return false
}

// awaiting reports whether the slot asks for anything of which the origin has said
// nothing, and the client was sent nothing. Once that is not so it stays so for what it
// asks for, but for what lapses (P62). Under the stream's lock.
func (v *survey) awaiting(s *slot, newest *xds.Snapshot) bool {
	if newest != nil && s.settled == newest.Lineage && !newest.AnyLapsed() {
		return false
	}
	if v.unknown(s.sub, newest) {
		for range s.unheard(newest) {
			return true
		}
	}
	if newest != nil {
		s.settled = newest.Lineage
	}
	return false
}

// unknown reports whether there are any names that awaits yields.
func (v *survey) unknown(sub *xds.Subscription, newest *xds.Snapshot) bool {
	k := asker{sub, markOf(newest)}
	is, ok := v.waits[k]
	if !ok {
		is = awaitsAny(sub, newest)
		if len(v.waits) < maxAlike {
			v.waits[k] = is
		}
	}
	return is
}

// unheard are the names that awaits yields of which the client was sent nothing either.
func (s *Session) unheard(newest *xds.Snapshot) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range awaits(s.sub, newest) {
			if name == wildcard {
				if at := s.sent; at.AnswersWildcard(s.sub) {
					continue
				}
			} else if _, was := s.had(name); was != xds.Pending && was != xds.Lapsed {
				continue
			}
			if !yield(name) {
				return
			}
		}
	}
}

// awaits yields the names, "*" for the wildcard, that sub asks for and that the origin has not
// answered yet.
func awaits(sub *xds.Subscription, newest *xds.Snapshot) iter.Seq[string] {
	return func(yield func(string) bool) {
		if sub.Wildcard && !newest.AnswersWildcard(sub) && !yield(wildcard) {
			return
		}
		for name := range sub.Names.All() {
			_, is := newest.Look(sub, name)
			if (is == xds.Pending || is == xds.Lapsed) && (newest == nil || newest.Error(sub, name) == nil) && !yield(name) {
				return
			}
		}
	}
}

func awaitsAny(sub *xds.Subscription, newest *xds.Snapshot) bool {
	for range awaits(sub, newest) {
		return true
	}
	return false
}

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
		at.unsent = look.unsent(&s.Session, newest)
	}
	refusing := s.refusing()
	at.has = s.hasOf(newest, at.unsent || refusing || len(s.flights) > 0)
	switch {
	case refusing:
		at.state, at.since = Refused, s.refusedAt()
	case len(s.flights) > 0:
		at.state, at.since = Unanswered, s.flights[0].at
	case s.counts.sent == 0 && (at.unsent || !s.Session.began):
		at.state, at.since = NotSent, s.began
	case at.unsent:
		at.state, at.since = Unanswered, s.cameAt(newest)
	case look.awaiting(s, newest):
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

// hasOf is the newest generation of which the client has everything that is for it; 0: none.
// open: it is to be sent something of the newest, or has to answer, or refuses something.
func (s *Session) hasOf(newest *xds.Snapshot, open bool) uint64 {
	switch {
	case newest == nil || !s.began:
		return 0
	case !open:
		return newest.Gen
	case s.has.lineage != newest.Lineage:
		return 0
	}
	has := s.has.gen
	for i := range s.refused {
		if r := &s.refused[i]; s.asked(r) {
			has = min(has, r.gen-1)
		}
	}
	return has
}

// refusing reports whether the client refused something that it is still to have.
func (s *Session) refusing() bool {
	if s.sub.Empty() {
		return false
	}
	return s.refuses && s.full() || slices.ContainsFunc(s.refused, func(r refusal) bool { return s.asked(&r) })
}

// counted are the versions for which the stream was counted, by their ids.
type counted struct{ sent, acked, refused uint32 }

// sending counts a response that is sent. Under the stream's lock, when the session
// has moved.
func (s *slot) sending(p *Plan) {
	if v := p.to.Progress; v != nil && !p.early && s.counted.sent != v.ID() {
		s.counted.sent = v.ID()
		v.Send()
	}
}

// answering counts an answer. Under the stream's lock.
func (s *slot) answering(out *Outcome, now time.Time) {
	v := out.progress
	if v == nil {
		return
	}
	switch {
	case out.Verdict == Acked && s.counted.acked != v.ID():
		s.counted.acked = v.ID()
		v.Ack()
		// The time says nothing for a version that was there when the client came, or that
		// it asked for later.
		if out.news && v.At.After(s.began) {
			v.Time(now.Sub(v.At))
		}
	case out.Verdict == Nacked && s.counted.refused != v.ID():
		s.counted.refused = v.ID()
		v.Refuse()
	}
}
