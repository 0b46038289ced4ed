package upstream

import "time"

// A stream that is open and on which nothing has come for absent_after is
// silent. Nothing follows from it for clients (P53): a key may have nothing to
// be told. But it is counted and shown, since an origin that accepts streams and
// says nothing looks well from all other sides.

// muted says that the attempt is open for so long, and had no response.
func (l *line) muted(now time.Time) {
	if l.had || !l.silent.IsZero() {
		return
	}
	l.silent = now.Add(-l.client.opts.AbsentAfter)
	l.at.muted(l.silent)
	if l.serves() {
		l.sink.Status(Status{Connected: true, Origin: l.at.name, Attempts: l.failures, SilentSince: l.silent})
	}
}

// unmuted says that it had one, or is over.
func (l *line) unmuted() {
	if l.silent.IsZero() {
		return
	}
	l.silent = time.Time{}
	l.at.unmuted(l.had)
	if l.had && l.serves() {
		l.sink.Status(Status{Connected: true, Origin: l.at.name})
	}
}

// muted counts a silent stream. The first of an outage is told.
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
		s.log.Warn("origin is silent: it accepted a stream and says nothing on it", "for", time.Since(since).Round(time.Millisecond))
	}
}

// unmuted takes one back. The outage is over once a stream that was silent was
// spoken on, and none is left; streams that end and are silent again are the
// same outage.
func (s *site) unmuted(spoke bool) {
	s.metrics.Silent.Add(-1)
	s.mu.Lock()
	s.silent--
	s.spoke = s.spoke || spoke
	over := s.silent == 0 && s.spoke
	since := s.silentSince
	if over {
		s.silentSince, s.spoke = time.Time{}, false
	}
	s.mu.Unlock()
	if over {
		s.log.Info("origin is silent no more", "after", time.Since(since).Round(time.Millisecond))
	}
}
