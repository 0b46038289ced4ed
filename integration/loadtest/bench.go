//go:build linux

package main

import (
	"context"
	"fmt"
	"time"
)

// options are the options of a run.
type options struct {
	load    load
	rounds  int
	only    []string // names of contenders; empty: all
	relay   string   // the binary; empty: built
	against string   // the binary of another relay that takes part; empty: none
	profile string   // directory for CPU profiles; empty: none
	busy    int      // seconds of each profile
	dir     string   // for the run's files
	log     func(format string, args ...any)
	rest    time.Duration // how long the relay's memory must not change to be at rest

	// More of the relay's configuration: ", key: value" of the two sections.
	downstream, upstream string
	// origins, if not nil, returns the addresses of the relay's origins in place of this one.
	origins func(origin string) ([]string, error)
}

// sample is the cost of one round for one contender.
type sample struct {
	// Elapsed is the time from the first byte of the new generation at any client to the last byte
	// at the last client.
	Elapsed time.Duration `json:"elapsed_ns"`
	// Latency has the same end, and begins when the server was told to serve the change. For the
	// relay, its origin was told.
	Latency time.Duration `json:"latency_ns"`
	// CPU is the server process's user and system time until it was quiet again. It includes ACKs
	// and garbage collection.
	CPU time.Duration `json:"cpu_ns"`
	// Allocated is the heap allocation of the server for each send, including its ACK, in bytes.
	Allocated float64 `json:"allocated_per_send"`
	// Resident is the server's memory after the round, in bytes.
	Resident int64 `json:"resident"`
}

const (
	// warmups are rounds before the first measured one. After them sockets have grown their buffers
	// and pools are filled.
	warmups = 2
	// roundMost bounds a round of one contender.
	roundMost = time.Minute
	// startMost bounds the start of a server and its crowd.
	startMost = 2 * time.Minute
)

// run starts all contenders, makes them run the rounds in turn, and returns the samples of each, by
// name. All stay connected. Idle connections cost nothing, and other load on the machine affects
// all alike.
func run(ctx context.Context, o *options) (map[string][]sample, error) {
	var in []*contender
	defer func() {
		for _, c := range in {
			c.stop()
		}
	}()
	for _, e := range o.entries() {
		if !o.wants(e.name) {
			continue
		}
		o.log("starting %s and %d clients", e.name, o.load.Clients)
		c, err := e.begin(ctx, o)
		if c != nil {
			in = append(in, c)
		}
		if err != nil {
			return nil, within(e.name, err)
		}
	}
	samples := make(map[string][]sample)
	for r := range warmups + o.rounds {
		o.log("round %d of %d", r-warmups+1, o.rounds)
		for i := range in {
			c := in[(i+r)%len(in)] // the order changes
			s, err := c.round(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: round %d: %w", c.name, r-warmups+1, err)
			}
			if r >= warmups {
				samples[c.name] = append(samples[c.name], s)
			}
		}
	}
	for _, c := range in {
		if err := o.profiles(ctx, c); err != nil {
			return nil, fmt.Errorf("%s: profile: %w", c.name, err)
		}
	}
	return samples, nil
}

func (o *options) wants(name string) bool {
	for _, n := range o.only {
		if n == name {
			return true
		}
	}
	return len(o.only) == 0 || name == nameOther
}

// begin starts the server and its crowd. The contender has to be stopped even after an error.
func (e *entry) begin(ctx context.Context, o *options) (*contender, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startMost, fmt.Errorf("not connected after %s", startMost))
	defer cancel()
	c, err := e.start(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := c.warm(ctx); err != nil {
		return c, err
	}
	return c, c.connect(ctx)
}

// warm makes the relay hold all names that clients will subscribe to. Otherwise a new name is
// answered only after the origin's response.
func (c *contender) warm(ctx context.Context) error {
	l := c.load
	if l.Names == 0 || c.name != nameRelay && c.name != nameOther {
		return nil
	}
	l.Delta, l.Asks = true, new(int)
	l.Clients = l.Clusters / l.Names
	l.Streams = min(l.Clients, 100)
	crowd, err := c.join(ctx, l)
	if err != nil {
		return err
	}
	_, err = c.awaitOf(ctx, crowd, 0)
	return err
}

// round pushes the next generation and measures it.
func (c *contender) round(ctx context.Context) (sample, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, roundMost, fmt.Errorf("not done after %s", roundMost))
	defer cancel()
	if err := c.prepare(ctx); err != nil {
		return sample{}, err
	}
	// Reading the counter allocates too, for the relay not little. The cost of one reading is the
	// difference of two successive ones.
	asked, err := c.allocated(ctx)
	if err != nil {
		return sample{}, err
	}
	before, err := c.allocated(ctx)
	if err != nil {
		return sample{}, err
	}
	idle, err := settle(c.proc.pid())
	if err != nil {
		return sample{}, err
	}
	begin := monotonic()
	seen, err := c.push(ctx)
	if err != nil {
		return sample{}, err
	}
	used, err := settle(c.proc.pid())
	if err != nil {
		return sample{}, err
	}
	after, err := c.allocated(ctx)
	if err != nil {
		return sample{}, err
	}
	memory, err := resident(c.proc.pid())
	return sample{
		Elapsed:   time.Duration(seen.Last - seen.First),
		Latency:   time.Duration(seen.Last - begin),
		CPU:       used - idle,
		Allocated: (float64(after-before) - float64(before-asked)) / float64(c.load.Clients),
		Resident:  memory,
	}, err
}

// prepare makes the next generation.
func (c *contender) prepare(ctx context.Context) error {
	_, err := c.feed.ask(ctx, command{Do: doPrepare, N: c.gen + 1})
	return err
}

// push serves the prepared generation, and waits until all clients have it.
func (c *contender) push(ctx context.Context) (round, error) {
	c.gen++
	if _, err := c.feed.ask(ctx, command{Do: doPush}); err != nil {
		return round{}, err
	}
	return c.await(ctx)
}

// busy pushes one generation after the other for this many seconds.
func (c *contender) busy(ctx context.Context, seconds int) error {
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); {
		if err := c.prepare(ctx); err != nil {
			return err
		}
		if _, err := c.push(ctx); err != nil {
			return err
		}
	}
	return nil
}
