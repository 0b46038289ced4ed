package upstream

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// That an origin leaves a name unanswered says that there is none (P57) only if it is
// alive. One that hangs after it spoke looks the same, for as long as it takes
// keepalive to find out, and for ever if its program hangs and its transport does not: clients
// would be told that what they have just asked for does not exist. So before a name is
// taken for absent the origin has to have shown life a moment ago: by a response on any
// stream, or else by the answer to a health check, of which any that is its own will do,
// also that it knows of no such method.

const (
	// lifeTimeout is how long an origin may take to answer a health check.
	lifeTimeout = 5 * time.Second
	// lifeLeast is how long a sign of life is good for at least.
	lifeLeast = time.Second
)

// life is what is known of whether an origin lives. Any goroutine.
type life struct {
	turn  chan struct{} // one asks at a time
	shown atomic.Int64  // when it showed life last, in Unix nanoseconds
	lost  time.Time     // when it was asked last and showed none; the turn's
	err   error         // why; the turn's. nil: it showed life since
}

func newLife() *life { return &life{turn: make(chan struct{}, 1)} }

func (l *life) show(now time.Time) { l.shown.Store(now.UnixNano()) }

// since reports whether it showed life after a time.
func (l *life) since(t time.Time) bool { return l.shown.Load() > t.UnixNano() }

// lively reports whether the origin showed life a moment ago: a third of absentAfter.
func (s *site) lively(now time.Time, absentAfter time.Duration) bool {
	return s.life.since(now.Add(-max(lifeLeast, absentAfter/3)))
}

// revive asks the origin for a sign of life, and returns why there is none. Who asks
// while others do has what comes of that.
func (s *site) revive(ctx context.Context) error {
	began := time.Now()
	l := s.life
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	switch {
	case l.since(began):
	case l.err != nil && l.lost.After(began):
		return l.err
	default:
		asking, cancel := context.WithTimeout(ctx, lifeTimeout)
		err := s.origin.alive(asking)
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			l.err, l.lost = err, time.Now()
			return err
		}
		l.show(time.Now())
	}
	if l.err != nil { // it has what it was asked before still to answer
		l.err = nil
		s.mu.Lock()
		s.speaking = time.Now()
		s.mu.Unlock()
	}
	return nil
}

// alive asks for the health of the server. What it answers does not matter, but that
// it does: the statuses that the transport and proxies make in its place are none.
func (o *grpcOrigin) alive(ctx context.Context) error {
	c, err := o.pool.lease()
	if err != nil {
		return err
	}
	defer o.pool.release(c)
	_, err = healthpb.NewHealthClient(c.cc).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.ForceCodecV2(encoding.GetCodecV2(proto.Name)))
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal:
		return fmt.Errorf("health check: %w", err)
	}
	return nil
}

// lifeless says that the origin shows no life, while it is asked for something: as of a
// stream on which nothing ever came (muted).
func (l *line) lifeless(now time.Time) {
	if l.silent.IsZero() {
		l.quieten(now)
	}
}
