package upstream

import (
	"context"
	"slices"

	"xdsrelay/internal/upstream/adsclient"
	"xdsrelay/internal/xds/snapshot"
)

// interestCell tells a stream that the interest changed. It also records the names that were
// unsubscribed and wanted again while the stream did not look. The group has forgotten those
// resources, so the stream must request them again although the interest looks the same.
type interestCell struct {
	changed         chan struct{}             // room for one
	resubscriptions adsclient.Resubscriptions // since the last take; nil while no stream is open; under Source.mu
}

// notify makes changed receive, because the stream carries another part of the interest.
func (c *interestCell) notify() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// SetInterest sets the interest. The newest value counts; it never blocks. Any goroutine, one at a
// time.
func (s *Source) SetInterest(i *snapshot.Interest) {
	s.mu.Lock()
	for _, c := range s.cells {
		if c.resubscriptions != nil {
			c.resubscriptions.Note(s.newest, i)
		}
	}
	s.newest = i
	s.suspects.Forget(i)
	s.mu.Unlock()
	s.wakeTrials()
	s.notifyStreams()
}

func (s *Source) notifyStreams() {
	s.mu.Lock()
	cells := slices.Clone(s.cells)
	s.mu.Unlock()
	for _, c := range cells {
		c.notify()
	}
}

// addInterestCell returns a cell that is told of the interest until removeInterestCell.
func (s *Source) addInterestCell() *interestCell {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &interestCell{changed: make(chan struct{}, 1)}
	s.cells = append(s.cells, c)
	return c
}

func (s *Source) removeInterestCell(c *interestCell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cells = slices.DeleteFunc(s.cells, func(o *interestCell) bool { return o == c })
}

// interestNow is the current interest, nil if there is none.
func (s *Source) interestNow() *snapshot.Interest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest
}

// take returns the newest interest, and what was unsubscribed since the last take. The cell records
// that from the first take until reset.
func (s *Source) take(c *interestCell) (*snapshot.Interest, adsclient.Resubscriptions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := c.resubscriptions
	c.resubscriptions = make(adsclient.Resubscriptions)
	return s.newest, again
}

// reset records that no stream is open. The next one requests everything anyway, so that recording
// would only use memory.
func (s *Source) reset(c *interestCell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.resubscriptions = nil
}

// awaitInterest returns true once the interest is not empty, false if ctx ended first.
func (s *Source) awaitInterest(ctx context.Context) bool {
	c := s.addInterestCell()
	defer s.removeInterestCell(c)
	for s.interestNow().Empty() {
		select {
		case <-c.changed:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}
