package session

import (
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Session is one type on one stream: what the client requests, what it was sent, and what it
// answered. Each part has its own struct, with the methods that change it.
//
// A session is in step if the client has everything of a snapshot. Then it points to the snapshot
// and holds no names, whatever the number of resources. It holds names only while it is out of
// step:
//
//   - forced.names until the next response,
//   - delivered.sentBeforeACK until the next regular response, or until the origin answers them,
//   - clientVersions until the first answers,
//   - forced.retried until the origin answers again,
//   - nacks until a later response includes the names. P15: a rejected response is sent again once
//     something in it changes, or the origin sends something in it again.
type Session struct {
	Type           *xds.Type          // fixed
	form           xds.ResourceFormat // the variant, and how the client reads resources (P62: TTLs); fixed
	sub            subscription       // what the client requests
	forced         forced             // what the next response includes although nothing changed
	clientVersions *clientVersions    // what the client already had; nil: nothing, or all is answered
	delivered      delivered          // what the client was sent
	pendingACKs    pendingACKs        // responses whose ACK is pending
	acked          acknowledged       // what the client acknowledged
	nacks          nacks              // what the client rejected

	limit int // of a response in bytes (P38); fixed
}

// New makes the session of a type that has had no request. limit is the size limit of a
// response in bytes.
func New(t *xds.Type, form xds.ResourceFormat, limit int) *Session {
	return &Session{Type: t, form: form, limit: limit, sub: subscription{requested: snapshot.Nothing, effective: snapshot.Nothing, relay: form.Relay}}
}

// Outcome is what a request did.
type Outcome struct {
	Answer Answer // what the request says about an earlier response
	// Version is that of the response that was acknowledged or rejected. Received is when the origin
	// sent the newest change in that response; zero: nothing in it changed.
	Version  string
	Received time.Time
	// Progress counts the clients of that response's version; nil: it is not counted. Gen is its
	// generation; 0: the client acknowledged a part of it (P38). News: something in it had changed.
	Progress *snapshot.VersionProgress
	Gen      uint64
	News     bool
	// Rejected is what the client rejected, if it did, beside what it has. Its Names are the
	// response's, which the caller must not change.
	Rejected *snapshot.Offer
	// Wake: there may be something to send now.
	Wake bool
}

// Request applies a request. want is the result of Subscribe, interned. seq is the number in the
// request's nonce, 0 if the nonce is not of this stream.
func (s *Session) Request(r *xds.Request, want *snapshot.Subscription, seq uint64) Outcome {
	first := s.sub.update(r, want, s.form.Variant)
	s.pendingACKs.seen = snapshot.ID{}
	var out Outcome
	if first {
		// P11: the first request is answered, whatever nonce and version it carries.
		s.delivered.initialResponsePending, out.Wake = true, true
		if s.sub.resumes {
			s.readClientVersions(r)
		}
		s.sub.follow(want)
		return out
	}
	s.answer(r, seq, &out)
	if s.form.Variant == xds.SotW {
		if out.Answer == Stale || s.pendingACKs.any() {
			return out // P12: a stale request changes nothing. P22 compares with sub.effective later.
		}
		s.followList(want)
	} else {
		s.followDelta(r, want)
	}
	if s.pendingACKs.changeWaits || s.forced.names != nil || s.delivered.errors != nil || s.delivered.initialResponsePending {
		out.Wake, s.pendingACKs.changeWaits = true, false
	}
	return out
}

// Sent records that the plan's response was sent with nonce number seq. If it is sent in parts, the
// next ones have the numbers that follow.
func (s *Session) Sent(p *Plan, m *Manifest, seq uint64, now time.Time) {
	f := pendingACK{
		at: now, sub: s.sub.effective, beforeACK: p.BeforeACK,
		news: s.hasNews(p, m), progress: p.To.Progress, snapshot: p.To.ID(),
	}
	parts := m.Parts
	if parts == nil {
		parts = []*Manifest{m}
	}
	for i, part := range parts {
		f.manifest, f.seq, f.partFollows = part, seq+uint64(i), i+1 < len(parts)
		s.pendingACKs.responses = append(s.pendingACKs.responses, f)
	}
	s.pendingACKs.limit()
	s.nacks.dropResent(s.stateAt(p.To), m, s.form.Variant)
	if p.BeforeACK {
		s.deliverBeforeACK(p)
	} else {
		s.delivered.initialResponsePending = s.delivered.initialResponsePending && s.sub.effective.Wildcard && !p.To.Answered
		s.deliver(p)
	}
	for _, name := range m.LaterErrors {
		put(&s.delivered.errors, name, nil) // so that the error is sent with the next response (P39)
	}
	s.nacks.repeatRest(s.stateAt(s.delivered.snapshot), p, m, &s.forced)
	s.normalize()
}

// hasNews reports whether a response includes something that changed. Repeated and newly requested
// resources do not count, because the origin may have sent them long ago (P37).
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

// NothingToSend records that the plan's content is empty: the session is in step.
func (s *Session) NothingToSend(p *Plan) {
	if p.BeforeACK {
		return
	}
	if s.delivered.initialResponsePending && s.sub.effective.Wildcard {
		return // the wildcard is not answered yet, and its first response includes everything
	}
	s.delivered.initialResponsePending = false
	s.deliver(p)
	if s.form.Variant == xds.SotW {
		s.nacks.dropDeleted(s.stateAt(p.To))
	}
	if s.pendingACKs.any() {
		return
	}
	if !s.nacks.lastWasNACK && s.acked.version != "" {
		s.acked.version = p.To.Version
	}
	if !s.NacksSomething() {
		s.acked.snapshot = p.To.ID()
	}
}

// TooLarge records that the plan's response is over the size limit (P38). The session does not plan
// it again before the snapshot or the subscription changes.
func (s *Session) TooLarge(p *Plan) {
	s.delivered.tooLarge = &tooLarge{p.Key, p.To.ID(), *p.Oversized}
}

// deliver moves the session to the plan's snapshot.
func (s *Session) deliver(p *Plan) {
	retained := s.retained(p.To)
	if s.clientVersions != nil {
		s.clientVersions.byName = p.pendingVersions
	}
	s.delivered.moveTo(p.To, retained)
	s.nacks.seen = p.To.ID()
	s.pendingACKs.changeWaits = false
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

// deliverBeforeACK records the answers of a plan that does not move the session to a snapshot.
func (s *Session) deliverBeforeACK(p *Plan) {
	for n, r := range p.answered {
		put(&s.delivered.sentBeforeACK, n, r)
		delete(s.forced.names, n)
		delete(s.clientVersions.initial(), n)
		if r != nil && s.delivered.error(s.sub.effective, n) != nil {
			put(&s.delivered.errors, n, nil) // the resource cleared it (P39)
		}
	}
	for _, n := range p.answeredAliases {
		delete(s.forced.names, n)
	}
	for _, e := range p.content.Errors {
		put(&s.delivered.errors, e.Name, e)
		delete(s.forced.names, e.Name)
	}
}

// normalize sets empty maps to nil. inStep relies on that.
func (s *Session) normalize() {
	nilIfEmpty(&s.forced.names)
	nilIfEmpty(&s.forced.retried)
	nilIfEmpty(&s.delivered.sentBeforeACK)
	nilIfEmpty(&s.delivered.errors)
	if s.delivered.snapshot != nil && len(s.clientVersions.initial()) == 0 {
		s.clientVersions = nil
	}
}

// fullState reports whether each response holds everything that the client requests (P30).
func (s *Session) fullState() bool {
	return s.form.Variant == xds.SotW && (s.Type.FullState || s.sub.effective.Wildcard)
}

// LacksNames reports whether the client gets nothing of a snapshot because it uses delta, and a
// SotW origin told the resources apart by their place (P3).
func (s *Session) LacksNames(at *snapshot.Snapshot) bool {
	return s.form.Variant == xds.Delta && s.sub.effective.Wildcard && at.HasPlaces()
}

// Began reports whether the type has had a request.
func (s *Session) Began() bool { return s.sub.began }

// Requested is what the client requests by its newest request, stale or not (P12).
func (s *Session) Requested() *snapshot.Subscription { return s.sub.requested }

// Subscription is what responses are made for: what the client requests by its last request that
// was not stale.
func (s *Session) Subscription() *snapshot.Subscription { return s.sub.effective }

// Resumes reports whether the first request stated what the client already has (P27, P66).
func (s *Session) Resumes() bool { return s.sub.resumes }

// NamesWeight is the weight of the names that the client stated at first or unsubscribed from, and
// that the session may still hold. It holds them until the client has acknowledged their answer.
func (s *Session) NamesWeight() int {
	if s.forced.names == nil && s.delivered.sentBeforeACK == nil && s.clientVersions == nil && s.nacks.list == nil && !s.pendingACKs.any() {
		s.forced.weight = 0
	}
	return s.forced.weight
}

// Accepted is the snapshot that the client has all of and acknowledged, if it rejected nothing; nil
// otherwise. A client that already had all of it is sent nothing to acknowledge (P27).
func (s *Session) Accepted() *snapshot.Snapshot {
	if s.pendingACKs.any() || !s.RemembersNoNACK() || s.delivered.tooLarge != nil || s.delivered.initialResponsePending {
		return nil
	}
	return s.delivered.snapshot
}

// SentSnapshot is what the client was sent, except what was sent before an ACK; nil: nothing. The
// session keeps it alive.
func (s *Session) SentSnapshot() *snapshot.Snapshot { return s.delivered.snapshot }

// Skipped is the number of generations between what the client was sent and the plan's snapshot
// that have a change for the client.
func (s *Session) Skipped(p *Plan) int {
	return snapshot.Generations(s.delivered.snapshot, p.To, s.sub.effective) - 1
}

// SkippedHeartbeats is the number of generations among them that have a heartbeat for the client.
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
