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
	Type    xds.Type // fixed
	variant xds.Variant
	form    xds.Form // what resources look like to the client (P62)
	limit   int      // of a response, in bytes (P38)

	// The subscription, by the requests.
	began  bool              // a request has come (P11)
	named  bool              // a name was ever given (P21)
	brings bool              // the first request had versions of another stream (P27, P66)
	want   *xds.Subscription // of the newest request, stale or not; the group is told it (P12)
	sub    *xds.Subscription // of the last request that was not stale; responses follow it
	sum    uint64            // SotW: hash of the newest list of names, to recognise a repeated one
	count  int               // SotW: length of that list

	// What the client was sent.
	initialResponsePending bool                          // the first answer is not given yet (P11)
	anew                   bool                          // the wildcard was subscribed: all of it is answered, sent before or not
	sent                   *xds.Snapshot                 // what the client was sent, but for sentBeforeACK
	stuck                  *stuck                        // what is not sent because it is too large (P38); nil: nothing
	by                     *xds.Subscription             // the subscription of sent where that is not sub: while anew
	sentBeforeACK          map[string]*xds.Resource      // delta: answers sent while a response was unanswered (P19); nil: removed
	warned                 map[string]*xds.ResourceError // errors that the client was told, where sent says another; nil: none (P39)
	forcedNames            map[string]cause              // names to answer though nothing changed
	brought                *brought                      // what the client brought from another stream, until it is answered; nil: nothing
	awaits                 map[string]uint64             // aliases asked for again, and the origin's word before that (P18)
	weight                 int                           // see Remembers
	waiting                bool                          // an unanswered response holds back a change

	// How the client answered. These are versions and marks: a snapshot would keep
	// alive what the client took long ago.
	pendingACKs []pendingACK // unanswered responses, oldest first
	refused     []refusal    // P15
	acked       string       // version that the client took last, or that it is in step with
	took        string       // SotW: version_info of the response that it took last
	refuses     bool         // it refused the response that it answered last
	has         Mark         // newest generation that it acknowledged, or with which it was in step
	settled     uint64       // lineage in which all that it asks for is known; 0: none, as far as Survey looked
}

// New makes the session of a type that has not spoken yet. limit is that of a response,
// in bytes.
func New(t xds.Type, form xds.Form, limit int) *Session {
	return &Session{Type: t, variant: form.Variant, form: form, limit: limit, want: xds.Nothing, sub: xds.Nothing}
}

