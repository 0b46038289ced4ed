package upstream

import (
	"context"
	"sync"

	"xdsrelay/internal/upstream/adsclient"
	"xdsrelay/internal/xds/snapshot"
)

// interestCell holds the newest interest for a stream. It also records what was unsubscribed and
// wanted again between two calls of Take. The group has forgotten those resources, so the stream
// must request them again although the interest looks the same. Safe for concurrent use, but only
// one goroutine may call Take.
type interestCell struct {
	changed chan struct{} // capacity one

	mu     sync.Mutex
	newest *snapshot.Interest
	again  adsclient.Resubscriptions // since the last Take; nil while no stream is open
}

// newInterestCell makes a cell with this interest, which may be nil.
func newInterestCell(i *snapshot.Interest) *interestCell {
	return &interestCell{changed: make(chan struct{}, 1), newest: i}
}

// Changed receives when the interest is newer than the one that Take returned.
func (c *interestCell) Changed() <-chan struct{} { return c.changed }

// Set stores the newest interest. It never blocks.
func (c *interestCell) Set(i *snapshot.Interest) {
	c.mu.Lock()
	if c.again != nil {
		c.again.Note(c.newest, i)
	}
	c.newest = i
	c.mu.Unlock()
	c.Notify()
}

// Take returns the newest interest, and what was unsubscribed since the last Take. The cell records
// that from the first Take until Reset.
func (c *interestCell) Take() (*snapshot.Interest, adsclient.Resubscriptions) {
	c.mu.Lock()
	defer c.mu.Unlock()
	again := c.again
	c.again = make(adsclient.Resubscriptions)
	return c.newest, again
}

// Reset records that no stream is open. The next one requests everything anyway, so that recording
// would only use memory.
func (c *interestCell) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.again = nil
}

// Newest returns the newest interest, nil if there is none.
func (c *interestCell) Newest() *snapshot.Interest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest
}

// Await returns true once the interest is not empty, false if ctx ended first.
func (c *interestCell) Await(ctx context.Context) bool {
	for c.Newest().Empty() {
		select {
		case <-c.changed:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// Notify makes Changed receive, because the stream carries another part of the interest.
func (c *interestCell) Notify() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}
