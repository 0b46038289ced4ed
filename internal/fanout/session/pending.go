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
	case s.sent == nil:
		return true
	case p.BeforeACK || s.anew || !frame.Received.After(s.sent.Received):
		return false
	case s.forcedNames == nil:
		return true
	}
	return slices.ContainsFunc(p.To.Changes(s.sent, s.sub), func(name string) bool {
		_, repeats := s.forcedNames[name]
		return !repeats
	})
}

// answer matches the request with the response that it answers.
func (s *Session) answer(r *xds.Request, seq uint64, out *Outcome) {
	i := -1
	if seq != 0 {
		i = slices.IndexFunc(s.pendingACKs, func(f pendingACK) bool { return f.seq == seq })
	}
	newest := i >= 0 && i == len(s.pendingACKs)-1
	switch {
	case i < 0 && r.Refused:
		out.Verdict = Unknown
		return
	case i < 0:
		if s.variant == xds.SotW && len(s.pendingACKs) > 0 {
			out.Verdict = Stale
		}
		return
	case r.Refused:
		// P19: a late one of an earlier response is recorded as well.
		out.Verdict = Nacked
		s.refuses = true
		s.refuse(&s.pendingACKs[i], s.pendingACKs[i+1:])
	case s.variant == xds.SotW && !newest:
		out.Verdict = Stale
		return
	default:
		out.Verdict = Acked
		s.refuses = false
		if f := s.pendingACKs[i].frame; !s.pendingACKs[i].beforeACK {
			s.acked, s.has = f.Version, s.pendingACKs[i].of
			if s.variant == xds.SotW {
				if s.took = f.Took; s.took == "" {
					s.took = f.Version
				}
			}
		}
	}
	f := &s.pendingACKs[i]
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
		s.pendingACKs = nil
	case s.variant == xds.SotW:
		s.pendingACKs = slices.Delete(s.pendingACKs, i, i+1)
	default:
		s.pendingACKs = slices.Delete(s.pendingACKs, 0, i+1)
	}
}

// Outstanding reports whether a response is unanswered at now, and until when
// it holds back the next (P19).
func (s *Session) Outstanding(now time.Time, ackTimeout time.Duration) (time.Time, bool) {
	if len(s.pendingACKs) == 0 {
		return time.Time{}, false
	}
	// Responses that were sent before an ACK do not count: a client that goes on to
	// subscribe would wait for ever.
	at := s.pendingACKs[0].at
	for _, f := range slices.Backward(s.pendingACKs) {
		if !f.beforeACK {
			at = f.at
			break
		}
	}
	until := at.Add(ackTimeout)
	return until, now.Before(until)
}

// AwaitsAnswer reports whether a response is unanswered.
func (s *Session) AwaitsAnswer() bool { return len(s.pendingACKs) > 0 }

// UnansweredSince is when the oldest unanswered response was sent; zero: there is none.
func (s *Session) UnansweredSince() time.Time {
	if len(s.pendingACKs) == 0 {
		return time.Time{}
	}
	return s.pendingACKs[0].at
}

// NewestUnanswered is the generation and the version of the newest unanswered response,
// with the names in it, which nobody changes; nil for a full-state response.
func (s *Session) NewestUnanswered() (gen uint64, version string, names []string) {
	f := &s.pendingACKs[len(s.pendingACKs)-1]
	if !s.full() {
		names = f.frame.names
	}
	return f.of.Gen, f.frame.Version, names
}
