package session

import (
	"maps"
	"slices"
	"time"

	"xdsrelay/internal/xds"
)

// Session is one type on one stream: what the client asked for, what it was
// sent, and how it answered. Its methods are the protocol's decisions. They do no
// I/O and know no time but the times passed in. A Session has one user at a time.
//
// A session that is in step with its group points to a snapshot and holds no names,
// whatever the number of resources. It holds names only while something is out of
// step:
//
//   - forcedNames until the next response,
//   - sentBeforeACK until the next regular response, or until the group knows more of them,
//   - brought until the first answers,
//   - awaits until the origin answers again,
//   - refused until a later response speaks of the names (P15).
type Session struct {
	Type  xds.Type // fixed
	form  xds.Form // the variant, and what resources look like to the client (P62); fixed
	limit int      // of a response, in bytes (P38); fixed

	sub       subscription // what the client asks for
	delivered delivered    // what it was sent
	forced    forced       // what is to be answered though nothing changed
	resumed   *brought     // what it brought from another stream, until it is answered; nil: nothing
	inFlight  inFlight     // responses that it has not answered
	acked     acknowledged // what it accepted
	refusals  refusals     // what it refused (P15)
}

// subscription is what the client asks for, by its requests.
type subscription struct {
	requested *xds.Subscription // of the newest request, stale or not; the group is told it (P12)
	effective *xds.Subscription // of the last request that was not stale; responses follow it
	listHash  uint64            // SotW: hash of the newest list of names, to recognise a repeated one
	listLen   uint32            // SotW: length of that list
	began     bool              // a request has come (P11)
	named     bool              // a name was ever given (P21)
	resumes   bool              // the first request had versions of another stream (P27, P66)
	knownIn   uint64            // lineage in which all that it asks for is known; 0: none, as far as Survey looked
}

// delivered is what the client was sent.
type delivered struct {
	snapshot      *xds.Snapshot                 // what the client was sent, but for sentBeforeACK
	sub           *xds.Subscription             // the subscription of snapshot where that is not the effective one: while resendAll
	resendAll     bool                          // the wildcard was subscribed: all of it is answered, sent before or not
	sentBeforeACK map[string]*xds.Resource      // delta: answers sent while a response was unanswered (P19); nil: removed
	errors        map[string]*xds.ResourceError // errors that the client was told, where snapshot says another; nil: none (P39)
	tooLarge      *stuck                        // what is not sent because it is too large (P38); nil: nothing
}

// forced is what is to be answered though nothing changed.
type forced struct {
	names                  map[string]cause
	retried                map[string]uint64 // aliases asked for again, and the origin's word before that (P18)
	weight                 int               // see Remembers
	initialResponsePending bool              // the first answer is not given yet (P11)
}

// inFlight are the responses that the client has not answered.
type inFlight struct {
	responses   []pendingACK // oldest first
	changeWaits bool         // an unanswered response holds back a change
}

// acknowledged is what the client accepted. These are versions and marks: a snapshot
// would keep alive what the client took long ago.
type acknowledged struct {
	version     string // version that the client took last, or that it is in step with
	versionInfo string // SotW: version_info of the response that it took last
	mark        Mark   // newest generation that it acknowledged, or with which it was in step
}

// refusals are what the client refused (P15).
type refusals struct {
	list []refusal
	last bool // it refused the response that it answered last
}

// New makes the session of a type that has not spoken yet. limit is that of a response,
// in bytes.
func New(t xds.Type, form xds.Form, limit int) *Session {
	return &Session{Type: t, form: form, limit: limit, sub: subscription{requested: xds.Nothing, effective: xds.Nothing}}
}

// Subscribe returns what the client wants after the request, and whether it is
// something else than before. It changes nothing; the caller interns the result and
// passes it to Request. P20, P21. Where names are unsubscribed, it looks at what was
// sent (P26).
func (s *Session) Subscribe(r *xds.Request) (*xds.Subscription, bool) {
	if s.form.Variant == xds.SotW {
		return s.subscribeSotW(r)
	}
	return s.subscribeDelta(r)
}

// Verdict is what a request said of an earlier response.
type Verdict uint8

const (
	Plain Verdict = iota // no answer to a response
	Acked
	Nacked
	Stale   // SotW: the newest response is unanswered, and this is no answer to it (P12)
	Unknown // a NACK of a response that this stream does not know (P13)
)

