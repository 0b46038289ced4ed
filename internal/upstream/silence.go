package upstream

import "time"

// A stream is silent once it has been open for first_answer_timeout without any
// response. The silence changes nothing for clients (P57). It is counted and
// shown, since such an origin looks healthy otherwise.

// muted counts and shows the attempt as silent, unless it had a response.
func (l *line) muted() {
	if l.had || !l.silent.IsZero() {
		return
	}
	l.silent = l.openedAt
	l.at.muted(l.silent)
	l.report(Status{Connected: true, SilentSince: l.silent})
}

// unmuted ends the attempt's silence: it had a response (spoke), or it is over.
func (l *line) unmuted(spoke bool) {
	if l.silent.IsZero() {
		return
	}
	l.silent = time.Time{}
	l.at.unmuted()
	if spoke {
		l.report(Status{Connected: true, Spoken: true})
	}
}

// muted counts a silent stream, and logs the first.
func (s *site) muted(since time.Time) {
	s.metrics.Silent.Add(1)
	s.mu.Lock()
	s.silent++
	first := s.silentSince.IsZero()
	if first {
		s.silentSince = since
	}
	s.mu.Unlock()
	if first {
		s.log.Warn("origin is silent: it accepted a stream and has not answered the first requests", "for", time.Since(since).Round(time.Millisecond))
	}
}

// unmuted counts a silent stream no more.
func (s *site) unmuted() {
	s.metrics.Silent.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent--
}

// heard ends the origin's silence, if no stream is silent, because it answered one.
// Streams that end and are silent again belong to the same silence.
func (s *site) heard() {
	s.mu.Lock()
	since := s.silentSince
	over := s.silent == 0 && !since.IsZero()
	if over {
		s.silentSince = time.Time{}
	}
	s.mu.Unlock()
	if over {
		s.log.Info("origin is silent no more", "after", time.Since(since).Round(time.Millisecond))
	}
}
