package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/telemetry/tlsfiles"
	"xdsrelay/internal/upstream/connections"
	"xdsrelay/internal/upstream/filesource"
	"xdsrelay/internal/upstream/timing"
	"xdsrelay/internal/xds"
)

// maxResponse is the largest response that is received (P59).
const maxResponse = 256 << 20

// Methods of envoy.service.discovery.v3.AggregatedDiscoveryService.
var methods = [...]string{
	xds.SotW:  "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
	xds.Delta: "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
}

// placeTimeout bounds the wait for a free stream on a connection whose limit only the origin knows.
const placeTimeout = 3 * time.Second

type grpcOrigin struct {
	state *Origin
	opts  *Options
	pool  *connections.Pool
	certs *tlsfiles.Source // nil: plaintext

	placeTimeout time.Duration // the constant, except in tests
}

func newGRPCOrigin(o OriginOptions, opts *Options, s *Origin) (*grpcOrigin, error) {
	creds, certs, err := o.TLS.Credentials(o.Name, opts.Metrics, opts.Log)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	if o.Credentials != nil {
		creds = o.Credentials
	}
	switch o.Balance {
	case "":
		o.Balance = "round_robin"
	case "round_robin", "pick_first":
	default:
		return nil, fmt.Errorf("balance must be round_robin or pick_first, but is %q", o.Balance)
	}
	pool, err := connections.New(o.connections(creds, opts))
	if err != nil {
		return nil, err
	}
	s.opens, s.tryEvery = rate.NewLimiter(opensPerSecond, 1), opts.dialEvery
	return &grpcOrigin{state: s, opts: opts, pool: pool, certs: certs, placeTimeout: placeTimeout}, nil
}

func (o *OriginOptions) connections(creds credentials.TransportCredentials, opts *Options) connections.Options {
	return connections.Options{
		Target: o.Address, Settings: o.text("upstream.origins[]", "cluster"), Balance: o.Balance, Credentials: creds,
		KeepaliveTime: o.Keepalive.Time, KeepaliveTimeout: o.Keepalive.Timeout,
		Timeout: o.ConnectTimeout, DialEvery: opts.dialEvery, Limit: o.StreamsPerConnection, Dialer: opts.Dialer,
		Calls:  []grpc.CallOption{grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(maxResponse)},
		Method: methods[o.Variant],
	}
}

func (o *grpcOrigin) Run(ctx context.Context) error {
	defer o.pool.Close()
	first, err := o.pool.First()
	if err != nil {
		return err
	}
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { o.keepConnected(ctx, first) })
	if o.certs != nil {
		parts.Go(func() { _ = o.certs.Run(ctx) }) // never fails
	}
	tick := time.Tick(connections.IdleFor / 2)
	for {
		select {
		case now := <-tick:
			o.pool.Trim(now)
		case <-ctx.Done():
			return nil
		}
	}
}

// keepConnected keeps a connection without streams too, so that a wrong or unreachable origin shows
// before a client needs it. It records what happens to the connection, until ctx ends. While no
// connection can be made, each period of dialEvery counts as a failed dial.
func (o *grpcOrigin) keepConnected(ctx context.Context, c *connections.Connection) {
	defer o.setReady(c, false)
	c.CC.Connect()
	for ctx.Err() == nil {
		state := c.CC.GetState()
		o.setReady(c, state == connectivity.Ready)
		wait, cancel := ctx, func() {}
		switch state {
		case connectivity.Ready:
			o.state.connected()
			// If its streams failed and no key uses it any more, it is back later.
			wait, cancel = context.WithTimeout(ctx, awayKnownFor)
		case connectivity.Idle: // pick_first, after the origin closed the connection
			c.CC.Connect()
		case connectivity.TransientFailure:
			if err := c.Failure(ctx); err != nil {
				o.state.unreachable(err)
			}
			wait, cancel = context.WithTimeout(ctx, o.opts.dialEvery)
		}
		c.CC.WaitForStateChange(wait, state)
		cancel()
	}
}

func (o *grpcOrigin) setReady(c *connections.Connection, ready bool) {
	changed := o.pool.SetReady(c, ready)
	if !ready {
		o.state.disconnected()
		o.pool.Trim(time.Now())
	}
	switch {
	case !changed:
	case ready:
		o.state.metrics.Connected.Add(1)
	default:
		o.state.metrics.Connected.Add(-1)
	}
}

func (o *grpcOrigin) Reload() (ok bool) { return o.certs == nil || o.certs.Reload() }

// Faults are those of the certificates that the connections use. A bad response is not among them:
// see Rejected.
func (o *grpcOrigin) Faults() []filesource.Fault {
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

func (o *grpcOrigin) WaitBeforeRetry(ctx context.Context, d time.Duration) { timing.Sleep(ctx, d) }

// errFull: the origin takes no more streams on this connection.
var errFull = errors.New("origin accepts no more streams on this connection")

func (o *grpcOrigin) serve(ctx context.Context, stream *stream) error {
	c, err := o.pool.Lease()
	if err != nil {
		return err
	}
	defer o.pool.Release(c)
	c.CC.Connect() // to the addresses that it lost
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if identify := o.state.Identify; identify != nil {
		as, err := identify(stream.key)
		if err != nil {
			return err
		}
		stream.as = as.Node
		ctx = metadata.NewOutgoingContext(ctx, as.Metadata)
	}
	cs, err := o.open(connections.NoteEnd(ctx, &stream.endedByOrigin), c, cancel)
	if errors.Is(err, errFull) && o.full(c) > 0 {
		return errReopen // on another connection
	}
	if err != nil {
		return c.Explain(err)
	}
	if o.pool.Opened(c) {
		o.state.metrics.Connected.Add(1)
	}
	stream.Opened()
	err = newADSStream(stream, cs, c).run(ctx, cancel)
	if o.pool.Ended(c) {
		o.state.metrics.Connected.Add(-1)
	}
	return err
}

// open opens the gRPC stream, which lives as long as ctx. If the connection is ready and no stream
// opens, the connection is full, although the relay's count says otherwise.
func (o *grpcOrigin) open(ctx context.Context, c *connections.Connection, cancel context.CancelCauseFunc) (grpc.ClientStream, error) {
	var settled atomic.Bool
	giveUp := time.AfterFunc(o.state.ConnectTimeout, func() {
		if settled.CompareAndSwap(false, true) {
			cancel(c.Unopened(o.state.ConnectTimeout))
		}
	})
	defer giveUp.Stop()
	full := time.AfterFunc(o.placeTimeout, func() {
		if c.CC.GetState() == connectivity.Ready && settled.CompareAndSwap(false, true) {
			cancel(errFull)
		}
	})
	defer full.Stop()
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	cs, err := c.CC.NewStream(ctx, desc, methods[o.state.Variant])
	if !settled.CompareAndSwap(false, true) {
		<-ctx.Done() // one of the two cancels it
		return nil, context.Cause(ctx)
	}
	return cs, err
}

// full records that the origin accepts no more streams on c than are open. It returns their number.
func (o *grpcOrigin) full(c *connections.Connection) int {
	n, fewer := o.pool.Full(c)
	if fewer {
		o.state.log.Warn("origin accepts fewer streams on a connection than upstream.streams_per_connection", "accepted", n)
	}
	return n
}

// tooLarge reports, by the error's text, whether the transport dropped a response for its size (P59).
func tooLarge(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max")
}

func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("origin ended the stream")
	}
	return connections.WithoutLocalAddress(fmt.Errorf("stream: %w", err))
}