// Outcome is what a request did.
type Outcome struct {
	Verdict Verdict
	// Version of the response that was acknowledged or refused, and when the
	// origin sent what is newest in it.
	Version  string
	Received time.Time
	// The response that was acknowledged or refused: its version, which is nil if nobody
	// counts it, its generation, and whether it had something that changed.
	Progress *xds.VersionProgress
	Gen      uint64
	News     bool
	// Wake: there may be something to send.
	Wake bool
}

// Request applies a request; want is what Subscribe made of it, interned, and
// seq the number in its nonce, 0 if it is none of this stream's.
func (s *Session) Request(r *xds.Request, want *xds.Subscription, seq uint64) Outcome {
	first := !s.sub.began
	s.sub.resumes = s.bringsState(r)
	s.sub.began = true
	s.sub.named = s.sub.named || len(r.Names) > 0
	if want != s.sub.requested {
		s.sub.knownIn = 0
	}
	s.sub.requested = want
	s.sub.listHash, s.sub.listLen = r.NamesSum, uint32(len(r.Names))
	var out Outcome
	if first {
		// P11: whatever nonce and version it carries.
		s.forced.initialResponsePending, out.Wake = true, true
		if s.sub.resumes {
			s.bring(r)
		}
		s.sub.effective = want
		return out
	}
	s.answer(r, seq, &out)
	if s.form.Variant == xds.SotW {
		if out.Verdict == Stale || len(s.inFlight.responses) > 0 {
			return out // P12; P22 will compare with s.sub.effective
		}
		s.relist(want)
	} else {
		s.edit(r, want)
	}
	if s.inFlight.changeWaits || s.forced.names != nil || s.delivered.errors != nil || s.forced.initialResponsePending {
		out.Wake, s.inFlight.changeWaits = true, false
	}
	return out
}

// Accepted is the generation that the client has all of, as it acknowledged it, if it
// refuses nothing; nil otherwise. A client that brought all of it is not sent anything to
// acknowledge (P27).
func (s *Session) Accepted() *xds.Snapshot {
	if len(s.inFlight.responses) > 0 || s.refusals.last || s.refusals.list != nil || s.delivered.tooLarge != nil || s.forced.initialResponsePending {
		return nil
	}
	return s.delivered.snapshot
}

// full reports whether a response holds everything that is subscribed to (P30).
func (s *Session) full() bool {
	return s.form.Variant == xds.SotW && (s.Type.FullState || s.sub.effective.Wildcard)
}

// Sent records that the plan went out as frame with nonce number seq.
func (s *Session) Sent(p *Plan, frame *Manifest, seq uint64, now time.Time) {
	f := pendingACK{seq: seq, at: now, frame: frame, sub: s.sub.effective, beforeACK: p.BeforeACK, progress: p.To.Progress, of: MarkOf(p.To)}
	// Else it propagates nothing: what it repeats came long ago (P37).
	f.news = s.tells(p, frame)
	s.inFlight.responses = append(s.inFlight.responses, f)
	if len(s.inFlight.responses) > maxPendingACKs {
		at := max(0, slices.IndexFunc(s.inFlight.responses[:maxPendingACKs], func(f pendingACK) bool { return f.beforeACK })) // never this one
		s.inFlight.responses = slices.Delete(s.inFlight.responses, at, at+1)
	}
	s.cover(p, frame)
	if p.BeforeACK {
		if s.delivered.sentBeforeACK == nil {
			s.delivered.sentBeforeACK = make(map[string]*xds.Resource, len(p.answered))
		}
		maps.Copy(s.delivered.sentBeforeACK, p.answered)
		for n, r := range p.answered {
			delete(s.forced.names, n)
			delete(s.initial(), n)
			if r != nil && s.told(n) != nil {
				s.warn(n, nil) // the resource cleared it (P39)
			}
		}
		for _, n := range p.led {
			delete(s.forced.names, n)
		}
		for _, e := range p.content.Errors {
			s.warn(e.Name, e)
			delete(s.forced.names, e.Name)
		}
		s.owe(frame)
		s.overtake(p, frame)
		s.normalize()
		return
	}
	s.forced.initialResponsePending = s.forced.initialResponsePending && s.sub.effective.Wildcard && !p.To.Answered
	s.step(p)
	s.owe(frame)
	s.overtake(p, frame)
}

// Settled records that the plan of now held nothing to send: the client is in
// step.
func (s *Session) Settled(p *Plan) {
	if p.BeforeACK {
		return
	}
	if s.forced.initialResponsePending && s.sub.effective.Wildcard {
		return // nothing was said yet: the first answer starts from nothing
	}
	s.forced.initialResponsePending = false
	s.step(p)
	s.forgive(p.To)
	if len(s.inFlight.responses) == 0 && !s.refusals.last && s.acked.version != "" {
		s.acked.version = p.To.Version
	}
	if len(s.inFlight.responses) == 0 && !s.Refusing() {
		s.acked.mark = MarkOf(p.To)
	}
}

