package upstream

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec of Call
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream/timing"
	"xdsrelay/internal/xds"
)

// An origin may be another relay of the cluster, a member. It is asked as any delta origin is, with
// these differences:
//   - Members come and go while the relay runs.
//   - A key uses a member that it prefers only once it has preferred it for settleAfter, so that keys
//     do not move with each restart. If the present one drains, they move at once. The member also has
//     to be reachable for as long: one that was paused has old content until it has read what came.
//   - One failure is enough to try the next source. A key of which something is held goes from members
//     to origins only after directAfter.
//   - A member gives its answer to a wildcard whole, and no stream ends because of one type (P67, P68).

const (
	settleAfter = 10 * time.Second
	directAfter = 30 * time.Second
)

// memberMetrics is the name of all members together in metrics.
const memberMetrics = "members"

// NewMember makes a member as an origin that Orders may return. It is used while Run runs.
func (c *Client) NewMember(o OriginOptions) (*Origin, error) {
	o.Member, o.Variant, o.MaxFailures, o.MaxRequestBytes = true, xds.Delta, 1, maxResponse
	o.ConnectTimeout, o.Keepalive = 2*time.Second, Keepalive{10 * time.Second, 5 * time.Second}
	o.complete()
	return c.newOrigin(o, c.opts.Metrics.Origin(memberMetrics))
}

// Run keeps a connection to a member until ctx ends, which ends its streams.
func (s *Origin) Run(ctx context.Context) error { return s.transport.Run(ctx) }

// Call calls a unary method of a member. Any goroutine.
func (s *Origin) Call(ctx context.Context, method string, request, response proto.Message) error {
	c, err := s.transport.(*grpcOrigin).pool.First()
	if err != nil {
		return err
	}
	return c.CC.Invoke(ctx, method, request, response, grpc.ForceCodecV2(encoding.GetCodecV2("proto")))
}

// backoff returns how long to wait after failures in a row. It grows less at a member: an attempt there
// costs no origin anything, and after an outage members wait for each other, one after the other.
func (s *Origin) backoff(b timing.Backoff, failures int) time.Duration {
	if s.Member {
		failures = min(failures, 4) // 8 s
	}
	return b.Delay(failures, timing.UpTo)
}

// awaitSettled waits until the member has been reachable for settleAfter; false: ctx ended first.
func (s *Origin) awaitSettled(ctx context.Context) bool {
	for {
		s.mu.Lock()
		ready, left, changed := s.ready, time.Until(s.readyAt.Add(settleAfter)), s.changed
		s.mu.Unlock()
		if ready && left <= 0 {
			return ctx.Err() == nil
		}
		if !ready {
			left = time.Hour
		}
		select {
		case <-time.After(left):
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// Streams is how many streams are open at the origin. Any goroutine.
func (s *Origin) Streams() int { return int(s.streams.Load()) }

// SetDraining says whether the member drains, so that keys leave it. Any goroutine.
func (s *Origin) SetDraining(draining bool) { s.draining.Store(draining) }

// moveFor is why a key leaves a source.
func moveFor(at *Origin, reason telemetry.Reconnect) telemetry.Move {
	switch {
	case reason != telemetry.Returned:
		return telemetry.MoveSwitched
	case at.draining.Load():
		return telemetry.MoveDraining
	}
	return telemetry.MovePreferred
}
