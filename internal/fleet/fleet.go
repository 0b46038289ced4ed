package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
)

type Config struct {
	Target      string
	DialOptions []grpc.DialOption // none: plaintext
	Clients     int
	// Ramp spreads the first streams evenly over this time; 0: all at once.
	Ramp time.Duration

	// Client is the configuration of all clients. Target, Conn, DialOptions, Node and Variant are not used.
	Client ClientConfig
	// DeltaShare of the clients, from 0 to 1, use delta and the others SotW, evenly mixed.
	DeltaShare float64
	// Nodes returns the node of client i; nil: "client-<i>" in cluster "fleet".
	Nodes func(i int) *corev3.Node
	// Configure, if not nil, changes the configuration of client i.
	Configure func(i int, c *ClientConfig)
}

// Fleet is a set of clients of one target.
type Fleet struct {
	cfg     Config
	clients []*Client
}

// New makes a fleet. Run starts it.
func New(cfg Config) (*Fleet, error) {
	if cfg.Target == "" {
		return nil, errors.New("fleet: no target")
	}
	f := &Fleet{cfg: cfg}
	cache := new(refCache)
	for i := range cfg.Clients {
		cc := cfg.Client
		cc.Target, cc.DialOptions, cc.refs = cfg.Target, cfg.DialOptions, cache
		cc.Variant = SotW
		if int(float64(i+1)*cfg.DeltaShare) > int(float64(i)*cfg.DeltaShare) {
			cc.Variant = Delta
		}
		if cfg.Nodes != nil {
			cc.Node = cfg.Nodes(i)
		} else {
			cc.Node = &corev3.Node{Id: fmt.Sprintf("client-%d", i), Cluster: "fleet"}
		}
		if cfg.Configure != nil {
			cfg.Configure(i, &cc)
		}
		c, err := NewClient(cc)
		if err != nil {
			return nil, fmt.Errorf("fleet: client %d: %w", i, err)
		}
		f.clients = append(f.clients, c)
	}
	return f, nil
}

// Run runs all clients until all have ended. It returns nil if ctx ended, and otherwise the errors
// of clients with NoReconnect.
func (f *Fleet) Run(ctx context.Context) error {
	errs := make([]error, len(f.clients))
	var wg sync.WaitGroup
	for i, c := range f.clients {
		wg.Go(func() {
			if f.cfg.Ramp > 0 {
				select {
				case <-time.After(f.cfg.Ramp * time.Duration(i) / time.Duration(len(f.clients))):
				case <-ctx.Done():
					return
				}
			}
			errs[i] = c.Run(ctx)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Clients returns the clients in order. Do not change the slice.
func (f *Fleet) Clients() []*Client { return f.clients }

// WaitAll waits until cond has held for each client, each at its own time. The error names the
// first client for which it did not hold, and the number of others.
func (f *Fleet) WaitAll(ctx context.Context, cond func(c *Client) bool) error {
	for i, c := range f.clients {
		if err := c.Wait(ctx, cond); err != nil {
			left := 0
			for _, o := range f.clients[i+1:] {
				if !cond(o) {
					left++
				}
			}
			return fmt.Errorf("fleet: client %d, and %d after it: %w", i, left, err)
		}
	}
	return nil
}

// Counters returns the sums over all clients.
func (f *Fleet) Counters() Counters {
	var sum Counters
	for _, c := range f.clients {
		sum.add(c.Counters())
	}
	return sum
}

// Violations returns those of all clients, with the node's id.
func (f *Fleet) Violations() []string {
	var out []string
	for _, c := range f.clients {
		for _, v := range c.Violations() {
			out = append(out, c.ID()+": "+v)
		}
	}
	return out
}
