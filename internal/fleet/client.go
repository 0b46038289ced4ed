package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"xdsrelay/internal/xds"
)

type Client struct {
	cfg ClientConfig

	// wake makes Run check again what it waits for between streams.
	wake chan struct{}

	mu sync.Mutex
	// mu guards all fields below. Change them between lock and unlock, which wakes Wait.
	waiters chan struct{}      // closed at the next change; nil: no Wait runs
	leave   context.CancelFunc // ends Run
	stream  *stream            // nil between streams
	lastErr error              // of the last stream
	next    Memory             // for the next stream

	types map[xds.TypeURL]*typeState
	order []*typeState // in the order of their first request

	warming   map[string]*awaitedAssignment // by the load assignment's name
	warmTimer *time.Timer

	violations []string
	count      Counters // of events without a type
}

// NewClient makes a client. Run starts it.
func NewClient(cfg ClientConfig) (*Client, error) {
	if cfg.Target == "" && cfg.Conn == nil {
		return nil, errors.New("client: no target")
	}
	if cfg.Behaviour == GRPC && cfg.Listener == "" {
		return nil, errors.New("client: a gRPC client needs the name of its listener")
	}
	if cfg.WarmTimeout == 0 {
		cfg.WarmTimeout = 15 * time.Second
	}
	if cfg.Backoff.Base == 0 {
		cfg.Backoff.Base = 100 * time.Millisecond
	}
	if cfg.Backoff.Max == 0 {
		cfg.Backoff.Max = 5 * time.Second
	}
	if cfg.refs == nil {
		cfg.refs = new(refCache)
	}
	c := &Client{
		cfg:     cfg,
		wake:    make(chan struct{}, 1),
		types:   make(map[xds.TypeURL]*typeState),
		warming: make(map[string]*awaitedAssignment),
	}
	switch cfg.Behaviour {
	case Envoy:
		c.typ(xds.ClusterType).wantWildcard()
		c.typ(xds.ListenerType).wantWildcard()
	case GRPC:
		c.typ(xds.ListenerType).setNames(cfg.Listener)
	case Raw:
		for _, s := range cfg.Subscribe {
			if len(s.Names) == 0 {
				c.typ(s.Type).wantWildcard()
			} else {
				c.typ(s.Type).setNames(s.Names...)
			}
		}
	}
	return c, nil
}

// typ returns the state of a type. It makes it if there is none. Needs mu.
func (c *Client) typ(url xds.TypeURL) *typeState {
	t := c.types[url]
	if t == nil {
		t = newTypeState(url)
		c.types[url] = t
		c.order = append(c.order, t)
	}
	return t
}

// lock begins a change of state.
func (c *Client) lock() { c.mu.Lock() }

// unlock ends a change of state. After unlocking it wakes Wait, and starts a writer if there are
// requests and no writer.
func (c *Client) unlock() {
	waiters := c.waiters
	c.waiters = nil
	s := c.stream
	start := s != nil && !s.writing && len(s.outbox) > 0
	if start {
		s.writing = true
		s.writers.Add(1)
	}
	c.mu.Unlock()
	if waiters != nil {
		close(waiters)
	}
	if start {
		go c.write(s)
	}
}

// Run keeps a stream open until ctx ends or Leave is called, and then returns nil. With NoReconnect
// it returns the error of the first stream, which has that stream's gRPC status.
func (c *Client) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.lock()
	c.leave = cancel
	c.unlock()
	conn := c.cfg.Conn
	if conn == nil {
		own, err := dial(c.cfg.Target, c.cfg.Backoff, c.cfg.DialOptions)
		if err != nil {
			return fmt.Errorf("client %s: %w", c.ID(), err)
		}
		defer func() { _ = own.Close() }() // no request is pending
		conn = own
	}
	defer c.stopTimer()

	delay := c.cfg.Backoff.Base
	for ctx.Err() == nil {
		asked, answered, err := c.runStream(ctx, conn)
		if ctx.Err() != nil {
			return nil
		}
		if asked {
			delay = c.cfg.Backoff.Base
			continue
		}
		if c.cfg.NoReconnect {
			return fmt.Errorf("client %s: %w", c.ID(), err)
		}
		if answered {
			delay = c.cfg.Backoff.Base
		}
		c.sleep(ctx, delay)
		delay = min(2*delay, c.cfg.Backoff.Max)
	}
	return nil
}

