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

// Client is one simulated xDS client.
type Client struct {
	cfg ClientConfig

	// wake makes Run look again at what it waits for between streams.
	wake chan struct{}

	mu sync.Mutex
	// All below is guarded by mu. Changed between lock and unlock, which wakes
	// those who wait.
	waiters chan struct{} // closed at the next change; nil: nobody waits
	running bool
	stream  *stream // nil between streams
	lastErr error   // of the last stream that ended
	next    Memory  // for the next stream
	offline bool
	stalled chan struct{} // closed by Resume; nil: not stalled

	types map[xds.TypeURL]*typeState
	order []*typeState // in the order in which they were first asked for

	warming   map[string]*warmth // by the load assignment's name
	warmTimer *time.Timer
	started   bool // Listener was asked for

	refuse   func(xds.TypeURL, []Resource) error
	ackDelay time.Duration
	holdAcks bool // of all types
	ackTimer *time.Timer

	violations []string
	count      Counters // those that no type has
}

// NewClient makes a client; Run starts it.
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
		cfg:      cfg,
		wake:     make(chan struct{}, 1),
		next:     KeepVersions,
		types:    make(map[xds.TypeURL]*typeState),
		warming:  make(map[string]*warmth),
		refuse:   cfg.Refuse,
		ackDelay: cfg.AckDelay,
	}
	c.begin()
	return c, nil
}

// begin is what the client wants before it has been told anything.
func (c *Client) begin() {
	switch c.cfg.Behaviour {
	case Envoy:
		c.typ(xds.ClusterType).wantWildcard()
		c.started = !c.cfg.ListenersLast
		if c.started {
			c.typ(xds.ListenerType).wantWildcard()
		}
	case GRPC:
		c.typ(xds.ListenerType).setNames(map[string]struct{}{c.cfg.Listener: {}})
	case Raw:
		for _, s := range c.cfg.Subscribe {
			c.typ(s.Type).replace(s.Names)
		}
	}
}

// typ is the state of a type, made when first asked for. Needs mu.
func (c *Client) typ(url xds.TypeURL) *typeState {
	t := c.types[url]
	if t == nil {
		t = newTypeState(url)
		c.types[url] = t
		c.order = append(c.order, t)
	}
	return t
}

// lock begins a change.
func (c *Client) lock() { c.mu.Lock() }

// unlock ends a change, and does what must not be done under the lock: it wakes
// those who wait, starts a writer if there is something to write and none is at
// it, and ends a stream whose outbox overflowed.
func (c *Client) unlock() {
	waiters := c.waiters
	c.waiters = nil
	s := c.stream
	start := s != nil && !s.writing && len(s.outbox) > 0
	if start {
		s.writing = true
		s.writers.Add(1)
	}
	drowned := s != nil && s.drowned
	c.mu.Unlock()
	if waiters != nil {
		close(waiters)
	}
	if start {
		go c.write(s)
	}
	if drowned {
		s.cancel()
	}
}

// Run keeps a stream open until ctx ends, and then returns nil. With
// NoReconnect it returns the error with which the first stream ended, which
// has that stream's gRPC status.
func (c *Client) Run(ctx context.Context) error {
	c.lock()
	again := c.running
	c.running = true
	c.unlock()
	if again {
		return errors.New("client: run called twice")
	}
	conn := c.cfg.Conn
	if conn == nil {
		own, err := dial(c.cfg.Target, c.cfg.Backoff, c.cfg.DialOptions)
		if err != nil {
			return fmt.Errorf("client %s: %w", c.ID(), err)
		}
		defer func() { _ = own.Close() }() // nothing is left to be said on it
		conn = own
	}
	defer c.stopTimers()

	delay := c.cfg.Backoff.Base
	for c.waitOnline(ctx) {
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

// dial makes a connection whose own backoff is no longer than the client's:
// else the two would add up. It connects with the first stream.
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

// Wait returns when cond holds. It is asked at once and after each change,
// without a lock: two calls in it may see different moments. An error says
// what the client held when ctx ended.
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

// ID is the node's.
func (c *Client) ID() string { return c.cfg.Node.GetId() }

// Variant is the client's.
func (c *Client) Variant() Variant { return c.cfg.Variant }

// Behaviour is the client's.
func (c *Client) Behaviour() Behaviour { return c.cfg.Behaviour }

// Connected reports whether a stream is open; the server need not have
// answered on it.
func (c *Client) Connected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stream != nil
}

// LastError is the error with which the last stream ended, with its gRPC
// status; nil if none has ended, io.EOF if the server ended it with OK.
func (c *Client) LastError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastErr
}

// Held is what the client holds of a type, by name.
func (c *Client) Held(t xds.TypeURL) map[string]Resource {
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

// Get is one resource that the client holds.
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

// Len is how many resources of a type the client holds.
func (c *Client) Len(t xds.TypeURL) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.types[t]; s != nil {
		return len(s.held)
	}
	return 0
}

// Version is the version_info or system_version_info of the last response of
// a type that the client took.
func (c *Client) Version(t xds.TypeURL) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.types[t]; s != nil {
		return s.version
	}
	return ""
}

// Answered reports whether the client ever took a response of a type.
func (c *Client) Answered(t xds.TypeURL) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.types[t]
	return s != nil && s.answered
}

// Names is what the client asks for by name, sorted, and whether it asks for
// the wildcard.
func (c *Client) Names(t xds.TypeURL) (names []string, wildcard bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.types[t]; s != nil {
		return slices.Sorted(maps.Keys(s.names)), s.wild()
	}
	return nil, false
}

// Absent is the names asked for that the server said on this stream not to
// have, sorted (incremental only).
func (c *Client) Absent(t xds.TypeURL) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.types[t]; s != nil {
		return slices.Sorted(maps.Keys(s.absent))
	}
	return nil
}

// Complete reports whether all that the client asks for was answered: each
// wildcard, each name (held, or absent), and no cluster is warming.
func (c *Client) Complete() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.warming) > 0 || c.cfg.Behaviour == Envoy && !c.started {
		return false
	}
	for _, t := range c.order {
		if t.wild() && !t.answered {
			return false
		}
		for name := range t.names {
			_, none := t.absent[name]
			if t.held[name] == nil && !none && !t.heldByAlias(name) {
				return false
			}
		}
	}
	return true
}

// Counters are the client's, of all types together.
func (c *Client) Counters() Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := c.count
	for _, t := range c.order {
		sum.add(t.count)
	}
	return sum
}

// TypeCounters are those of one type.
func (c *Client) TypeCounters(t xds.TypeURL) Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.types[t]; s != nil {
		return s.count
	}
	return Counters{}
}

// Violations is what the server did that the protocol forbids, the first 100.
func (c *Client) Violations() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.violations)
}

// String says what the client is and holds, for messages.
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
