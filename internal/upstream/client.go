package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tracing"
	"xdsrelay/internal/xds"
)

// Options of a Client. A zero value means the default, but for Origins.
type Options struct {
	// Origins in the order of preference of all keys; at least one.
	Origins []OriginOptions
	Variant xds.Variant
	// FirstAnswerTimeout is how long a stream may be open without any response
	// before it is counted and shown as silent. 15 s.
	FirstAnswerTimeout time.Duration
	// MaxRequestBytes is what a request should not exceed (P59). 4 MiB.
	MaxRequestBytes int
	// StreamsPerConnection to a gRPC origin. 100.
	StreamsPerConnection int
	Backoff              Backoff // 1 s, 30 s
	Keepalive            Keepalive
	// Dialer connects to gRPC origins; nil: over the network.
	Dialer func(ctx context.Context, address string) (net.Conn, error)

	Metrics *telemetry.Metrics // nil: none that anybody sees
	Tracer  *tracing.Tracer    // nil: nothing is traced
	Log     *slog.Logger       // nil: slog.Default
}

// OriginOptions are one origin.
type OriginOptions struct {
	// Name is unique among the origins; the address if empty.
	Name string
	// Address is a gRPC target, or file: and an absolute directory.
	Address string
	TLS     TLSFiles
	// Balance over what the target resolves to: round_robin (also if empty) or
	// pick_first.
	Balance string
}

// Keepalive of the connections to gRPC origins, by HTTP/2 pings: 6 min, 10 s.
type Keepalive struct{ Time, Timeout time.Duration }

// Client knows the origins.
type Client struct {
	opts  Options
	sites []*site
}

// site is one origin with its accounts.
type site struct {
	name, address string
	origin        origin
	metrics       *telemetry.Origin
	log           *slog.Logger
	tries         *tries

	streams atomic.Int64 // open

	mu         sync.Mutex
	answering  int  // attempts that had a response
	away       bool // an attempt failed, and none has had a response since
	awaySince  time.Time
	told       error // why it is, as the log has it
	toldAt     time.Time
	failedAt   time.Time // the last attempt that did
	reconnects uint64
	lastErr    error
	lastErrAt  time.Time

	silent      int       // streams
	silentSince time.Time // the first of this outage; zero: none is silent
}

func (s *site) ended(err error, reason telemetry.Reconnect) {
	s.metrics.Reconnect(reason)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reconnects++
	s.lastErr, s.lastErrAt = err, time.Now()
}

// answered says that an attempt has had a response; unserved, that such an attempt is
// over; failed, that one ended without. An origin is away once it failed somebody
// and nobody is served: that is told once, and when it is back.
func (s *site) answered() {
	s.mu.Lock()
	s.answering++
	was, since := s.away, s.awaySince
	s.away, s.awaySince = false, time.Time{}
	s.mu.Unlock()
	s.heard()
	if was {
		s.metrics.Away.Add(-1)
		s.log.Info("origin is back", "after", time.Since(since).Round(time.Millisecond))
		s.tries.wake()
	}
}

func (s *site) unserved() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answering--
}

func (s *site) failed(err error) {
	now := time.Now()
	s.mu.Lock()
	was := s.away
	s.failedAt = now
	if !was && s.answering == 0 {
		s.away, s.awaySince = true, now
	}
	is := s.away
	another := is && (!was || err.Error() != s.told.Error() && now.Sub(s.toldAt) >= toldEvery)
	if another {
		s.told, s.toldAt = err, now
	}
	s.mu.Unlock()
	if is {
		s.tries.failed(now)
	}
	switch {
	case is && !was:
		s.metrics.Away.Add(1)
		s.log.Warn("origin is away", "error", err)
	case another:
		s.log.Warn("origin is away for another reason", "error", err)
	}
}

// toldEvery is how long nothing is said of why an origin is away once that was: what is
// mended first is often one reason of several.
const toldEvery = time.Minute

// isAway reports whether it failed somebody, and has answered nobody since.
func (s *site) isAway() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

// knownFor is how long it is known that an origin is away, once nobody tries it
// any more: of one that nobody needs nobody would ever hear that it is back.
const knownFor = time.Minute

// knownAway reports whether it is known to be away now.
func (c *Client) knownAway(s *site, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away && now.Sub(s.failedAt) < max(knownFor, 2*c.opts.Backoff.Max)
}

// New makes a client. It starts nothing, but reads certificates once, so that
// what is wrong with them is known at once.
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
			return nil, fmt.Errorf("upstream: two origins of the name %q", o.Name)
		}
		seen[o.Name] = true
		s := &site{name: o.Name, address: o.Address, metrics: opts.Metrics.Origin(o.Name),
			log: opts.Log.With("origin", o.Name)}
		s.tries = newTries(opts.Backoff, s.isAway)
		var err error
		if s.origin, err = newOrigin(o, &c.opts, s.metrics); err != nil {
			return nil, fmt.Errorf("upstream: origin %s: %w", o.Name, err)
		}
		c.sites = append(c.sites, s)
	}
	return c, nil
}

// newOrigin makes the origin that the address's scheme asks for.
func newOrigin(o OriginOptions, opts *Options, m *telemetry.Origin) (origin, error) {
	if o.Address == "" {
		return nil, errors.New("no address")
	}
	if dir, ok := strings.CutPrefix(o.Address, "file:"); ok {
		return newFileOrigin(o.Name, dir, opts, m)
	}
	return newGRPCOrigin(o, opts, m)
}

// complete fills the defaults in.
func (o *Options) complete() error {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.FirstAnswerTimeout, 15*time.Second)
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

// Run keeps connections and watches files. It is to run as long as any stream
// does; it returns when all that it started has ended, nil if ctx ended it.
func (c *Client) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range c.sites {
		g.Go(func() error {
			if err := s.origin.upkeep(ctx); err != nil {
				return fmt.Errorf("origin %s: %w", s.name, err)
			}
			return nil
		})
		g.Go(func() error {
			s.tries.run(ctx)
			return nil
		})
	}
	return g.Wait()
}

// OriginStatus is what admin shows of an origin.
type OriginStatus struct {
	Name, Address string
	Away          bool      // it failed whoever tried it last
	AwaySince     time.Time // zero: it is not away
	Streams       int       // open
	Connections   int
	Reconnects    uint64 // attempts and streams that ended
	LastError     error  // of the last that ended; nil if none has
	LastErrorAt   time.Time
	Silent        int       // streams that are open, and on which nothing came for first_answer_timeout
	SilentSince   time.Time // zero: there is none, and was none since the last that spoke
	// Faults of the files of one that is a directory, or of that itself: what is
	// served of them is of before, or nothing (P80). At most maxFaults. Of another one
	// those of its certificates, in whose place those before are in force.
	Faults []FileFault
}

// Origins returns the origins in the order of preference. Any goroutine.
func (c *Client) Origins() []OriginStatus {
	out := make([]OriginStatus, len(c.sites))
	for i, s := range c.sites {
		out[i] = s.status()
	}
	return out
}

func (s *site) status() OriginStatus {
	n, faults := s.origin.connections(), s.origin.faults()
	s.mu.Lock()
	defer s.mu.Unlock()
	return OriginStatus{
		Name: s.name, Address: s.address, Away: s.away, AwaySince: s.awaySince,
		Streams: int(s.streams.Load()), Connections: n,
		Reconnects: s.reconnects, LastError: s.lastErr, LastErrorAt: s.lastErrAt,
		Silent: s.silent, SilentSince: s.silentSince, Faults: faults,
	}
}