// Subscribe returns what the client wants after the request, and whether it is
// something else than before. It changes nothing; the caller interns the result and
// passes it to Request. P20, P21. Where names are unsubscribed, it looks at what was
// sent (P26).
func (s *Session) Subscribe(r *xds.Request) (*xds.Subscription, bool) {
	if s.variant == xds.SotW {
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
	first := !s.began
	s.brings = s.bringsState(r)
	s.began = true
	s.named = s.named || len(r.Names) > 0
	if want != s.want {
		s.settled = 0
	}
	s.want = want
	s.sum, s.count = r.NamesSum, len(r.Names)
	var out Outcome
	if first {
		// P11: whatever nonce and version it carries.
		s.initialResponsePending, out.Wake = true, true
		if s.brings {
			s.bring(r)
		}
		s.sub = want
		return out
	}
	s.answer(r, seq, &out)
	if s.variant == xds.SotW {
		if out.Verdict == Stale || len(s.pendingACKs) > 0 {
			return out // P12; P22 will compare with s.sub
		}
		s.relist(want)
	} else {
		s.edit(r, want)
	}
	if s.waiting || s.forcedNames != nil || s.warned != nil || s.initialResponsePending {
		out.Wake, s.waiting = true, false
	}
	return out
}

// Accepted is the generation that the client has all of, as it acknowledged it, if it
// refuses nothing; nil otherwise. A client that brought all of it is not sent anything to
// acknowledge (P27).
func (s *Session) Accepted() *xds.Snapshot {
	if len(s.pendingACKs) > 0 || s.refuses || s.refused != nil || s.stuck != nil || s.initialResponsePending {
		return nil
	}
	return s.sent
}

// full reports whether a response holds everything that is subscribed to (P30).
func (s *Session) full() bool {
	return s.variant == xds.SotW && (s.Type.FullState || s.sub.Wildcard)
}

// Sent records that the plan went out as frame with nonce number seq.
func (s *Session) Sent(p *Plan, frame *Manifest, seq uint64, now time.Time) {
	f := pendingACK{seq: seq, at: now, frame: frame, sub: s.sub, beforeACK: p.BeforeACK, progress: p.To.Progress, of: MarkOf(p.To)}
	// Else it propagates nothing: what it repeats came long ago (P37).
	f.news = s.tells(p, frame)
	s.pendingACKs = append(s.pendingACKs, f)
	if len(s.pendingACKs) > maxPendingACKs {
		at := max(0, slices.IndexFunc(s.pendingACKs[:maxPendingACKs], func(f pendingACK) bool { return f.beforeACK })) // never this one
		s.pendingACKs = slices.Delete(s.pendingACKs, at, at+1)
	}
	s.cover(p, frame)
	if p.BeforeACK {
		if s.sentBeforeACK == nil {
			s.sentBeforeACK = make(map[string]*xds.Resource, len(p.answered))
		}
		maps.Copy(s.sentBeforeACK, p.answered)
		for n, r := range p.answered {
			delete(s.forcedNames, n)
			delete(s.initial(), n)
			if r != nil && s.told(n) != nil {
				s.warn(n, nil) // the resource cleared it (P39)
			}
		}
		for _, n := range p.led {
			delete(s.forcedNames, n)
		}
		for _, e := range p.content.Errors {
			s.warn(e.Name, e)
			delete(s.forcedNames, e.Name)
		}
		s.owe(frame)
		s.overtake(p, frame)
		s.normalize()
		return
	}
	s.initialResponsePending = s.initialResponsePending && s.sub.Wildcard && !p.To.Answered
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
	if s.initialResponsePending && s.sub.Wildcard {
		return // nothing was said yet: the first answer starts from nothing
	}
	s.initialResponsePending = false
	s.step(p)
	s.forgive(p.To)
	if len(s.pendingACKs) == 0 && !s.refuses && s.acked != "" {
		s.acked = p.To.Version
	}
	if len(s.pendingACKs) == 0 && !s.Refusing() {
		s.has = MarkOf(p.To)
	}
}

// step moves the session to the plan's snapshot.
func (s *Session) step(p *Plan) {
	has := s.retained(p.To)
	s.sent, s.stuck, s.waiting = p.To, nil, false
	if s.brought != nil {
		s.brought.versions = p.initial
	}
	s.anew, s.by, s.warned = false, nil, nil
	s.sentBeforeACK = has
	for name := range s.forcedNames {
		if has[name] == nil && s.answeredBy(p.To, name) {
			delete(s.forcedNames, name)
		}
	}
	for name := range s.awaits {
		if _, is := s.look(name, p.To); is != xds.Pending {
			delete(s.awaits, name)
		}
	}
	s.normalize()
}

// retained are the resources that the client has, and of which nothing is known
// any more, so that it was not told either: what it had by the wildcard (P21), and
// asked for by name since, is gone from there; or what it had by a handle is gone,
// and a wildcard that it asked for since has yet to answer.
func (s *Session) retained(to *xds.Snapshot) (has map[string]*xds.Resource) {
	if s.variant == xds.SotW {
		return nil // it is told by the full set, or not at all (P31)
	}
	retain := func(name string) {
		had, was := s.had(name)
		if was != xds.Present || !s.sub.Covers(name) && !had.AskedBy(s.sub.Names) {
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
	for name, why := range s.forcedNames {
		if why != asked {
			continue
		}
		retain(name)
		for _, n := range s.sent.Linked(name) {
			retain(n)
		}
	}
	if s.sub.Wildcard && !to.AnswersWildcard(s.sub) {
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
	if len(s.forcedNames) == 0 {
		s.forcedNames = nil
	}
	if s.sent != nil && len(s.initial()) == 0 {
		s.brought = nil
	}
	if len(s.awaits) == 0 {
		s.awaits = nil
	}
	if len(s.sentBeforeACK) == 0 {
		s.sentBeforeACK = nil
	}
	if len(s.warned) == 0 {
		s.warned = nil
	}
}

// Began reports whether a request has come.
func (s *Session) Began() bool { return s.began }

// Wants is what the client asks for, as its newest request has it, stale or not (P12).
func (s *Session) Wants() *xds.Subscription { return s.want }

// Follows is what responses follow: the subscription of the last request that was not
// stale.
func (s *Session) Follows() *xds.Subscription { return s.sub }

// BringsState reports whether the first request had versions of another stream (P27, P66).
func (s *Session) BringsState() bool { return s.brings }

// AckedVersion is the version that the client took last, or that it is in step with.
func (s *Session) AckedVersion() string { return s.acked }

// RefusesNothing reports whether the client took the response that it answered last, and no
// refusal stands.
func (s *Session) RefusesNothing() bool { return !s.refuses && s.refused == nil }

// Skipped is the number of generations between what the client was sent and the plan's that
// had something for it.
func (s *Session) Skipped(p *Plan) int { return xds.Generations(s.sent, p.To, s.sub) - 1 }

// SkippedHeartbeats is the number of heartbeats among them.
func (s *Session) SkippedHeartbeats(p *Plan) int { return xds.Heartbeats(s.sent, p.To, s.sub) - 1 }

// SentSnapshot is what the client has been sent, but for what was sent ahead of it; the
// session keeps it alive. nil: nothing was sent.
func (s *Session) SentSnapshot() *xds.Snapshot { return s.sent }
