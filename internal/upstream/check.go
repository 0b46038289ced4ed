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

// errBeside: others of the origin's servers answer, or this one on another connection, and
// over the transport that counts nothing could be asked.
var errBeside = errors.New("health check: answered, but not over the connection of the stream")

// errInPlace: a health check was answered by a status that proxies make, of an origin
// that has answered one itself.
var errInPlace = errors.New("health check: not answered by the origin itself, as before")

// ask asks for the health of the server until an answer comes over the transport that l is of, or
// does not. A connection that has no place left for the question says nothing of it: another
// is asked, and then others.
func (g *grpcSession) ask(ctx context.Context, l *life) error {
	from := time.Now()
	beside := errBeside // or why not even others answer
	c := g.conn
	for range maxChecks {
		of, err := g.check(ctx, c)
		if errors.Is(err, errFull) && c == g.conn {
			if c, err = g.origin.pool.lease(); err != nil {
				return err
			}
			defer g.origin.pool.release(c)
			of, err = g.check(ctx, c)
		}
		switch {
		case of == l || of == nil && err != nil:
			return err
		case err != nil:
			beside = err
		case c != g.conn: // it is not there
			return errBeside
		default:
			beside = errBeside
		}
		if time.Since(from) > 2*checkTimeout {
			break
		}
	}
	return beside
}

// check asks on a connection, and returns why that is no sign of life, and the life of the
// transport that it went over; nil: of none. What is answered does not matter, but that something
// is, in time and over a connection that is there.
func (g *grpcSession) check(ctx context.Context, c *conn) (of *life, err error) {
	o := g.origin
	timed, stop := context.WithTimeout(ctx, checkTimeout)
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
		o.full(c, g.stream.log)
		return nil, errFull
	}
	if err == nil {
		o.pool.asks(c, 1)
		defer o.pool.asks(c, -1)
		if err = cs.SendMsg(new(healthpb.HealthCheckRequest)); err == nil || errors.Is(err, io.EOF) {
			err = cs.RecvMsg(new(healthpb.HealthCheckResponse))
		}
		of = lifeOf(cs)
	}
	own := true
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal:
		// Of a connection that has just broken gRPC still says that it is there, and of one
		// of several always.
		if asking.Err() != nil || c.closed.Load() != closed || c.cc.GetState() != connectivity.Ready {
			return of, fmt.Errorf("health check: %w", err)
		}
		own = false
	}
	if !g.stream.at.answers(own) {
		return of, errInPlace
	}
	return of, nil
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
