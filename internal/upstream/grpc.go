package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/telemetry/tlsfiles"
	"xdsrelay/internal/upstream/filesource"
	"xdsrelay/internal/xds"
)

// maxResponse is the largest response that is received (P59).
const maxResponse = 256 << 20

// Methods of envoy.service.discovery.v3.AggregatedDiscoveryService.
var methods = [...]string{
	xds.SotW:  "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
	xds.Delta: "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
}

// Bounds on opening a stream: connecting, or waiting for a free stream on a connection whose limit
// only the origin knows.
const (
	connectTimeout = 20 * time.Second
	placeTimeout   = 3 * time.Second
	// If there is another origin, connecting may take less time, because clients without held
	// resources wait for it (P53).
	failOverTimeout = 5 * time.Second
)

// grpcOrigin is an origin reached over gRPC.
type grpcOrigin struct {
	state *originState
	opts  *Options
	pool  pool
	certs *tlsfiles.Source // nil: plaintext

	connectTimeout, placeTimeout time.Duration // the constants, except in tests
}

func newGRPCOrigin(o OriginOptions, opts *Options, s *originState) (*grpcOrigin, error) {
	creds, certs, err := o.TLS.credentials(o.Name, opts)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	switch o.Balance {
	case "":
		o.Balance = "round_robin"
	case "round_robin", "pick_first":
	default:
		return nil, fmt.Errorf("balance must be round_robin or pick_first, but is %q", o.Balance)
	}
	dial := o.dialer(creds, opts, connectTimeout)
	d, err := dial() // an invalid target fails here
	if err != nil {
		return nil, err
	}
	if err := d.cc.Close(); err != nil {
		return nil, err
	}
	connect := connectTimeout
	if len(opts.Origins) > 1 {
		connect = failOverTimeout
	}
	return &grpcOrigin{
		state: s, opts: opts, pool: pool{dial: dial, limit: opts.StreamsPerConnection}, certs: certs,
		connectTimeout: connect, placeTimeout: placeTimeout,
	}, nil
}

// dialer makes connections to an origin. Each attempt may take up to timeout.
func (o *OriginOptions) dialer(creds credentials.TransportCredentials, opts *Options, timeout time.Duration) func() (*dialed, error) {
	return func() (*dialed, error) {
		d := &dialed{timeout: timeout}
		options := []grpc.DialOption{
			grpc.WithTransportCredentials(keepaliveCredentials{creds}),
			grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig":[{%q:{}}]}`, o.Balance)),
			grpc.WithDisableServiceConfig(), // the resolver's: the user configures the balance
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: opts.Keepalive.Time, Timeout: opts.Keepalive.Timeout}),
			grpc.WithIdleTimeout(0),
			grpc.WithConnectParams(grpc.ConnectParams{
				// Reconnects use full jitter too: a wait is up to twice the nominal one.
				Backoff:           backoff.Config{BaseDelay: opts.Backoff.Base / 2, Multiplier: 2, Jitter: 1, MaxDelay: opts.Backoff.Max / 2},
				MinConnectTimeout: timeout,
			}),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(maxResponse)),
			grpc.WithResolvers(watchedResolver{resolver.Get("dns"), d}),
		}
		if opts.Dialer != nil {
			options = append(options, grpc.WithContextDialer(opts.Dialer))
		}
		var err error
		d.cc, err = grpc.NewClient(o.Address, options...)
		return d, err
	}
}

func (o *grpcOrigin) upkeep(ctx context.Context) error {
	defer o.pool.close()
	first, err := o.pool.first()
	if err != nil {
		return err
	}
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { o.keepConnected(ctx, first) })
	if o.certs != nil {
		parts.Go(func() { _ = o.certs.Run(ctx) }) // never fails
	}
	tick := time.NewTicker(idleFor / 2)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			o.pool.trim(now)
		case <-ctx.Done():
			return nil
		}
	}
}

// failureEvery is how often the relay asks again why it cannot connect. Once the reason is repaired,
// the next one shows.
const failureEvery = 10 * time.Second

// keepConnected keeps a connection without streams too, so that a wrong or unreachable origin shows
// before a client needs it. It records what happens to the connection, until ctx ends.
func (o *grpcOrigin) keepConnected(ctx context.Context, c *conn) {
	defer o.setReady(c, false)
	c.cc.Connect()
	for ctx.Err() == nil {
		state := c.cc.GetState()
		o.setReady(c, state == connectivity.Ready)
		wait, cancel := ctx, func() {}
		switch state {
		case connectivity.Ready:
			o.state.connected()
			if o.state.isAway() { // its streams failed; if no key uses it any more, it is back later
				wait, cancel = context.WithTimeout(ctx, awayKnownFor)
			}
		case connectivity.Idle: // pick_first, after the origin closed the connection
			sleep(ctx, upTo(reopenWithin))
			c.cc.Connect()
		case connectivity.TransientFailure:
			if err := c.failure(ctx); err != nil {
				o.state.unreachable(err)
			}
			if o.pool.unused(c) {
				// The first client that comes should not find the longest pause.
				c.cc.ResetConnectBackoff()
			}
			wait, cancel = context.WithTimeout(ctx, failureEvery)
		}
		c.cc.WaitForStateChange(wait, state)
		cancel()
	}
}

