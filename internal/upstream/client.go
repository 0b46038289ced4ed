package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tlsfiles"
	"xdsrelay/internal/telemetry/tracing"
	"xdsrelay/internal/upstream/connections"
	"xdsrelay/internal/upstream/filesource"
	"xdsrelay/internal/xds"
)

// Options of a Client. A zero value means the default, except for Origins.
type Options struct {
	// Origins in the order of preference of all keys; at least one.
	Origins []OriginOptions
	Variant xds.Variant
	// FirstAnswerTimeout is how long a stream may be open without any response
	// before it is counted and shown as silent. 10 s.
	FirstAnswerTimeout time.Duration
	// MaxRequestBytes is what a request should not exceed (P59). 4 MiB.
	MaxRequestBytes int
	// SetNodeOnFirstMessageOnly sends the node once per stream instead of in each request (P58).
	SetNodeOnFirstMessageOnly bool
	// StreamsPerConnection to a gRPC origin. 100.
	StreamsPerConnection int
	Backoff              Backoff // 1 s, 30 s
	Keepalive            Keepalive
	// Dialer connects to gRPC origins. Nil means over the network.
	Dialer func(ctx context.Context, address string) (net.Conn, error)

	Metrics *telemetry.Metrics // nil: not exported
	Tracer  *tracing.Tracer    // nil: nothing is traced
	Log     *slog.Logger       // nil: slog.Default

	dialEvery time.Duration // the constant, except in tests
}

// OriginOptions describe one origin.
type OriginOptions struct {
	// Name is unique among the origins; the address if empty.
	Name string
	// Address is a gRPC target, or file: and an absolute directory.
	Address string
	TLS     connections.TLSFiles
	// Balance over what the target resolves to: round_robin (also if empty) or
	// pick_first.
	Balance string
}

// Keepalive configures HTTP/2 pings on connections to gRPC origins: 6 min, 10 s.
type Keepalive struct{ Time, Timeout time.Duration }

// Client holds the origins and what is known about them.
type Client struct {
	opts    Options
	origins []*originState
}

// New makes a client. It starts nothing. It reads certificates once, and fails if
// they are invalid.
func New(opts Options) (*Client, error) {
	if len(opts.Origins) == 0 {
		return nil, errors.New("upstream: no origin")
	}
	if err := opts.complete(); err != nil {
		return nil, err
	}
	c := &Client{opts: opts}
	seen := make(map[string]bool)
	for _, o := range opts.Origins {
		if o.Name == "" {
			o.Name = o.Address
		}
		if seen[o.Name] {
			return nil, fmt.Errorf("upstream: two origins have the name %q", o.Name)
		}
		seen[o.Name] = true
		s := newOriginState(o.Name, o.Address, opts.Metrics.Origin(o.Name), opts.Log.With("origin", o.Name))
		var err error
		if s.origin, err = newOrigin(o, &c.opts, s); err != nil {
			return nil, fmt.Errorf("upstream: origin %s: %w", o.Name, err)
		}
		c.origins = append(c.origins, s)
	}
	return c, nil
}

// newOrigin makes a directory or a gRPC origin, depending on the address.
func newOrigin(o OriginOptions, opts *Options, s *originState) (origin, error) {
	if o.Address == "" {
		return nil, errors.New("address is missing")
	}
	if dir, ok := strings.CutPrefix(o.Address, "file:"); ok {
		d, err := filesource.New(filesource.Options{Name: o.Name, Path: dir, Log: opts.Log, Metrics: opts.Metrics,
			Origin: s.metrics, Readable: s.connected, Unreadable: s.unreachable})
		if err != nil {
			return nil, err
		}
		return directory{d}, nil
	}
	return newGRPCOrigin(o, opts, s)
}

// complete sets the defaults.
func (o *Options) complete() error {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.FirstAnswerTimeout, 10*time.Second)
	def(&o.dialEvery, dialEvery)
	def(&o.Backoff.Base, time.Second)
	def(&o.Backoff.Max, max(30*time.Second, o.Backoff.Base))
	def(&o.Keepalive.Time, 6*time.Minute)
	def(&o.Keepalive.Timeout, 10*time.Second)
	if o.MaxRequestBytes == 0 {
		o.MaxRequestBytes = 4 << 20
	}
	if o.StreamsPerConnection == 0 {
		o.StreamsPerConnection = 100
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Metrics == nil {
		m, err := telemetry.New(telemetry.Options{})
		if err != nil {
			return fmt.Errorf("upstream: %w", err)
		}
		o.Metrics = m
	}
	return nil
}

// Run connects to all origins, keeps the connections and watches files. It must run as long as any
// stream does. It returns when all goroutines that it started have ended, with nil if ctx ended it.
func (c *Client) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range c.origins {
		g.Go(func() error {
			if err := s.origin.upkeep(ctx); err != nil {
				return fmt.Errorf("origin %s: %w", s.name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// OriginStatus is what admin shows about an origin.
type OriginStatus struct {
	Name, Address string
	Away          bool      // it cannot be reached, or the last attempt failed
	AwaySince     time.Time // zero: it is not away
	Reached       time.Time // when it was last found to be there: a connection, or a stream's first response; zero: never
	Streams       int       // open
	Connections   int       // ready; of a directory 1 while it is readable
	Reconnects    uint64    // attempts and streams that ended
	LastError     error     // of the last attempt to connect that failed, or the last stream that ended; nil: none
	LastErrorAt   time.Time
	Silent        int       // open streams without any response for first_answer_timeout
	SilentSince   time.Time // zero: no stream is silent, and none was since the last response
	// Faults of a directory and its files. For a faulty file the last valid content is served, or
	// nothing (P80). For a gRPC origin, the fault of its certificates; the previous ones stay in
	// force.
	Faults []filesource.Fault
	// Rejected has the types whose newest response the relay rejected for a key, the longest rejected
	// first.
	Rejected []Rejected
}

// Certificates returns the sources of the certificates that the relay shows to origins, or by which
// it trusts them. Any goroutine.
func (c *Client) Certificates() (out []*tlsfiles.Source) {
	for _, s := range c.origins {
		if g, ok := s.origin.(*grpcOrigin); ok && g.certs != nil {
			out = append(out, g.certs)
		}
	}
	return out
}

// Reload reads the certificates and directories of all origins again. Any goroutine.
func (c *Client) Reload() {
	for _, s := range c.origins {
		s.origin.reload()
	}
}

// Origins returns the origins in the order of preference. Any goroutine.
func (c *Client) Origins() []OriginStatus {
	out := make([]OriginStatus, len(c.origins))
	for i, s := range c.origins {
		out[i] = s.status()
	}
	return out
}
