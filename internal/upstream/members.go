package upstream

import (
	"context"
	"slices"
	"sync"
	"time"

	"xdsrelay/internal/xds"
)

// An origin may be another relay of the cluster, a member. It is asked as any delta origin is, with
// these differences:
//   - Members come and go while the relay runs.
//   - A key uses a member that it prefers only once it has preferred it for settleAfter, so that keys
//     do not move with each restart. If the present one drains, they move at once.
//   - One failure is enough to try the next source. A key of which something is held goes from members
//     to origins only after directAfter.
//   - A member gives its answer to a wildcard whole, and no stream ends because of one type (P67, P68).

const (
	settleAfter = 10 * time.Second
	directAfter = 30 * time.Second
)

// memberMetrics is the name of all members together in metrics.
const memberMetrics = "members"

// AddMember adds a member as an origin that Orders may return, and connects to it. Any goroutine.
func (c *Client) AddMember(o OriginOptions) (*Origin, error) {
	o.Member, o.Variant, o.MaxFailures, o.MaxRequestBytes = true, xds.Delta, 1, maxResponse
	o.ConnectTimeout, o.Keepalive = 2*time.Second, Keepalive{10 * time.Second, 5 * time.Second}
	o.complete()
	s, err := c.newOrigin(o, c.opts.Metrics.Origin(memberMetrics))
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.start == nil {
		c.waiting = append(c.waiting, s)
	} else {
		c.start(s)
	}
	return s, nil
}

// RemoveMember ends the connections to a member. No Order returns it any more. Any goroutine.
func (c *Client) RemoveMember(s *Origin) {
	c.mu.Lock()
	end := c.members[s]
	delete(c.members, s)
	c.waiting = slices.DeleteFunc(c.waiting, func(o *Origin) bool { return o == s })
	c.mu.Unlock()
	if end != nil {
		end()
	}
}

// runMembers runs the members until ctx ends.
func (c *Client) runMembers(ctx context.Context) error {
	var running sync.WaitGroup
	c.mu.Lock()
	c.members = make(map[*Origin]context.CancelFunc)
	c.start = func(s *Origin) {
		ctx, end := context.WithCancel(ctx)
		c.members[s] = end
		running.Go(func() {
			defer end()
			if err := s.transport.Run(ctx); err != nil {
				s.log.Error("member is not used", "error", err)
			}
		})
	}
	for _, s := range c.waiting {
		c.start(s)
	}
	c.waiting = nil
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	c.start = func(*Origin) {} // Client.Run has ended
	c.mu.Unlock()
	running.Wait()
	return nil
}

// Streams is how many streams are open at the origin. Any goroutine.
func (s *Origin) Streams() int { return int(s.streams.Load()) }

// SetDraining says whether the member drains, so that keys leave it. Any goroutine.
func (s *Origin) SetDraining(draining bool) { s.draining.Store(draining) }