// dial makes a connection. Its backoff is no longer than the client's, because the two add up. It
// connects at the first stream.
func dial(target string, b Backoff, opts []grpc.DialOption) (*grpc.ClientConn, error) {
	all := []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: b.Base, Multiplier: 2, Jitter: 0.2, MaxDelay: b.Max},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
	if len(opts) == 0 {
		all = append(all, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	conn, err := grpc.NewClient(target, append(all, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", target, err)
	}
	return conn, nil
}

// Wait returns when cond holds. It calls cond at once and after each change, without a lock, so
// that two calls within cond may see different states. An error describes what the client held when
// ctx ended.
func (c *Client) Wait(ctx context.Context, cond func(c *Client) bool) error {
	for {
		c.mu.Lock()
		if c.waiters == nil {
			c.waiters = make(chan struct{})
		}
		ch := c.waiters
		c.mu.Unlock()
		if cond(c) {
			return nil
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", c, ctx.Err())
		}
	}
}

// ID returns the node's id.
func (c *Client) ID() string { return c.cfg.Node.GetId() }

func (c *Client) Variant() Variant { return c.cfg.Variant }

// Connected reports whether a stream is open; the server may not have answered on it.
func (c *Client) Connected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stream != nil
}

// LastError returns the error of the last stream, with its gRPC status. It is nil if no stream has
// ended, and io.EOF if the server ended it with OK.
func (c *Client) LastError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastErr
}

// Resources returns the resources of a type that the client holds, by name.
func (c *Client) Resources(t xds.TypeURL) map[string]Resource {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.types[t]
	if s == nil {
		return nil
	}
	out := make(map[string]Resource, len(s.held))
	for name, e := range s.held {
		out[name] = e.Resource
	}
	return out
}

// Get returns one resource that the client holds.
func (c *Client) Get(t xds.TypeURL, name string) (Resource, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.types[t]; s != nil {
		if e := s.held[name]; e != nil {
			return e.Resource, true
		}
	}
	return Resource{}, false
}

// Len returns the number of resources of a type that the client holds.
func (c *Client) Len(t xds.TypeURL) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.types[t]; s != nil {
		return len(s.held)
	}
	return 0
}

// Names returns the subscribed names, sorted, and whether the wildcard is subscribed.
func (c *Client) Names(t xds.TypeURL) (names []string, wildcard bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.types[t]; s != nil {
		return slices.Sorted(maps.Keys(s.names)), s.wildcard
	}
	return nil, false
}

// Complete reports whether everything subscribed is answered: each wildcard, and each name (held or
// absent). No cluster may be warming.
func (c *Client) Complete() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.warming) > 0 {
		return false
	}
	for _, t := range c.order {
		if t.wildcard && !t.answered {
			return false
		}
		for name := range t.names {
			_, none := t.absent[name]
			if t.held[name] == nil && !none {
				return false
			}
		}
	}
	return true
}

// Counters returns the client's counters, summed over all types.
func (c *Client) Counters() Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := c.count
	for _, t := range c.order {
		sum.add(t.count)
	}
	return sum
}

func (c *Client) TypeCounters(t xds.TypeURL) Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.types[t]; s != nil {
		return s.count
	}
	return Counters{}
}

// Violations returns the server's first 100 violations of the protocol.
func (c *Client) Violations() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.violations)
}

// String describes the client and what it holds, for error messages.
func (c *Client) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "client %q (%s, %s)", c.cfg.Node.GetId(), c.cfg.Behaviour, c.cfg.Variant)
	if c.stream == nil {
		fmt.Fprintf(&b, " without a stream (last error: %v)", c.lastErr)
	}
	for _, t := range c.order {
		fmt.Fprintf(&b, ", %s %d", label(t.url), len(t.held))
		if len(t.names) > 0 {
			fmt.Fprintf(&b, " of %d", len(t.names))
		}
		if t.version != "" {
			fmt.Fprintf(&b, " at %q", t.version)
		}
	}
	if n := len(c.warming); n > 0 {
		fmt.Fprintf(&b, ", %d load assignments awaited", n)
	}
	return b.String()
}

func label(t xds.TypeURL) string {
	if s := xds.TypeOf(t).Short; s != "" {
		return s
	}
	return string(t)
}
