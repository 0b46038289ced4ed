package store

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"time"

	"xdsrelay/internal/telemetry"
)

// How the writer goes about it.
const (
	// maxRest bounds how long it rests after each item: as long as that took, so
	// that it takes half of a disk and of a core at most.
	maxRest = time.Second
	// minBackoff and maxBackoff bound how long it waits when the disk fails, which
	// is Interval at least.
	minBackoff = time.Second
	maxBackoff = time.Minute
	// lastWords is how long it may write when it is to end.
	lastWords = 5 * time.Second
	// minPeriod and maxPeriod bound how often it is noted what is confirmed: eight
	// times in MaxAge, so that after a restart an eighth of it is missing at most.
	minPeriod = 5 * time.Second
	maxPeriod = time.Hour
	// watch is how often it is looked whether the clock was set.
	watch = 15 * time.Second
)

// period is how often it is noted on disk what is confirmed.
func (s *Store) period() time.Duration {
	if s.o.MaxAge == 0 {
		return maxPeriod
	}
	return min(max(s.o.MaxAge/8, minPeriod), maxPeriod)
}

// backoff is how long to wait after so many failures in a row.
func (s *Store) backoff(failures int) time.Duration {
	d := max(s.o.Interval, minBackoff)
	for range min(failures, 10) - 1 {
		d *= 2
	}
	return min(d, max(s.o.Interval, maxBackoff))
}

// Run opens the directory, if Open could not, and writes what is new until ctx ends, and
// then what is new by then, if there is time, which hurry ends: what is being written is
// then left as it was. It gives the directory back when it returns, unless the disk hangs:
// then what it is about is let go.
func (s *Store) Run(ctx, hurry context.Context) error {
	done := make(chan error, 1)
	go func() { done <- s.run(ctx, hurry) }()
	<-ctx.Done()
	t := time.NewTimer(lastWords + lastBreath)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-hurry.Done():
		t.Reset(noBreath)
	case <-t.C:
		s.letGo()
		return nil
	}
	select {
	case err := <-done:
		return err
	case <-t.C:
		s.letGo()
		return nil
	}
}

func (s *Store) run(ctx, hurry context.Context) error {
	enough := func() error {
		if hurry.Err() != nil {
			return errNoTime
		}
		return nil
	}
	if !s.openLate(ctx) {
		s.letGo()
		return nil
	}
	confirm, pending, absent := time.Now().Add(s.period()), false, false
	for ctx.Err() == nil {
		end := s.watchWriting()
		err := s.present()
		if err == nil {
			s.setAside()
		}
		end()
		if err != nil {
			absent = true
			s.rest(ctx, s.outage(err), nil)
			continue
		}
		if absent {
			absent = false
			s.outage(nil)
		}
		if now := time.Now(); s.clockSet() || !now.Before(confirm) {
			s.confirmAll(now)
			confirm, pending = now.Add(s.period()), true
		}
		s.mu.Lock()
		it := s.first(time.Now())
		wait := min(time.Until(confirm), watch)
		if it == nil && len(s.queue) > 0 {
			wait = min(wait, time.Until(s.queue[0].due))
		}
		done := s.agains == 0
		s.mu.Unlock()
		if it != nil {
			began, end := time.Now(), s.watchWriting()
			rest := s.do(it, enough)
			end()
			if rest == 0 {
				rest = min(time.Since(began), maxRest)
			}
			s.rest(ctx, rest, nil)
			continue
		}
		if pending && done {
			pending = false
			end := s.watchWriting()
			s.writeConfirmed()
			end()
		}
		s.rest(ctx, wait, s.wake)
	}
	told := enough
	if err := s.present(); err != nil { // it may be another relay's
		s.outage(err)
		told = func() error { return err }
	}
	s.finish(told)
	return s.Close()
}

// rest waits for d, or until woken.
func (s *Store) rest(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
	}
}

// first takes the next item from the queue that is due by now; nil: none is. mu
// is held.
func (s *Store) first(now time.Time) *item {
	if len(s.queue) == 0 || s.queue[0].due.After(now) {
		return nil
	}
	return heap.Pop(&s.queue).(*item)
}

var errNoTime = errors.New("no time is left")