// setReady records whether the kept connection is ready.
func (o *grpcOrigin) setReady(c *conn, ready bool) {
	switch {
	case !o.pool.setReady(c, ready):
	case ready:
		o.state.metrics.Connected.Add(1)
	default:
		o.state.metrics.Connected.Add(-1)
	}
}

func (o *grpcOrigin) newSession(s *originStream) session { return &grpcSession{origin: o, stream: s} }

// faults are those of the certificates that the connections use. A bad response is not among them:
// see Rejected.
func (o *grpcOrigin) faults() []filesource.Fault {
	if o.certs == nil {
		return nil
	}
	f := o.certs.Fault()
	if f == nil {
		return nil
	}
	out := filesource.Fault{File: "tls", Err: f.Err}
	if at := (*tlsfiles.Error)(nil); errors.As(f.Err, &at) {
		out = filesource.Fault{File: "tls." + at.File, Err: at.Err}
	}
	return []filesource.Fault{out}
}

// grpcSession serves a key from a grpcOrigin. It keeps its lease on a connection from one attempt
// to the next.
type grpcSession struct {
	origin *grpcOrigin
	stream *originStream
	conn   *conn // nil before the first attempt, and after the connection was found full

	reached bool // the last attempt opened a stream
}

func (g *grpcSession) close() {
	if g.conn != nil {
		g.origin.pool.release(g.conn)
		g.conn = nil
	}
}

// waitBeforeRetry waits for d, or until a failed connection is ready. In that case it only waits
// for a jitter, because many keys wait for the same connection. An attempt that reached the origin
// waits in full, whatever its connection does.
func (g *grpcSession) waitBeforeRetry(ctx context.Context, d time.Duration) {
	if g.reached || g.conn == nil {
		sleep(ctx, d)
		return
	}
	wait, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	cc := g.conn.cc
	for state := cc.GetState(); state != connectivity.Ready; state = cc.GetState() {
		if state == connectivity.Shutdown || !cc.WaitForStateChange(wait, state) {
			<-wait.Done()
			return
		}
	}
	sleep(wait, upTo(min(g.origin.opts.Backoff.Base, reopenWithin)))
}

// errFull: the origin takes no more streams on this connection.
var errFull = errors.New("origin accepts no more streams on this connection")

func (g *grpcSession) serve(ctx context.Context) error {
	g.reached = false
	if g.conn == nil {
		c, err := g.origin.pool.lease()
		if err != nil {
			return err
		}
		g.conn = c
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cs, err := g.open(ctx, cancel)
	if err != nil {
		return err
	}
	g.reached = true
	if g.origin.pool.opened(g.conn) {
		g.origin.state.metrics.Connected.Add(1)
	}
	g.stream.Opened()
	err = newADSStream(g.stream, cs).run(ctx, cancel)
	if g.origin.pool.ended(g.conn) {
		g.origin.state.metrics.Connected.Add(-1)
	}
	return err
}

// open opens the gRPC stream, which lives as long as ctx. If the connection is ready and no stream
// opens, the connection is full, although the relay's count says otherwise.
func (g *grpcSession) open(ctx context.Context, cancel context.CancelCauseFunc) (grpc.ClientStream, error) {
	c := g.conn // the lease may be given up if the connection is full
	cc := c.cc
	var settled atomic.Bool
	giveUp := time.AfterFunc(g.origin.connectTimeout, func() {
		if settled.CompareAndSwap(false, true) {
			cancel(c.unopened(g.origin.connectTimeout))
		}
	})
	defer giveUp.Stop()
	full := time.AfterFunc(g.origin.placeTimeout, func() {
		if cc.GetState() == connectivity.Ready && settled.CompareAndSwap(false, true) {
			cancel(errFull)
		}
	})
	defer full.Stop()

	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	cs, err := cc.NewStream(ctx, desc, methods[g.origin.opts.Variant])
	late := !settled.CompareAndSwap(false, true) // one of the two has cancelled ctx
	if late {
		err = context.Cause(ctx)
	}
	if errors.Is(err, errFull) {
		n := g.origin.full(g.conn, g.stream.log)
		g.close()
		if n > 0 {
			return nil, errReopen // on another connection
		}
	}
	if err != nil {
		return nil, c.explain(err)
	}
	return cs, nil
}

// full records that the origin accepts no more streams on c than are open. It returns their number.
func (o *grpcOrigin) full(c *conn, log *slog.Logger) int {
	n, fewer := o.pool.full(c)
	if fewer {
		log.Warn("origin accepts fewer streams on a connection than upstream.streams_per_connection", "origin", o.state.name, "accepted", n)
	}
	return n
}

// tooLarge reports whether the transport dropped a response for its size (P59). Only
// the error's text says so.
func tooLarge(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max")
}

// ended turns the end of a stream into an error.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("origin ended the stream")
	}
	return withoutLocalAddress(fmt.Errorf("stream: %w", err))
}
