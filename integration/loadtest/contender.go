//go:build linux

package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// contender is a server with a crowd of clients, each in a process of its own. Only one goroutine
// may use it.
type contender struct {
	name  string
	load  load
	proc  *child // the server
	feed  *child // gets new generations: the server, or its origin
	addr  string
	crowd *child        // the clients that a round waits for
	gen   int           // the last one pushed
	rest  time.Duration // how long its memory must not change to be at rest
	log   func(format string, args ...any)

	crowds []*child // all started ones

	admin admin // of the relay

	// allocated is how many bytes the server has ever allocated, including those for reporting it.
	allocated func(ctx context.Context) (uint64, error)
	// heap returns the memory that the server's Go runtime holds.
	heap func(ctx context.Context) (heap, error)
	// collect makes the server collect its garbage.
	collect func(ctx context.Context) error
	// profile writes a CPU profile of a busy server over this many seconds.
	profile func(ctx context.Context, path string, seconds int) error
	// heapProfile writes a profile of the server's heap.
	heapProfile func(ctx context.Context, path string) error
}

// heap is the memory that a process's Go runtime holds, in bytes.
type heap struct {
	Used   float64 `json:"used"`   // by objects, including dead ones
	Stacks float64 `json:"stacks"` // of goroutines
	Free   float64 `json:"free"`   // got from the system, not used, not given back
}

// entry is a contender before it is started.
type entry struct {
	name, what string
	start      func(ctx context.Context, o *options) (*contender, error)
}

// The baselines of ratios.
const (
	nameRaw      = "raw TCP"
	nameBare     = "bare gRPC"
	nameRelay    = "relay"
	nameSnapshot = "gcp snapshot"
	nameLinear   = "gcp linear"
	nameOther    = "other relay"
)

// other is the contender of -against.
var other = entry{nameOther, "the relay of -against, behind an origin of its own", func(ctx context.Context, o *options) (*contender, error) {
	with := *o
	with.relay = o.against
	c, err := startRelay(ctx, &with)
	if err == nil {
		c.name = nameOther
	}
	return c, err
}}

// entries are all contenders of the options, in the order of the table.
func (o *options) entries() []entry {
	if o.against == "" {
		return entries
	}
	return append(slices.Clone(entries), other)
}

// entries are those that need no option, in the order of the table.
var entries = []entry{
	{nameRaw, "the same bytes written to each socket, a goroutine each", ofRole(nameRaw, roleRaw)},
	{nameBare, "grpc-go with the shared bytes, no protocol state", ofRole(nameBare, roleBare)},
	{nameRelay, "this relay, one delta stream to a go-control-plane origin", startRelay},
	{nameSnapshot, "go-control-plane's server and snapshot cache", ofRole(nameSnapshot, roleSnapshot)},
	{nameLinear, "go-control-plane's server and linear cache, with the relay's transport options", ofRole(nameLinear, roleLinear)},
}

// ofRole starts a contender that is a child of this program.
func ofRole(name, role string) func(context.Context, *options) (*contender, error) {
	return func(ctx context.Context, o *options) (*contender, error) {
		proc, hello, err := startRole(ctx, name, role, o.load)
		if err != nil {
			return nil, err
		}
		c := &contender{name: name, load: o.load, log: o.log, proc: proc, feed: proc, addr: hello.Addr}
		c.allocated = func(ctx context.Context) (uint64, error) {
			r, err := proc.ask(ctx, command{Do: doStats})
			return r.Bytes, err
		}
		c.heap = func(ctx context.Context) (heap, error) {
			r, err := proc.ask(ctx, command{Do: doStats})
			return r.Heap, err
		}
		c.collect = func(ctx context.Context) error {
			_, err := proc.ask(ctx, command{Do: doCollect})
			return err
		}
		c.heapProfile = func(ctx context.Context, path string) error {
			_, err := proc.ask(ctx, command{Do: doHeapProfile, Path: path})
			return err
		}
		c.profile = func(ctx context.Context, path string, seconds int) error {
			if _, err := proc.ask(ctx, command{Do: doProfile, Path: path}); err != nil {
				return err
			}
			if err := c.busy(ctx, seconds); err != nil {
				return err
			}
			_, err := proc.ask(ctx, command{Do: doEndProfile})
			return err
		}
		return c, nil
	}
}

// connect starts the crowd and waits until all have the first generation.
func (c *contender) connect(ctx context.Context) error {
	crowd, err := c.join(ctx, c.load)
	if err != nil {
		return err
	}
	c.crowd = crowd
	if _, err := c.await(ctx); err != nil {
		return err
	}
	_, err = settle(c.proc.pid())
	return err
}

// join starts a crowd of clients.
func (c *contender) join(ctx context.Context, l load) (*child, error) {
	return c.joinAs(ctx, crowdSettings{Load: l})
}

// joinAs starts a crowd with its own settings.
func (c *contender) joinAs(ctx context.Context, s crowdSettings) (*child, error) {
	s.Addr, s.Raw, s.Readers = c.addr, c.name == nameRaw, runtime.GOMAXPROCS(0)
	crowd, _, err := startRole(ctx, "clients of "+c.name, roleCrowd, s)
	if err == nil {
		c.crowds = append(c.crowds, crowd)
	}
	return crowd, err
}

// await waits until all clients have the newest generation.
func (c *contender) await(ctx context.Context) (round, error) {
	return c.awaitOf(ctx, c.crowd, c.gen)
}

// awaitOf waits until all clients of a crowd have their nth generation.
func (c *contender) awaitOf(ctx context.Context, crowd *child, n int) (round, error) {
	r, err := crowd.ask(ctx, command{Do: doAwait, N: n})
	if err != nil {
		return round{}, fmt.Errorf("generation %d: %w%s", n, err, c.words())
	}
	want := c.load.size(n)
	most := want*12/10 + 500
	if c.name == nameSnapshot {
		// In SotW it repeats everything that a client subscribes to.
		most = max(most, c.load.size(0)*12/10+500)
	}
	if r.Round == nil || r.Round.Bytes < want*8/10 || r.Round.Bytes > most {
		return round{}, fmt.Errorf("%s: clients received %+v, which is no response of about %d bytes", c.name, r.Round, want)
	}
	return *r.Round, nil
}

// words is the server's own report about a fault that its clients saw.
func (c *contender) words() string {
	out := ""
	for _, p := range []*child{c.proc, c.feed} {
		if text := p.stderr.String(); text != "" {
			out += fmt.Sprintf("\n%s, standard error:\n%s", p.name, text)
		}
	}
	return out
}

// stop ends all its processes.
func (c *contender) stop() {
	for _, p := range append(c.crowds, c.proc, c.feed) {
		if p != nil {
			p.stop()
		}
	}
}
