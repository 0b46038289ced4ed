package store

import (
	"fmt"
	"time"

	"xdsrelay/internal/telemetry"
)

// A disk may hang: what is asked of it neither comes nor fails. Who waits for a reading
// bounds that itself; Run is let go when its time is over (lastWords).

// hangsAfter is how long a use of the disk may take before it is told that the disk hangs. It
// counts as one that failed, and once more by what comes of it, if anything does.
const hangsAfter = 30 * time.Second

// lastBreath is how long Run waits for what it is about once there is no time for
// anything else, and noBreath if it is told that there is none.
const (
	lastBreath = 10 * time.Second
	noBreath   = time.Second
)

// hanging are the uses of the disk that do not end.
type hanging struct {
	n     int
	since time.Time // of the first of this outage
}

// use is one of the disk. The store's mu protects it.
type use struct {
	hung, over bool
}

// watched has it told if what begins now does not end. The first of an outage is, and
// that it is over.
func (s *Store) watched(what string, count func()) (end func()) {
	u := new(use)
	began := time.Now()
	t := time.AfterFunc(hangsAfter, func() {
		s.mu.Lock()
		if u.over {
			s.mu.Unlock()
			return
		}
		u.hung = true
		s.hangs.n++
		first := s.hangs.n == 1
		if first {
			s.hangs.since = began
		}
		s.stats.LastError, s.stats.LastErrorAt = fmt.Sprintf("%s takes longer than %v: the disk hangs", what, hangsAfter), s.o.Now()
		s.mu.Unlock()
		count()
		if first {
			s.o.Log.Warn("store: the disk hangs: what it is asked for neither comes nor fails", "path", s.o.Path, "doing", what, "for", time.Since(began).Round(time.Millisecond))
		}
	})
	return func() {
		t.Stop()
		s.mu.Lock()
		u.over = true
		over := false
		if u.hung {
			s.hangs.n--
			over = s.hangs.n == 0
		}
		since := s.hangs.since
		s.mu.Unlock()
		if over {
			s.o.Log.Info("store: the disk hangs no more", "path", s.o.Path, "after", time.Since(since).Round(time.Millisecond))
		}
	}
}

func (s *Store) watchReading() (end func()) {
	return s.watched("reading", func() { s.o.Metrics.Loaded(telemetry.LoadFailed) })
}

func (s *Store) watchWriting() (end func()) {
	return s.watched("writing", func() { s.o.Metrics.Wrote(telemetry.WriteFailed) })
}

// letGo ends Run though it is not at its end: the directory stays locked until the process
// is over, since what hangs may come to write yet.
func (s *Store) letGo() {
	s.mu.Lock()
	s.over, s.ended = true, true
	end := s.forgo()
	lost := s.unwritten.Len()
	s.mu.Unlock()
	go end() // which may hang as well
	s.o.Metrics.Unwritten(time.Time{})
	if lost > 0 {
		s.giveUp(lost, "the relay ends, and the disk hangs")
	}
}
