package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
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
// also that it knows of no such method. What may be a proxy's, that has no path to it or lets none
// through, will do until one was its own: of an origin that never answers such checks nobody knows better.

const (
	// lifeTimeout is how long an origin may take to answer a health check.
	lifeTimeout = 5 * time.Second
	// lifeLeast is how long a sign of life is good for at least.
	lifeLeast = time.Second
	// maxGraces is how often what is waited for waits on since its origin lives again.
	// One of which some servers hang, and others answer, dies and lives for ever.
	maxGraces = 3
)

// life is what is known of whether an origin lives. Any goroutine.
type life struct {
	turn chan struct{} // one asks at a time

	mu    sync.Mutex
	shown time.Time // when it showed life last
	lost  time.Time // when it was asked last and showed none
	err   error     // why; nil: it showed life since
	again time.Time // when it did so
	own   bool      // an answer was its own, at any time
}

func newLife() *life { return &life{turn: make(chan struct{}, 1)} }

func (l *life) show(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shown = now
	if l.err != nil {
		l.err, l.again = nil, now
	}
}

// lose says that it was asked, and showed no life since; false: it did.
func (l *life) lose(since, now time.Time, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown.After(since) {
		return false
	}
	l.lost, l.err = now, err
	return true
}

// answered takes note of an answer, and returns why it is no sign of life.
func (l *life) answered(own bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !own && l.own {
		return errInPlace
	}
	l.own = own
	return nil
}

// errInPlace: a health check was answered by a status that proxies make, of an origin
// that has answered one itself.
var errInPlace = errors.New("health check: not answered by the origin itself, as before")

// since reports whether it showed life after a time; or else why not, if it was asked
// after that.
func (l *life) since(t time.Time) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown.After(t) {
		return true, nil
	}
	if l.lost.After(t) {
		return false, l.err
	}
	return false, nil
}

// grace is until when an origin that lives again has for what it was asked before.
func (s *site) grace(absentAfter time.Duration) time.Time {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	if s.life.again.IsZero() {
		return time.Time{}
	}
	return s.life.again.Add(absentAfter)
}

// lives says that the origin shows life.
func (s *site) lives() {
	s.life.show(time.Now())
	s.heard()
}

// livelyFor is how long a sign of life is good for.
func livelyFor(absentAfter time.Duration) time.Duration { return max(lifeLeast, absentAfter/3) }

// lively reports whether the origin showed life a moment ago: a third of absentAfter.
func (s *site) lively(now time.Time, absentAfter time.Duration) bool {
	is, _ := s.life.since(now.Add(-livelyFor(absentAfter)))
	return is
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
	if is, err := l.since(began); is || err != nil {
		return err
	}
	own, err := s.origin.alive(ctx)
	if err == nil {
		err = l.answered(own)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && l.lose(began, time.Now(), err):
		return err
	case err == nil:
		s.lives()
	}
	return nil
}

// alive asks for the health of the server. A connection that has no place left for the
// question says nothing of it: another is asked.
func (o *grpcOrigin) alive(ctx context.Context) (own bool, err error) {
	own, err = o.check(ctx)
	if errors.Is(err, errFull) {
		own, err = o.check(ctx)
	}
	return own, err
}

// check is alive on one connection. What is answered does not matter, but that
// something is, in time and over a connection that is there.
func (o *grpcOrigin) check(ctx context.Context) (own bool, err error) {
	c, err := o.pool.lease()
	if err != nil {
		return false, err
	}
	defer o.pool.release(c)
	timed, stop := context.WithTimeout(ctx, lifeTimeout)
	defer stop()
	asking, cancel := context.WithCancelCause(timed)
	defer cancel(nil)
	closed := c.closed.Load()
	var settled atomic.Bool
	full := time.AfterFunc(o.placeTimeout, func() {
		if c.cc.GetState() == connectivity.Ready && settled.CompareAndSwap(false, true) {
			cancel(errFull)
		}
	})
	defer full.Stop()
	cs, err := c.cc.NewStream(asking, &grpc.StreamDesc{}, healthpb.Health_Check_FullMethodName, grpc.ForceCodecV2(encoding.GetCodecV2(proto.Name)))
	if !settled.CompareAndSwap(false, true) {
		o.full(c, o.opts.Log)
		return false, errFull
	}
	if err == nil {
		o.pool.asks(c, 1)
		defer o.pool.asks(c, -1)
		if err = cs.SendMsg(new(healthpb.HealthCheckRequest)); err == nil || errors.Is(err, io.EOF) {
			err = cs.RecvMsg(new(healthpb.HealthCheckResponse))
		}
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal:
		// Of a connection that has just broken gRPC still says that it is there, and of one
		// of several always.
		if asking.Err() != nil || c.closed.Load() != closed || c.cc.GetState() != connectivity.Ready {
			return false, fmt.Errorf("health check: %w", err)
		}
		return false, nil
	}
	return true, nil
}

// lifeless says that the origin shows no life, while it is asked for something: as of a
// stream on which nothing ever came (muted).
func (l *line) lifeless(now time.Time) {
	if l.silent.IsZero() {
		l.quieten(now)
	}
}

// lost reports whether something came on the stream, and its origin shows no life since.
func (l *line) lost() bool { return l.had && !l.silent.IsZero() }

// found says that the origin lives. That is no word on a stream on which none came.
func (l *line) found() {
	if l.lost() {
		l.unmuted(true)
	}
}
