package session

import (
	"slices"
	"time"

	"xdsrelay/internal/xds"
)

// pendingACK is a response that has not been answered. It keeps neither the body
// nor the snapshot alive.
type pendingACK struct {
	seq       uint64
	at        time.Time
	frame     *Manifest
	sub       *xds.Subscription // that it answered
	beforeACK bool              // it was sent while an earlier one was unanswered (P19)
	news      bool              // there is something in it that changed since all that was sent before
	of        Mark              // the snapshot that it was made of
	// progress is that of the snapshot's version; nil: nobody counts it.
	progress *xds.VersionProgress
}

// maxPendingACKs bounds the unanswered responses that are remembered. The oldest
// that was sent before an ACK is forgotten first. A NACK of it is then only logged.
const maxPendingACKs = 32

// tells reports whether a response has something that changed, and not only what is
// repeated, or was asked for since.
func (s *Session) tells(p *Plan, frame *Manifest) bool {
	switch {
	case frame.Quiet:
		return false
	case s.delivered.snapshot == nil:
		return true
	case p.BeforeACK || s.delivered.resendAll || !frame.Received.After(s.delivered.snapshot.Received):
		return false
	case s.forced.names == nil:
		return true
	}
	return slices.ContainsFunc(p.To.Changes(s.delivered.snapshot, s.sub.effective), func(name string) bool {
		_, repeats := s.forced.names[name]
		return !repeats
	})
}

// answer matches the request with the response that it answers.
func (s *Session) answer(r *xds.Request, seq uint64, out *Outcome) {
	i := -1
	if seq != 0 {
		i = slices.IndexFunc(s.inFlight.responses, func(f pendingACK) bool { return f.seq == seq })
	}
	newest := i >= 0 && i == len(s.inFlight.responses)-1
	switch {
	case i < 0 && r.Refused:
		out.Verdict = Unknown
		return
	case i < 0:
		if s.form.Variant == xds.SotW && len(s.inFlight.responses) > 0 {
			out.Verdict = Stale
		}
		return
	case r.Refused:
		// P19: a late one of an earlier response is recorded as well.
		out.Verdict = Nacked
		s.refusals.last = true
		s.refuse(&s.inFlight.responses[i], s.inFlight.responses[i+1:])
	case s.form.Variant == xds.SotW && !newest:
		out.Verdict = Stale
		return
	default:
		out.Verdict = Acked
		s.refusals.last = false
		if f := s.inFlight.responses[i].frame; !s.inFlight.responses[i].beforeACK {
			s.acked.version, s.acked.mark = f.Version, s.inFlight.responses[i].of
			if s.form.Variant == xds.SotW {
				if s.acked.versionInfo = f.Took; s.acked.versionInfo == "" {
					s.acked.versionInfo = f.Version
				}
			}
		}
	}
	f := &s.inFlight.responses[i]
	out.Version, out.Gen, out.News = f.frame.Version, f.of.Gen, f.news
	if !f.beforeACK {
		out.Progress = f.progress
	}
	if f.news {
		out.Received = f.frame.Received
	}
	// A client answers in order: what came before is answered too. Of a SotW
	// type only the newest answer ends the wait.
	switch {
	case newest:
		s.inFlight.responses = nil
	case s.form.Variant == xds.SotW:
		s.inFlight.responses = slices.Delete(s.inFlight.responses, i, i+1)
	default:
		s.inFlight.responses = slices.Delete(s.inFlight.responses, 0, i+1)
	}
}

// Outstanding reports whether a response is unanswered at now, and until when
// it holds back the next (P19).
func (s *Session) Outstanding(now time.Time, ackTimeout time.Duration) (time.Time, bool) {
	if len(s.inFlight.responses) == 0 {
		return time.Time{}, false
	}
	// Responses that were sent before an ACK do not count: a client that goes on to
	// subscribe would wait for ever.
	at := s.inFlight.responses[0].at
	for _, f := range slices.Backward(s.inFlight.responses) {
		if !f.beforeACK {
			at = f.at
			break
		}
	}
	until := at.Add(ackTimeout)
	return until, now.Before(until)
}

// AwaitsAnswer reports whether a response is unanswered.
func (s *Session) AwaitsAnswer() bool { return len(s.inFlight.responses) > 0 }

// UnansweredSince is when the oldest unanswered response was sent; zero: there is none.
func (s *Session) UnansweredSince() time.Time {
	if len(s.inFlight.responses) == 0 {
		return time.Time{}
	}
	return s.inFlight.responses[0].at
}

// NewestUnanswered is the generation and the version of the newest unanswered response,
// with the names in it, which nobody changes; nil for a full-state response.
func (s *Session) NewestUnanswered() (gen uint64, version string, names []string) {
	f := &s.inFlight.responses[len(s.inFlight.responses)-1]
	if !s.full() {
		names = f.frame.names
	}
	return f.of.Gen, f.frame.Version, names
}
