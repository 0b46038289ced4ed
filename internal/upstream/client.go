package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tlsfiles"
	"xdsrelay/internal/telemetry/tracing"
	"xdsrelay/internal/upstream/connections"
	"xdsrelay/internal/upstream/filesource"
	"xdsrelay/internal/upstream/timing"
	"xdsrelay/internal/xds"
)

// Options of a Client. A zero value means the default, except for Origins.
type Options struct {
	// Origins in the order of preference; at least one.
	Origins []OriginOptions
	// Order of each key, given the Origins; nil: all keys have the order of Origins.
	Order func(origins []*Origin) Order
	// FirstAnswerTimeout is how long a stream may be open without any response
	// before it is counted and shown as silent. 10 s.
	FirstAnswerTimeout time.Duration
	// SetNodeOnFirstMessageOnly sends the node once per stream instead of in each request (P58).
	SetNodeOnFirstMessageOnly bool
	Backoff                   timing.Backoff // 1 s, 30 s
	// Dialer connects to gRPC origins. Nil means over the network.
	Dialer func(ctx context.Context, address string) (net.Conn, error)

	Metrics *telemetry.Metrics // nil: not exported
	Tracer  *tracing.Tracer    // nil: nothing is traced
	Log     *slog.Logger       // nil: slog.Default

	dialEvery time.Duration // the constant, except in tests
}

// Identity is what a stream says about itself.
type Identity struct {
	Node     []byte // instead of the Source's; nil: that
	Metadata metadata.MD
}

// OriginOptions describe one origin. A zero value means the default.
type OriginOptions struct {
	// Name is unique among the origins; the address if empty.
	Name string
	// Address is a gRPC target, or file: and an absolute directory.
	Address string
	TLS     *connections.TLSFiles // nil: plaintext
	// Credentials replace TLS; nil: they do not.
	Credentials credentials.TransportCredentials
	// Balance over what the target resolves to: round_robin (also if empty) or
	// pick_first.
	Balance string
	// Domain has the origins that give the same versions (P55). The name if empty.
	Domain  string
	Variant xds.Variant
	// Identify returns the identity of a stream of the key; nil: the key's node, without metadata.
	Identify func(xds.Key) (Identity, error)
	// MaxRequestBytes is what a request should not exceed (P59). 4 MiB.
	MaxRequestBytes int
	// MaxFailures is how many failures in a row make a key use the next origin (P56). 2.
	MaxFailures int
	// ConnectTimeout bounds an attempt to connect, and the wait for the connection of a stream. 5 s.
	ConnectTimeout time.Duration
	Keepalive      Keepalive
	// StreamsPerConnection to a gRPC origin. 100.
	StreamsPerConnection int
	// Member says that the origin is another relay of the cluster: see NewMember.
	Member bool
	// ContentVersions: the origin makes the versions of resources from their content, as this relay
	// does (P61). A stream lists all that is held, whoever sent it.
	ContentVersions bool
}

// Keepalive configures HTTP/2 pings on connections to gRPC origins: 6 min, 10 s.
type Keepalive struct{ Time, Timeout time.Duration }

// Client holds the origins and what is known about them.
type Client struct {
	opts    Options
	origins []*Origin // in the order of the options
	order   Order
	opened  atomic.Uint64 // streams so far
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
		o.complete()
		if seen[o.Name] {
			return nil, fmt.Errorf("upstream: two origins have the name %q", o.Name)
		}
		seen[o.Name] = true
		s, err := c.newOrigin(o, opts.Metrics.Origin(o.Name))
		if err != nil {
			return nil, err
		}
		c.origins = append(c.origins, s)
	}
	c.order = fixedOrder(c.origins)
	if opts.Order != nil {
		c.order = opts.Order(c.origins)
	}
	return c, nil
}

