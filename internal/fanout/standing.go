package fanout

import (
	"iter"
	"slices"
	"time"

	"xdsrelay/internal/xds"
)

// Standing is where a type of a stream stands: what versions have come to it.
type Standing struct {
	Key    xds.Key
	Type   xds.TypeURL
	Stream uint64
	Node   string
	Host   string // the peer's
	State  string
	Since  time.Time // of the state
	// Lineage and Has are the generation of the key's type of which the client took
	// all, or in which nothing is for it that it does not have, but for Arrears; 0: none.
	// So names that the origin does not have, or has said nothing of, keep no client from
	// a version.
	Lineage, Has uint64
	// Arrears are what it asked for later, and did not take or refuse yet.
	Arrears Debt
	// Nack is the refusal that stands; nil: none does.
	Nack *Nack
	// Refused: something that it refused, of Declined, it does not have yet, and nothing
	// is to be sent to it.
	Refused  bool
	Declined Debt
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
		var nack *Nack
		if at.state == Refused && sl.nack != nil {
			n := *sl.nack
			nack = &n
		}
		to = append(to, Standing{
			Nack: nack,
			Key:  sl.member.Key(), Type: sl.typ.URL, Stream: st.id, Node: st.node.ID, Host: host(st.from),
			State: at.state, Since: at.since, Lineage: at.lineage, Has: at.has, Arrears: at.arrears, Declined: at.declined,
			Refused: at.state == Refused && !at.unsent && (len(sl.flights) == 0 || !sl.full()),
		})
	}
	return to
}

// survey is one look at many sessions. Those that stand alike are compared with
// the newest once.
type survey struct {
	now   time.Time
	seen  map[alike]bool
	until map[stretch]uint64
	waits map[stretch]bool
}

func newSurvey() *survey {
	return &survey{now: time.Now(), seen: make(map[alike]bool), until: make(map[stretch]uint64), waits: make(map[stretch]bool)}
}

// stretch is what lies between two snapshots, for who asks for sub.
type stretch struct {
	sub      *xds.Subscription
	from, to mark
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

// level is the session's. Under the stream's lock.
func (v *survey) level(s *Session, newest *xds.Snapshot) uint64 {
	if s.early != nil {
		return s.level(newest)
	}
	k := stretch{s.sub, markOf(s.sent), markOf(newest)}
	gen, ok := v.until[k]
	if !ok {
		gen = s.level(newest)
		if len(v.until) < maxAlike {
			v.until[k] = gen
		}
	}
	return gen
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

// owned is of which generation the client took all, but for what changed in arrears, and
// what it declined. Under the stream's lock.
func (v *survey) owned(s *Session, newest *xds.Snapshot, unsent bool) (has uint64, arrears, declined Debt) {
	switch at := s.newest(); {
	case newest == nil || !s.began:
		return 0, Debt{}, Debt{}
	case at != nil && at.Lineage != newest.Lineage: // it has nothing of that yet
		return 0, Debt{}, s.declined()
	case unsent || len(s.flights) > 0:
		has = v.level(s, newest)
	default:
		has = newest.Gen
	}
	if unsent || len(s.flights) > 0 || s.refused != nil || s.denied != (Debt{}) {
		arrears, declined = s.open(), s.declined()
		has = Debt{From: oldest(arrears.From, declined.From)}.before(has)
		arrears.From = 0 // has says it
	}
	return has, arrears, declined
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
	k := stretch{sub: sub, to: markOf(newest)}
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
				if at := s.newest(); at.AnswersWildcard(s.sub) {
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

// awaits yields the names, "*" for the wildcard, that sub asks for and of which the
// origin has said nothing yet. A name that it does not have (P57) is none: in state of the
// world nothing is sent of it (P31), and who asks for it has all that there is.
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
	open         bool // or not answered
	lineage, has uint64
	arrears      Debt
	declined     Debt
}

// stands says where the slot stands. Under the stream's lock.
func (s *slot) stands(look *survey) place {
	newest := s.coming()
	var at place
	if newest != nil {
		at.lineage = newest.Lineage
		at.unsent = look.unsent(&s.Session, newest)
	}
	at.has, at.arrears, at.declined = look.owned(&s.Session, newest, at.unsent)
	refusing := s.refusing()
	at.open = len(s.flights) > 0 || at.unsent
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
	if r := newest.Rollout; r != nil && r.At.After(at) {
		at = r.At
	}
	return at
}

// refusing reports whether the client refused something that it is still to have.
func (s *Session) refusing() bool {
	switch {
	case s.sub.Empty():
		return false
	case s.refuses && (s.full() || !s.denied.None()):
		return true
	}
	return slices.ContainsFunc(s.refused, func(r refusal) bool { return s.asked(&r) })
}

// reach notes that the i-th response in flight was acknowledged: with it the client
// took all of the newest that went out whole until then.
func (s *Session) reach(i int, out *Outcome) {
	for _, f := range slices.Backward(s.flights[:i+1]) {
		if !f.whole {
			continue
		}
		out.rollout, out.gen = f.of, f.gen
		out.news = slices.ContainsFunc(s.flights[:i+1], func(o flight) bool { return o.whole && o.news && o.of == f.of })
		return
	}
}

// counted is of which versions the stream was counted, by their rollouts' ids, and
// how its last ACK was timed.
type counted struct {
	sent, acked, refused uint32
	timed                xds.Timing
}

// sending counts a response that is sent. Under the stream's lock, when the session
// has moved.
func (s *slot) sending(p *Plan) {
	r := p.to.Rollout
	if r == nil || p.early {
		return
	}
	if c := &s.counted; c.acked == r.ID() && s.flights[len(s.flights)-1].news {
		r.Unack(c.timed) // the version goes on: it is had with the last of it
		c.acked = 0
	}
	if s.counted.sent == r.ID() {
		return
	}
	s.counted.sent = r.ID()
	r.Send()
}

// answering counts an answer. Under the stream's lock.
func (s *slot) answering(out *Outcome, now time.Time) {
	r := out.rollout
	if r == nil {
		return
	}
	switch {
	case out.Verdict == Acked && s.counted.acked != r.ID():
		s.counted.acked = r.ID()
		r.Ack()
		// Not of what was there when it came, or what it asked for since.
		if s.counted.timed = xds.Untimed; out.news && r.At.After(s.began) {
			s.counted.timed = r.Time(now.Sub(r.At))
		}
	case out.Verdict == Nacked && s.counted.refused != r.ID():
		s.counted.refused = r.ID()
		r.Refuse()
	}
}
