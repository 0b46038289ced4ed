package store

import (
	"container/heap"
	"time"
)

// wall follows the wall clock, which may be wrong when the process starts and be set
// right later. What was confirmed meanwhile has the wrong time, and would be too old
// after a restart, or never be: so it moves as the clock does.
type wall struct {
	// at and mono are one moment, by both clocks.
	at, mono time.Time
	// began is from when on what was confirmed was so by this clock, as it is set now.
	began time.Time
	// newest is the latest that a clock said, this one or that of an earlier life.
	newest time.Time
	// set: it was, and Run has not looked since.
	set bool
}

// leap is from where on a clock that goes otherwise than the monotonic one was set:
// less is a matter of drift.
const leap = time.Minute

// sane is when this was written: a clock that says less is wrong.
var sane = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// beginClock is the start, in Open. mu is held.
func (s *Store) beginClock() {
	c := &s.clock
	c.at, c.mono = s.o.Now().Round(0), time.Now()
	c.began, c.newest = c.at, sane
	for _, f := range s.index {
		if f.confirmed.After(c.newest) {
			c.newest = f.confirmed
		}
	}
}

// followClock moves what this process confirmed by as much as the clock was set, if
// it was. Back it is always set. Forth, it may also be that the machine slept: then
// the time has really passed. It was set if it had said what is known to be over. mu
// is held, this once for all files.
func (s *Store) followClock() {
	c := &s.clock
	now, mono := s.o.Now().Round(0), time.Now()
	by := now.Sub(c.at) - mono.Sub(c.mono)
	was := now.Add(-by) // what it would say
	c.at, c.mono = now, mono
	slept := by > 0 && !was.Before(c.newest)
	for _, t := range [...]time.Time{was, now} {
		if t.After(c.newest) {
			c.newest = t
		}
	}
	switch {
	case by.Abs() < leap:
		return
	case slept:
		c.began = now
		return
	}
	for _, f := range s.index {
		if f.state == whole && !f.confirmed.Before(c.began) && !f.confirmed.After(was) {
			f.confirmed = f.confirmed.Add(by)
		}
	}
	heap.Init(&s.ages)
	c.began, c.set, s.stale = c.began.Add(by), true, true
}

// clockSet reports whether the clock was set since it was asked last, and tells so.
func (s *Store) clockSet() bool {
	s.mu.Lock()
	s.followClock()
	set := s.clock.set
	s.clock.set = false
	s.mu.Unlock()
	if set {
		s.o.Log.Warn("store: the clock was set; what was confirmed since the start goes by it as it is now", "now", s.o.Now())
	}
	return set
}

// when is when what a file has, or is to have, was confirmed, where its source says
// at. A source that has lost its origin says when that was, by the clock of then: that
// is no news of a file that is known to be younger.
func (s *Store) when(f *file, at time.Time) time.Time {
	if f == nil || f.state != whole {
		return at
	}
	soon := s.o.Now().Add(leap)
	if !f.confirmed.After(soon) && (at.After(soon) || at.Before(f.confirmed.Add(-leap))) {
		return f.confirmed
	}
	return at
}