// newOrigin makes an origin; o is complete.
func (c *Client) newOrigin(o OriginOptions, metrics *telemetry.Origin) (*Origin, error) {
	s := newOrigin(o, metrics, c.opts.Log.With(o.text("origin", "member"), o.Name))
	var err error
	if s.transport, err = newTransport(o, &c.opts, s); err != nil {
		return nil, fmt.Errorf("upstream: origin %s: %w", o.Name, err)
	}
	return s, nil
}

// newTransport makes a directory or a gRPC origin, depending on the address.
func newTransport(o OriginOptions, opts *Options, s *Origin) (transport, error) {
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

func (o *Options) complete() error {
	setDefault(&o.FirstAnswerTimeout, 10*time.Second)
	setDefault(&o.dialEvery, dialEvery)
	setDefault(&o.Backoff.Base, time.Second)
	setDefault(&o.Backoff.Max, max(30*time.Second, o.Backoff.Base))
	setDefault(&o.Log, slog.Default())
	if o.Metrics == nil {
		m, err := telemetry.New(telemetry.Options{})
		if err != nil {
			return fmt.Errorf("upstream: %w", err)
		}
		o.Metrics = m
	}
	return nil
}

func (o *OriginOptions) complete() {
	setDefault(&o.Name, o.Address)
	setDefault(&o.Domain, o.Name)
	setDefault(&o.MaxRequestBytes, 4<<20)
	setDefault(&o.MaxFailures, 2)
	setDefault(&o.ConnectTimeout, 5*time.Second)
	setDefault(&o.Keepalive.Time, 6*time.Minute)
	setDefault(&o.Keepalive.Timeout, 10*time.Second)
	setDefault(&o.StreamsPerConnection, 100)
}

func setDefault[T comparable](v *T, to T) { *v = cmp.Or(*v, to) }

// Run connects to all origins, keeps the connections and watches files. It must run as long as any
// stream does. It returns when all goroutines that it started have ended, with nil if ctx ended it.
func (c *Client) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range c.origins {
		g.Go(func() error {
			if err := s.transport.Run(ctx); err != nil {
				return fmt.Errorf("origin %s: %w", s.Name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// OriginStatus is an origin as operators read it: an item of /origins. Its texts are redacted, and its
// JSON names are those of the admin API.
type OriginStatus struct {
	Name      string    `json:"name"`
	Address   string    `json:"address"`
	Away      bool      `json:"away"` // it cannot be reached, or the last attempt failed
	AwaySince time.Time `json:"away_since,omitzero"`
	// Reached is when the relay last connected to it, or got the first response of a stream; zero: never.
	Reached     time.Time `json:"reached,omitzero"`
	Streams     int       `json:"streams"`     // open
	Connections int       `json:"connections"` // ready; of a directory 1 while it is readable
	Reconnects  uint64    `json:"reconnects"`  // attempts and streams that ended
	// LastError is that of the last attempt to connect that failed, or the last stream that ended.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	Silent      int       `json:"silent_streams"`        // open, without any response for first_answer_timeout
	SilentSince time.Time `json:"silent_since,omitzero"` // zero: no stream is silent, and none was since the last response
	// Faults of a directory and its files. For a faulty file the last valid content is served, or
	// nothing (P80). For a gRPC origin, the fault of its certificates; the previous ones stay in
	// force.
	Faults []string `json:"faults,omitempty"`
	// Rejected has the types whose newest response the relay rejected for a key, the longest rejected
	// first, at most maxRejected.
	Rejected []RejectedType `json:"rejected,omitempty"`
}

// Certificates returns the sources of the certificates that the relay shows to origins, or by which
// it trusts them. Any goroutine.
func (c *Client) Certificates() (out []*tlsfiles.Source) {
	for _, s := range c.origins {
		if g, ok := s.transport.(*grpcOrigin); ok && g.certs != nil {
			out = append(out, g.certs)
		}
	}
	return out
}

// Reload reads the certificates and directories of all origins again. Any goroutine.
func (c *Client) Reload() {
	for _, s := range c.origins {
		s.transport.Reload()
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
