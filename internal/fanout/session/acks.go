package session

import (
	"cmp"
	"slices"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Answer is what a request says about an earlier response.
type Answer uint8

const (
	NoAnswer     Answer = iota // the request answers no response
	Acked                      // it has the nonce of a response whose ACK is pending, and no error
	Nacked                     // it has such a nonce and error_detail
	Stale                      // SotW: an ACK is pending, and this does not answer the newest response (P12)
	UnknownNonce               // a NACK of a response that this stream does not know (P13)
)

// pendingACK is a response that the client has not answered by an ACK or NACK. It keeps neither the
// body nor the snapshot alive.
type pendingACK struct {
	seq         uint64 // number in its nonce, from 1
	at          time.Time
	manifest    *Manifest
	sub         *snapshot.Subscription    // the effective one when it was sent
	beforeACK   bool                      // it was sent while the ACK of an earlier one was pending (P19)
	news        bool                      // something in it changed since the responses before
	partFollows bool                      // it is a part of a response, and not the last one (P38)
	snapshot    snapshot.ID               // the snapshot that it was made of
	progress    *snapshot.VersionProgress // of the snapshot's version; nil: it is not counted
}

// maxPendingACKs bounds the pending ACKs of a session. It first forgets the oldest response that
// was sent before an ACK. A NACK of that response is then only logged.
const maxPendingACKs = 32

// pendingACKs are the responses whose ACK is pending, at most maxPendingACKs. Their seq rises. The
// parts of a response (P38) are consecutive, and count as one.
type pendingACKs struct {
	responses   []pendingACK  // oldest first
	changeWaits bool          // a change waits for an ACK: the ACK or NACK wakes the session
	first       [1]pendingACK // has responses after the first ACK, while there is one: it is not allocated
	seen        snapshot.ID   // since the last request, no name up to it can be answered before an ACK
}

// Planned records what a plan found while an ACK is pending. The next plans look only for what is
// newer.
func (s *Session) Planned(p *Plan) {
	s.pendingACKs.changeWaits = s.pendingACKs.changeWaits || p.changeWaits
	if p.seen.Gen > 0 {
		s.pendingACKs.seen = p.seen
	}
}

func (p *pendingACKs) any() bool { return len(p.responses) > 0 }

// limit forgets the oldest response if there are too many.
func (p *pendingACKs) limit() {
	whole := 0
	for _, f := range p.responses {
		if !f.partFollows {
			whole++
		}
	}
	if whole <= maxPendingACKs {
		return
	}
	first := max(0, slices.IndexFunc(p.responses, func(f pendingACK) bool { return f.beforeACK }))
	last := first + slices.IndexFunc(p.responses[first:], func(f pendingACK) bool { return !f.partFollows })
	p.responses = slices.Delete(p.responses, first, last+1)
}

// remove takes out response i, which is answered. A client answers in order, so the responses
// before it are answered as well. In SotW only the answer to the newest one ends the wait.
func (p *pendingACKs) remove(i int, v xds.Variant) {
	switch {
	case i == len(p.responses)-1:
		p.responses, p.first = p.first[:0], [1]pendingACK{}
	case v == xds.SotW:
		p.responses = slices.Delete(p.responses, i, i+1)
	default:
		p.responses = slices.Delete(p.responses, 0, i+1)
	}
}

// includes reports whether a response with a pending ACK includes the name.
func (p *pendingACKs) includes(name string) bool {
	return slices.ContainsFunc(p.responses, func(f pendingACK) bool {
		_, includes := f.manifest.version(name)
		return includes
	})
}

// acknowledged is what the client acknowledged. It has versions and a snapshot's ID: a pointer
// would keep old snapshots alive.
type acknowledged struct {
	version     string      // of the snapshot that it acknowledged last, or with which it is in step
	versionInfo string      // SotW: version_info of the response that it acknowledged last
	snapshot    snapshot.ID // newest snapshot that it acknowledged, or with which it was in step
}

// accept records the ACK of a response. A response that was sent before an ACK did not move the
// session, and its ACK moves nothing either.
func (a *acknowledged) accept(f *pendingACK, v xds.Variant) {
	if f.beforeACK || f.partFollows {
		return
	}
	a.version, a.snapshot = f.manifest.Version, f.snapshot
	if v == xds.SotW {
		a.versionInfo = cmp.Or(f.manifest.HeartbeatVersion, f.manifest.Version)
	}
}

// answer finds the response that the request answers, by the nonce alone: versions say nothing
// (P13). In SotW a request without the newest nonce is stale (P12). Any request with that nonce is
// an ACK or a NACK, even if it changes the list of names.
func (s *Session) answer(r *xds.Request, seq uint64, out *Outcome) {
	i := slices.IndexFunc(s.pendingACKs.responses, func(f pendingACK) bool { return f.seq == seq }) // never 0
	newest := i >= 0 && i == len(s.pendingACKs.responses)-1
	sotw := s.form.Variant == xds.SotW
	switch {
	case i < 0 && r.IsNACK:
		out.Answer = UnknownNonce
		return
	case i < 0:
		if sotw && s.pendingACKs.any() {
			out.Answer = Stale
		}
		return
	case r.IsNACK:
		// P19: a late NACK of an earlier response is recorded as well.
		out.Answer = Nacked
		s.nacks.markNACK(s.pendingACKs.responses[i].snapshot)
		s.recordNACK(&s.pendingACKs.responses[i], s.pendingACKs.responses[i+1:])
	case sotw && !newest:
		out.Answer = Stale
		return
	default:
		out.Answer = Acked
		s.nacks.lastWasNACK = false
		s.acked.accept(&s.pendingACKs.responses[i], s.form.Variant)
	}
	f := &s.pendingACKs.responses[i]
	if out.Answer == Nacked {
		out.Rejected = s.rejected(f)
	}
	out.Version, out.Gen, out.News = f.manifest.Version, f.snapshot.Gen, f.news
	if !f.beforeACK {
		out.Progress = f.progress
	}
	if out.Answer == Acked && f.partFollows {
		out.Gen, out.Progress = 0, nil // the client has not acknowledged all of it
	}
	if f.news {
		out.Received = f.manifest.Received
	}
	s.pendingACKs.remove(i, s.form.Variant)
}

// rejected is what the response f offered, which the client rejected.
func (s *Session) rejected(f *pendingACK) *snapshot.Offer {
	o := &snapshot.Offer{Lineage: f.snapshot.Lineage, Has: s.acceptedGeneration(f.snapshot.Lineage), Of: f.snapshot.Gen, Sub: f.sub}
	if !s.fullState() {
		o.Names = f.manifest.names
	}
	return o
}

// PendingACK reports whether the client has yet to answer a response.
func (s *Session) PendingACK() bool { return s.pendingACKs.any() }

// WaitsForACK reports whether the next response has to wait for an ACK at now, and until when at
// most (P19: for ack_timeout). Responses that were sent before an ACK do not extend the wait.
// Otherwise a client that keeps subscribing would wait for ever.
func (s *Session) WaitsForACK(now time.Time, ackTimeout time.Duration) (time.Time, bool) {
	if !s.pendingACKs.any() {
		return time.Time{}, false
	}
	at := s.pendingACKs.responses[0].at
	for _, f := range slices.Backward(s.pendingACKs.responses) {
		if !f.beforeACK {
			at = f.at
			break
		}
	}
	until := at.Add(ackTimeout)
	return until, now.Before(until)
}

// PendingACKSince is when the oldest response with a pending ACK was sent; zero: there is none.
func (s *Session) PendingACKSince() time.Time {
	if !s.pendingACKs.any() {
		return time.Time{}
	}
	return s.pendingACKs.responses[0].at
}

// NewestPendingACK is the generation and the version of the newest response with a pending ACK, and
// the names in it, which the caller must not change; nil for a full-state response.
func (s *Session) NewestPendingACK() (gen uint64, version string, names []string) {
	f := &s.pendingACKs.responses[len(s.pendingACKs.responses)-1]
	if !s.fullState() {
		names = f.manifest.names
	}
	return f.snapshot.Gen, f.manifest.Version, names
}

// AckedVersion is the version that the client acknowledged last, or with which it is in step.
func (s *Session) AckedVersion() string { return s.acked.version }

// AckedGeneration is the newest generation of which the client has everything that it requests; 0:
// none. open: a change is still to be sent, an ACK is pending, or the client rejected something.
func (s *Session) AckedGeneration(newest *snapshot.Snapshot, open bool) uint64 {
	switch {
	case newest == nil || !s.sub.began:
		return 0
	case !open:
		return newest.Gen
	}
	return s.acceptedGeneration(newest.Lineage)
}

// acceptedGeneration is the newest generation of the lineage that the client acknowledged, and of
// which it rejected nothing that it still requests; 0: none.
func (s *Session) acceptedGeneration(lineage uint64) uint64 {
	if s.acked.snapshot.Lineage != lineage {
		return 0
	}
	gen := s.acked.snapshot.Gen
	state := s.stateAt(s.delivered.snapshot)
	for i := range s.nacks.list {
		if r := &s.nacks.list[i]; state.requestsAny(r) {
			gen = min(gen, r.gen-1)
		}
	}
	return gen
}
