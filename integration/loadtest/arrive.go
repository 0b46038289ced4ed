//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// arrivals is the maximal number of rounds. Each takes seconds, and uses as many ports as clients
// for a while.
const arrivals = 5

// arrival is the cost of one round.
type arrival struct{ elapsed, cpu, resident float64 }

// studyArrive measures the time and the cost until all clients that connect at once have their
// first response. One client is connected before.
func studyArrive(ctx context.Context, o *options) (*study, error) {
	rounds := min(o.rounds, arrivals)
	s := &study{
		What:    fmt.Sprintf("%d clients arrive at once, and want %d bytes each; %d rounds, in turn", o.load.Clients, o.load.Bytes, rounds),
		Columns: []string{"until all in step ms", "× bare", "CPU ms", "× less than snapshot", "× less than linear", "RSS MB"},
	}
	var all []*contender
	defer stopAll(&all)
	for _, e := range o.among(answering...) {
		if err := o.withOne(ctx, &all, e); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	seen := make(map[string][]arrival)
	for r := range 1 + rounds { // the first grows the servers' memory
		o.log("round %d of %d", r, rounds)
		for k := range all {
			c := all[(k+r)%len(all)]
			a, err := c.arrival(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: round %d: %w", c.name, r, err)
			}
			if r > 0 {
				seen[c.name] = append(seen[c.name], a)
			}
		}
	}
	column := func(name string, what func(arrival) float64) []float64 {
		var out []float64
		for _, a := range seen[name] {
			out = append(out, what(a))
		}
		return out
	}
	elapsed, cpu := func(a arrival) float64 { return a.elapsed }, func(a arrival) float64 { return a.cpu }
	for _, c := range all {
		s.add(c.name,
			many(column(c.name, elapsed)), quotients(column(c.name, elapsed), column(nameBare, elapsed)),
			many(column(c.name, cpu)), quotients(column(nameSnapshot, cpu), column(c.name, cpu)), quotients(column(nameLinear, cpu), column(c.name, cpu)),
			many(column(c.name, func(a arrival) float64 { return a.resident })))
	}
	return s, nil
}

// withOne starts a server with one client.
func (o *options) withOne(ctx context.Context, all *[]*contender, e *entry) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startMost, fmt.Errorf("not connected after %s", startMost))
	defer cancel()
	c, err := o.begun(ctx, all, e)
	if err != nil {
		return err
	}
	l := c.load
	l.Clients = 1
	crowd, err := c.join(ctx, l)
	if err != nil {
		return err
	}
	_, err = c.awaitOf(ctx, crowd, 0)
	return err
}

// leaveMost bounds the time until a server has released clients that have left.
const leaveMost = 20 * time.Second

// arrival makes a crowd connect, and then disconnect.
func (c *contender) arrival(ctx context.Context) (arrival, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startMost, fmt.Errorf("not done after %s", startMost))
	defer cancel()
	crowd, err := c.joinAs(ctx, crowdSettings{Load: c.load, Later: true})
	if err != nil {
		return arrival{}, err
	}
	idle, err := settleFor(c.proc.pid(), leaveMost)
	if err != nil {
		return arrival{}, err
	}
	begin := monotonic()
	if _, err := crowd.ask(ctx, command{Do: doArrive}); err != nil {
		return arrival{}, err
	}
	r, err := c.awaitOf(ctx, crowd, 0)
	if err != nil {
		return arrival{}, err
	}
	used, err := settleFor(c.proc.pid(), leaveMost)
	if err != nil {
		return arrival{}, err
	}
	memory, err := resident(c.proc.pid())
	c.leave(crowd)
	return arrival{float64(r.Last-begin) / 1e6, float64(used-idle) / 1e6, float64(memory) / 1e6}, err
}

// leave ends a crowd.
func (c *contender) leave(crowd *child) {
	crowd.stop()
	c.crowds = slices.DeleteFunc(c.crowds, func(other *child) bool { return other == crowd })
}
