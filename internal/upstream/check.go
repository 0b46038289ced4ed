package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
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

const (
	// checkTimeout is how long an origin may take to answer a health check.
	checkTimeout = 5 * time.Second
	// maxChecks are made for one answer over a certain transport: a connection that is
	// balanced over several servers asks another each time.
	maxChecks = 32
)

// errUnasked: over the transport that counts nothing could be asked. errBeside: but others of the
// origin's servers answer, or this one on another connection. errNobody: on another connection
// nobody does, or there is none.
var (
	errUnasked = errors.New("health check: the connection of the stream could not be asked")
	errBeside  = fmt.Errorf("%w, but others answer", errUnasked)
	errNobody  = fmt.Errorf("%w, nor does another answer", errUnasked) // which may be the same server
)

// errInPlace: a health check was answered by a status that proxies make, of an origin
// that has answered one itself.
var errInPlace = errors.New("health check: not answered by the origin itself, as before")

// ask asks for the health of the server until an answer comes over the transport that l is of, or
// does not. A connection that has no place left for the question says nothing of it: another
// is asked instead.
func (g *grpcSession) ask(ctx context.Context, l *life) error {
	beside := errUnasked // others may be dead
	c, until := g.conn, time.Now().Add(2*checkTimeout)
	for i := 0; i < maxChecks && time.Now().Before(until); i++ {
		of, late, err := g.check(ctx, c)
		if late && (of == l || c != g.conn) {
			l.hung(time.Now())
		}
		switch {
		case errors.Is(err, errFull):
			if c, err = g.origin.pool.lease(); err != nil {
				return err
			}
			defer g.origin.pool.release(c)
		case of == l || of == nil && c == g.conn:
			return err
		case err == nil && c != g.conn: // where l is not to be found
			return errBeside
		case c != g.conn:
			return fmt.Errorf("%w: %w", errNobody, err)
		case err == nil:
			beside = errBeside
		}
	}
	return beside
}

// check asks on a connection, and returns why that is no sign of life, and the life of the
// transport that it went over; nil: of none, and it never went. What is answered does not matter, but that something
// is, in time and over a connection that is there; and whether that took so long that it hung until then.
func (g *grpcSession) check(ctx context.Context, c *conn) (of *life, late bool, err error) {
	o := g.origin
	// No deadline, of which the origin or a proxy would know, and say at that moment that it is over.
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timeout := time.AfterFunc(checkTimeout, func() { cancel(fmt.Errorf("no answer within %s", checkTimeout)) })
	defer timeout.Stop()
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
		o.full(c, g.stream.log)
		return nil, false, errFull
	}
	if err != nil {
		return nil, false, fmt.Errorf("health check: %w", err)
	}
	o.pool.asks(c, 1)
	defer o.pool.asks(c, -1)
	asked := time.Now()
	if err = cs.SendMsg(new(healthpb.HealthCheckRequest)); err == nil || errors.Is(err, io.EOF) {
		err = cs.RecvMsg(new(healthpb.HealthCheckResponse))
	}
	of = lifeOf(cs)
	own := true
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal:
		if asking.Err() != nil {
			return of, false, fmt.Errorf("health check: %w", context.Cause(asking))
		}
		if c.closed.Load() != closed { // gRPC's own words
			return of, false, fmt.Errorf("health check: %w", err)
		}
		own = false
	}
	if !g.stream.at.answers(own) {
		return of, false, errInPlace
	}
	return of, time.Since(asked) >= max(lifeLeast, o.opts.AbsentAfter/15), nil
}

// answers takes note of an answer, and reports whether it is a sign of life.
func (s *site) answers(own bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !own && s.own {
		return false
	}
	s.own = own
	return true
}