// step moves the session to the plan's snapshot.
func (s *Session) step(p *Plan) {
	has := s.retained(p.To)
	s.delivered.snapshot, s.delivered.tooLarge, s.inFlight.changeWaits = p.To, nil, false
	if s.resumed != nil {
		s.resumed.versions = p.initial
	}
	s.delivered.resendAll, s.delivered.sub, s.delivered.errors = false, nil, nil
	s.delivered.sentBeforeACK = has
	for name := range s.forced.names {
		if has[name] == nil && s.answeredBy(p.To, name) {
			delete(s.forced.names, name)
		}
	}
	for name := range s.forced.retried {
		if _, is := s.look(name, p.To); is != xds.Pending {
			delete(s.forced.retried, name)
		}
	}
	s.normalize()
}

// retained are the resources that the client has, and of which nothing is known
// any more, so that it was not told either: what it had by the wildcard (P21), and
// asked for by name since, is gone from there; or what it had by a handle is gone,
// and a wildcard that it asked for since has yet to answer.
func (s *Session) retained(to *xds.Snapshot) (has map[string]*xds.Resource) {
	if s.form.Variant == xds.SotW {
		return nil // it is told by the full set, or not at all (P31)
	}
	retain := func(name string) {
		had, was := s.had(name)
		if was != xds.Present || !s.sub.effective.Covers(name) && !had.AskedBy(s.sub.effective.Names) {
			return
		}
		if _, is := s.see(name, to, had, was); is != xds.Pending {
			return
		}
		if has == nil {
			has = make(map[string]*xds.Resource)
		}
		has[name] = had
	}
	for name, why := range s.forced.names {
		if why != asked {
			continue
		}
		retain(name)
		for _, n := range s.delivered.snapshot.Linked(name) {
			retain(n)
		}
	}
	if s.sub.effective.Wildcard && !to.AnswersWildcard(s.sub.effective) {
		by := s.sentBy()
		for _, name := range s.candidates(to) {
			if had, _ := s.had(name); had != nil && (by.Covers(name) || had.AskedBy(by.Names)) {
				retain(name)
			}
		}
	}
	return has
}

// normalize keeps empty maps nil, so that a session in step is known by it.
func (s *Session) normalize() {
	if len(s.forced.names) == 0 {
		s.forced.names = nil
	}
	if s.delivered.snapshot != nil && len(s.initial()) == 0 {
		s.resumed = nil
	}
	if len(s.forced.retried) == 0 {
		s.forced.retried = nil
	}
	if len(s.delivered.sentBeforeACK) == 0 {
		s.delivered.sentBeforeACK = nil
	}
	if len(s.delivered.errors) == 0 {
		s.delivered.errors = nil
	}
}

// Began reports whether a request has come.
func (s *Session) Began() bool { return s.sub.began }

// Wants is what the client asks for, as its newest request has it, stale or not (P12).
func (s *Session) Wants() *xds.Subscription { return s.sub.requested }

// Follows is what responses follow: the subscription of the last request that was not
// stale.
func (s *Session) Follows() *xds.Subscription { return s.sub.effective }

// BringsState reports whether the first request had versions of another stream (P27, P66).
func (s *Session) BringsState() bool { return s.sub.resumes }

// AckedVersion is the version that the client took last, or that it is in step with.
func (s *Session) AckedVersion() string { return s.acked.version }

// RefusesNothing reports whether the client took the response that it answered last, and no
// refusal stands.
func (s *Session) RefusesNothing() bool { return !s.refusals.last && s.refusals.list == nil }

// Skipped is the number of generations between what the client was sent and the plan's that
// had something for it.
func (s *Session) Skipped(p *Plan) int {
	return xds.Generations(s.delivered.snapshot, p.To, s.sub.effective) - 1
}

// SkippedHeartbeats is the number of heartbeats among them.
func (s *Session) SkippedHeartbeats(p *Plan) int {
	return xds.Heartbeats(s.delivered.snapshot, p.To, s.sub.effective) - 1
}

// SentSnapshot is what the client has been sent, but for what was sent ahead of it; the
// session keeps it alive. nil: nothing was sent.
func (s *Session) SentSnapshot() *xds.Snapshot { return s.delivered.snapshot }
