package upstream

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"xdsrelay/internal/xds"
)

// Order says which origins a key uses, and which it prefers (P56). Safe for concurrent use; it
// never blocks.
type Order interface {
	// Origins returns the origins of a key, the most preferred first; at least one. The caller must
	// not change the slice. changed is closed once the key may have another list; nil: it never has.
	Origins(key xds.Key) (order []*Origin, changed <-chan struct{})
}

// fixedOrder is the order of all keys, as long as the relay runs.
type fixedOrder []*Origin

func (o fixedOrder) Origins(xds.Key) ([]*Origin, <-chan struct{}) { return o, nil }

func (s *Source) origins() []*Origin {
	order, _ := s.client.order.Origins(s.key)
	return order
}

// firstOrigin is the origin to start with. That is the origin of the key's first Source, or else
// the most preferred one that is not known to be away.
func (s *Source) firstOrigin(ctx context.Context) *Origin {
	if at := s.first.awaitOther(ctx, nil); at != nil {
		return at
	}
	now, order := time.Now(), s.origins()
	return order[max(0, slices.IndexFunc(order, func(at *Origin) bool { return !at.knownAway(now) }))]
}

// failedEverywhere reports whether no origin is reachable (P53): each failed for this key, or is
// away for all keys. While a key keeps to members, their failures count.
func (s *Source) failedEverywhere(holds bool) bool {
	now, order := time.Now(), s.origins()
	tried, since := s.triedOrigins()
	return !slices.ContainsFunc(order, func(at *Origin) bool {
		return !tried[at] && !at.knownAway(now) && (at.Member || !keepsToMembers(order, holds, since, now))
	})
}

// keepsToMembers reports whether a key that holds something asks no origin yet. The second asks at once.
func keepsToMembers(order []*Origin, holds bool, since, now time.Time) bool {
	return holds && len(order) > 1 && order[0].Member && order[1].Member && now.Before(since.Add(directAfter))
}

// triedOrigins returns where an attempt failed since the last response, and when the first one did.
func (s *Source) triedOrigins() (tried map[*Origin]bool, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.tried), s.failing
}

// nextOrigin is the origin to use after this one failed: the most preferred one where this key has
// not failed, else the next in the order. Origins that are known to be away do not count. If there
// is no other, it is the same one. The key's first Source chooses for the second.
func (s *Source) nextOrigin(at *Origin, holds bool) *Origin {
	if s.follows() {
		return at
	}
	tried, since := s.triedOrigins()
	now, order := time.Now(), s.origins()
	i := slices.Index(order, at) // -1: it left the order
	others := slices.DeleteFunc(slices.Concat(order[i+1:], order[:max(i, 0)]), func(o *Origin) bool {
		return o.knownAway(now) || !o.Member && keepsToMembers(order, holds, since, now)
	})
	if i := slices.IndexFunc(order, func(o *Origin) bool { return !tried[o] && slices.Contains(others, o) }); i >= 0 {
		return order[i]
	}
	return append(others, at)[0]
}

// forgetOthers forgets what is known of origins that are not in the order.
func (s *Source) forgetOthers(order []*Origin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.tried, func(o *Origin, _ bool) bool { return !slices.Contains(order, o) })
	maps.DeleteFunc(s.shortReturns, func(o *Origin, _ int) bool { return !slices.Contains(order, o) })
}

// CurrentOrigin is the origin that a Source uses. The Source that follows it reads it. Safe for
// concurrent use.
type CurrentOrigin struct {
	mu      sync.Mutex
	at      *Origin       // nil: not chosen yet
	ended   bool          // the Source has ended
	changed chan struct{} // closed when either changes
}

func (c *CurrentOrigin) set(at *Origin, ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.ended = at, ended
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *CurrentOrigin) get() (at *Origin, ended bool, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at, c.ended, c.changed
}

// awaitOther waits until the origin differs from at, and returns it. It returns nil if the Source
// or ctx ended first.
func (c *CurrentOrigin) awaitOther(ctx context.Context, at *Origin) *Origin {
	for {
		other, ended, changed := c.get()
		if ended || other != nil && other != at {
			return other
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// Current returns the origin that the Source uses, for a second Source of the key. Any goroutine.
func (s *Source) Current() *CurrentOrigin { return s.current }

// follows reports whether the key's first Source chooses the origin.
func (s *Source) follows() bool {
	_, ended, _ := s.first.get()
	return !ended
}
