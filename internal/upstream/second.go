package upstream

import (
	"context"
	"sync"
)

// Second makes a second stream of the same key, with a sink of its own (P50). It uses the origin
// that s uses, so that a wildcard and names never come from different origins. Once s has ended it
// chooses for itself. It starts nothing.
func (s *Stream) Second(sink Sink) *Stream {
	second := s.client.NewStream(s.id, s.node, sink)
	second.beside = s.choice
	return second
}

// choice is the origin that a stream uses, for the stream that follows it. Safe for concurrent use.
type choice struct {
	mu      sync.Mutex
	at      *site         // nil: not chosen yet
	over    bool          // the stream has ended
	changed chan struct{} // closed when either changes
}

func newChoice() *choice { return &choice{changed: make(chan struct{})} }

func (c *choice) set(at *site, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at != c.at || over != c.over {
		c.at, c.over = at, over
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// other waits until the origin is another one than at, and returns it; nil if the stream or ctx
// ended before.
func (c *choice) other(ctx context.Context, at *site) *site {
	for {
		c.mu.Lock()
		now, over, changed := c.at, c.over, c.changed
		c.mu.Unlock()
		switch {
		case over:
			return nil
		case now != nil && now != at:
			return now
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// follows reports whether another stream of the key chooses the origin.
func (s *Stream) follows() bool {
	if s.beside == nil {
		return false
	}
	s.beside.mu.Lock()
	defer s.beside.mu.Unlock()
	return !s.beside.over
}
