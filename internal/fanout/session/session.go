package session

import (
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Session is one type on one stream: what the client asks for, what it was sent, and how it
// answered. Each part has its own struct, with the methods that change it.
//
// A session that is in step with its group points to a snapshot and holds no names, whatever the
// number of resources. It holds names only while something is out of step:
//
//   - forced.names until the next response,
//   - delivered.sentBeforeACK until the next regular response, or until the group knows more
//     of them,
//   - brought until the first answers,
//   - forced.retried until the origin answers again,
//   - refusals until a later response includes the names (P15: a refused response is sent
//     again once something in it changes).
type Session struct {
	Type  xds.Type           // fixed
	form  xds.ResourceFormat // the variant, and how the client reads resources (P62: TTLs); fixed
	limit int                // of a response in bytes (P38); fixed

	sub       subscription // what the client asks for
	forced    forced       // what the next response answers although nothing changed
	brought   *brought     // what the client brought from another stream; nil: nothing, or all is answered
	delivered delivered    // what the client was sent
	inFlight  inFlight     // responses that the client has not answered
	acked     acknowledged // what the client accepted
	refusals  refusals     // what the client refused
}

// New makes the session of a type of which no request has come. limit is the size limit of a
// response in bytes.
func New(t xds.Type, form xds.ResourceFormat, limit int) *Session {
	return &Session{Type: t, form: form, limit: limit, sub: subscription{requested: snapshot.Nothing, effective: snapshot.Nothing}}
}

// Outcome is what a request did.
type Outcome struct {
	Answer Answer // what the request says of an earlier response
	// Version is that of the response that was acknowledged or refused. Received is when the origin
	// sent the newest change in that response; zero: nothing in it changed.
	Version  string
	Received time.Time
	// Progress counts the clients of that response's version; nil: nobody counts it. Gen is its
	// generation, and News reports whether it had something that changed.
	Progress *snapshot.VersionProgress
	Gen      uint64
	News     bool
	// Wake: there may be something to send.
	Wake bool
}

// Request applies a request. want is the result of Subscribe, interned. seq is the number in the
// request's nonce, 0 if the nonce is not of this stream.
func (s *Session) Request(r *xds.Request, want *snapshot.Subscription, seq uint64) Outcome {
	first := s.sub.update(r, want, s.form.Variant)
	var out Outcome
	if first {
		// P11: the first request is answered, whatever nonce and version it carries.
		s.delivered.initialResponsePending, out.Wake = true, true
		if s.sub.resumes {
			s.bring(r)
		}
		s.sub.follow(want)
		return out
	}
	s.answer(r, seq, &out)
	if s.form.Variant == xds.SotW {
		if out.Answer == Stale || s.inFlight.any() {
			return out // P12: a stale request is not followed. P22 compares with sub.effective later.
		}
		s.followList(want)
	} else {
		s.followDelta(r, want)
	}
	if s.inFlight.changeWaits || s.forced.names != nil || s.delivered.errors != nil || s.delivered.initialResponsePending {
		out.Wake, s.inFlight.changeWaits = true, false
	}
	return out
}

// Sent records that the plan's response was sent with nonce number seq.
func (s *Session) Sent(p *Plan, m *Manifest, seq uint64, now time.Time) {
	s.inFlight.add(pendingACK{
		seq: seq, at: now, manifest: m, sub: s.sub.effective, beforeACK: p.BeforeACK,
		news: s.hasNews(p, m), progress: p.To.Progress, of: IDOf(p.To),
	})
	s.refusals.dropResent(s.view(p.To), m, s.form.Variant)
	if p.BeforeACK {
		s.deliverBeforeACK(p)
	} else {
		s.delivered.initialResponsePending = s.delivered.initialResponsePending && s.sub.effective.Wildcard && !p.To.Answered
		s.deliver(p)
	}
	for _, name := range m.LaterErrors {
		s.delivered.setError(name, nil) // so that the error is sent with the next response (P39)
	}
	s.refusals.repeatRest(s.view(s.delivered.snapshot), p, m, &s.forced)
	s.normalize()
}

// hasNews reports whether a response has something that changed. What is repeated, or was asked for
// since, came from the origin long ago (P37).
func (s *Session) hasNews(p *Plan, m *Manifest) bool {
	sent := s.delivered.snapshot
	switch {
	case m.OnlyRenewals:
		return false
	case sent == nil:
		return true
	case p.BeforeACK || s.delivered.resendAll || !m.Received.After(sent.Received):
		return false
	case s.forced.names == nil:
		return true
	}
	for _, name := range p.To.Changes(sent, s.sub.effective) {
		if _, repeats := s.forced.names[name]; !repeats {
			return true
		}
	}
	return false
}

// NothingToSend records that the plan's content is empty: the client is in step.
func (s *Session) NothingToSend(p *Plan) {
	if p.BeforeACK {
		return
	}
	if s.delivered.initialResponsePending && s.sub.effective.Wildcard {
		return // the wildcard is not answered yet, and its first response starts from nothing
	}
	s.delivered.initialResponsePending = false
	s.deliver(p)
	if s.form.Variant == xds.SotW {
		s.refusals.dropDeleted(s.view(p.To))
	}
	if s.inFlight.any() {
		return
	}
	if !s.refusals.lastAnswer && s.acked.version != "" {
		s.acked.version = p.To.Version
	}
	if !s.Refusing() {
		s.acked.snapshot = IDOf(p.To)
	}
}

// TooLarge records that the plan's response is over the size limit (P38). It is not built again
// before the snapshot or the subscription changes.
func (s *Session) TooLarge(p *Plan) {
	s.delivered.tooLarge = &tooLarge{p.Key, IDOf(p.To), *p.Oversized}
}

// deliver moves the session to the plan's snapshot.
func (s *Session) deliver(p *Plan) {
	retained := s.retained(p.To)
	if s.brought != nil {
		s.brought.versions = p.unanswered
	}
	s.delivered.moveTo(p.To, retained)
	s.inFlight.changeWaits = false
	for name := range s.forced.names {
		if retained[name] == nil && s.answeredBy(p.To, name) {
			delete(s.forced.names, name)
		}
	}
	to := comparison{s, p.To}
	for name := range s.forced.retried {
		if _, is := to.look(name); is != snapshot.Pending {
			delete(s.forced.retried, name)
		}
	}
	s.normalize()
}

// deliverBeforeACK records the answers of a plan that leaves the session at its snapshot.
func (s *Session) deliverBeforeACK(p *Plan) {
	for n, r := range p.answered {
		s.delivered.addBeforeACK(n, r)
		delete(s.forced.names, n)
		delete(s.brought.initial(), n)
		if r != nil && s.delivered.error(s.sub.effective, n) != nil {
			s.delivered.setError(n, nil) // the resource cleared it (P39)
		}
	}
	for _, n := range p.answeredHandles {
		delete(s.forced.names, n)
	}
	for _, e := range p.content.Errors {
		s.delivered.setError(e.Name, e)
		delete(s.forced.names, e.Name)
	}
}

// normalize keeps empty maps nil, so that a session in step is recognised by that.
func (s *Session) normalize() {
	if len(s.forced.names) == 0 {
		s.forced.names = nil
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
	if s.delivered.snapshot != nil && len(s.brought.initial()) == 0 {
		s.brought = nil
	}
}

// fullState reports whether a response holds everything that is subscribed to (P30).
func (s *Session) fullState() bool {
	return s.form.Variant == xds.SotW && (s.Type.FullState || s.sub.effective.Wildcard)
}

// Began reports whether a request has come.
func (s *Session) Began() bool { return s.sub.began }

// Requested is what the client asks for by its newest request, stale or not (P12).
func (s *Session) Requested() *snapshot.Subscription { return s.sub.requested }

// Subscription is what responses follow: what the client asks for by its last request that was not
// stale.
func (s *Session) Subscription() *snapshot.Subscription { return s.sub.effective }

// BringsState reports whether the first request had versions of another stream (P27, P66).
func (s *Session) BringsState() bool { return s.sub.resumes }

// NamesWeight is the weight of the names that the client brought or gave up and that the session
// may still hold. It holds them until they are answered and the client has acknowledged the answer.
func (s *Session) NamesWeight() int {
	if s.forced.names == nil && s.delivered.sentBeforeACK == nil && s.brought == nil && s.refusals.list == nil && !s.inFlight.any() {
		s.forced.weight = 0
	}
	return s.forced.weight
}

// Accepted is the snapshot that the client has all of and acknowledged, if it refuses nothing; nil
// otherwise. A client that brought all of it is sent nothing to acknowledge (P27).
func (s *Session) Accepted() *snapshot.Snapshot {
	if s.inFlight.any() || !s.RefusesNothing() || s.delivered.tooLarge != nil || s.delivered.initialResponsePending {
		return nil
	}
	return s.delivered.snapshot
}

// SentSnapshot is what the client has been sent, except what was sent before an ACK. The session
// keeps it alive. nil: nothing was sent.
func (s *Session) SentSnapshot() *snapshot.Snapshot { return s.delivered.snapshot }

// Skipped is the number of generations with a change for the client that lie between what the
// client was sent and the plan's snapshot.
func (s *Session) Skipped(p *Plan) int {
	return snapshot.Generations(s.delivered.snapshot, p.To, s.sub.effective) - 1
}

// SkippedHeartbeats is the number of heartbeats among them.
func (s *Session) SkippedHeartbeats(p *Plan) int {
	return snapshot.Heartbeats(s.delivered.snapshot, p.To, s.sub.effective) - 1
}

// Oversized is the response that is not sent because it is too large; nil: there is none.
func (s *Session) Oversized() *Oversized {
	if s.delivered.tooLarge == nil {
		return nil
	}
	return &s.delivered.tooLarge.Oversized
}