// finish writes what is not written, until it is told that there is no time.
func (s *Store) finish(told func() error) {
	end := time.Now().Add(lastWords)
	enough := func() error {
		if time.Now().After(end) {
			return errNoTime
		}
		return told()
	}
	s.mu.Lock()
	s.over = true // nothing new comes
	all := s.queue
	s.queue = nil
	for _, it := range all {
		it.at = -1
	}
	all = slices.DeleteFunc(all, func(it *item) bool { return !it.dirty })
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *item) int { return a.due.Compare(b.due) }) // nobody else sets it any more
	s.failures = 0                                                             // of before
	lost := 0
	for _, it := range all {
		if enough() != nil || s.failures >= 3 || s.do(it, enough) > 0 || s.isDirty(it) {
			lost++
		}
	}
	if lost > 0 {
		s.giveUp(lost, "the relay ends")
	}
	if s.failures == 0 && told() == nil {
		s.clockSet()
		s.confirmNow(enough)
		s.writeConfirmed()
	}
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.o.Metrics.Unwritten(time.Time{})
}

// isDirty reports whether its source could not tell.
func (s *Store) isDirty(it *item) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return it.dirty
}

// giveUp tells that something new is never written.
func (s *Store) giveUp(n int, why string) {
	for range n {
		s.o.Metrics.Wrote(telemetry.Unkept)
	}
	s.o.Log.Warn("store: what is new is not written", "records", n, "reason", why)
}

// do brings an item to the disk. If that fails it returns how long to wait before
// anything is tried again. A file is removed only when a source has said that
// nothing is good: of an item for which nobody speaks, the file stays. If its source
// cannot tell, what was taken of the one before is the newest that is known.
func (s *Store) do(it *item, enough func() error) time.Duration {
	s.mu.Lock()
	for it.asking { // it is being released
		s.asked.Wait()
	}
	src, rec, ok, dirty := it.src, it.taken, it.said, it.dirty
	if !dirty && !it.again {
		s.mu.Unlock()
		return 0
	}
	it.dirty, it.doing = false, true
	s.notAgain(it)
	it.asking = src != nil
	s.mu.Unlock()
	told, later := false, false
	if src != nil {
		var r *Record
		if r, told, later = s.ask(it.slot, src); told {
			rec, ok = r, true
		}
	}
	s.mu.Lock()
	it.asking = false
	s.asked.Broadcast()
	it.writing, it.known = rec, ok
	if told { // it knows better than who spoke before
		s.drop(it)
	}
	s.mu.Unlock()

	var err error
	used := false
	if ok {
		used, err = s.store(it, rec, dirty, enough)
	}
	s.mu.Lock()
	it.writing, it.doing = nil, false
	it.known = err != nil && ok && rec == nil // the file is there, and good no more
	lost, failed := false, it.failures > 0 && !later
	switch {
	case err == nil && later && dirty && it.src == src:
		if ok { // what was taken of the one before
			s.drop(it)
		}
		it.failures++
		s.touch(it)
	case err == nil:
		it.failures = 0
		if !it.dirty { // else there may be something newer
			s.drop(it)
		}
		s.settle(it)
		if it.at >= 0 { // it was touched meanwhile: its time runs from now
			heap.Remove(&s.queue, it.at)
			s.push(it, time.Now())
		}
	default:
		it.failures++
		lost = s.keepUp(it, rec)
	}
	s.tidy(it)
	waits := s.unwritten.Len() > 0
	s.mu.Unlock()
	if lost {
		s.giveUp(1, "too much waits to be written")
	}
	if !used && (!failed || waits) { // else all that failed is not to be written any more
		return 0
	}
	return s.outage(err)
}

// keepUp has what could not be written tried again. It reports whether there is no
// room to keep it until then. mu is held.
func (s *Store) keepUp(it *item, rec *Record) (lost bool) {
	switch {
	case it.src != nil, it.dirty: // it is asked again, or there is something newer
	case !s.take(it, rec):
		s.undo(it)
		return true
	}
	it.dirty = false
	s.touch(it)
	return false
}

// outage follows whether the disk takes what is written, and tells when that
// changes. It returns how long to wait.
func (s *Store) outage(err error) time.Duration {
	if errors.Is(err, errNoTime) {
		return maxRest
	}
	s.mu.Lock()
	before := s.failures
	if err == nil {
		s.failures = 0
	} else {
		s.failures++
		s.stats.Failed++
		s.stats.LastError, s.stats.LastErrorAt = err.Error(), s.o.Now()
	}
	n := s.failures
	s.stats.Failing = n > 0
	s.mu.Unlock()
	switch {
	case err == nil && before > 0:
		s.o.Log.Info("store: it can be written again", "path", s.o.Path, "failures", before)
	case err == nil:
	case before == 0:
		s.o.Log.Error("store: cannot write; what was stored before stays", "path", s.o.Path, "error", err)
		fallthrough
	default:
		s.o.Metrics.Wrote(telemetry.WriteFailed)
		return s.backoff(n)
	}
	return 0
}
