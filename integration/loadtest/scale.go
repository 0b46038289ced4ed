//go:build linux

package main

import (
	"context"
	"fmt"
	"time"
)

// scale is the load of this many keys with 100 clusters and one client each. A hundred clients
// share a connection.
func scale(keys int) load {
	return load{Clients: keys, Keys: keys, Clusters: 100, Slim: true, Bytes: 100 * slimBytes, Streams: 100}
}

// ownScale is scale with different clusters for each key.
func ownScale(keys int) load {
	l := scale(keys)
	l.Own = true
	return l
}

const (
	// scaleMost bounds the study: its memory is at rest three times (restMost).
	scaleMost = 10 * time.Minute
	// scaleRounds are updates to each key, at most.
	scaleRounds = 3
)

// restingTime is how long a server at rest is measured. Tests use less.
var restingTime = 10 * time.Second

// studyScale measures the relay's cost of a key: in memory with a client and without, in CPU at
// rest, and in CPU for one update each.
func studyScale(ctx context.Context, o *options) (*study, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, scaleMost, fmt.Errorf("not done after %s", scaleMost))
	defer cancel()
	keys, rounds := o.load.Keys, min(o.rounds, scaleRounds)
	equal := "equal ones"
	if o.load.Own {
		equal = "its own"
	}
	s := &study{
		What: fmt.Sprintf("%d keys with %d clusters each, %s, and a client each; one update to each, %d rounds", keys, o.load.Clusters, equal, rounds),
		Columns: append(append([]string{}, memoryColumns...),
			"CPU at rest, % of a core", "all served s", "update: from trigger ms", "elapsed ms", "CPU µs/key"),
	}
	with := *o
	// All keys may be idle, including the first client's.
	with.upstream = fmt.Sprintf(", max_idle: %d, idle_ttl: 1h", keys+1)
	var all []*contender
	defer stopAll(&all)
	for _, e := range o.among(nameRelay) {
		c, err := with.begun(ctx, &all, e)
		if err != nil {
			return nil, err
		}
		if err := c.scale(ctx, s, rounds); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		if err := o.heapProfiles(ctx, c); err != nil {
			return nil, fmt.Errorf("%s: profile: %w", c.name, err)
		}
	}
	return s, nil
}

func (c *contender) scale(ctx context.Context, s *study, rounds int) error {
	keys := c.load.Keys
	one := c.load
	one.Clients = 1
	first, err := c.join(ctx, one)
	if err != nil {
		return err
	}
	if _, err := c.awaitOf(ctx, first, 0); err != nil {
		return err
	}
	before, err := c.atRest(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	if c.crowd, err = c.join(ctx, c.load); err != nil {
		return err
	}
	if _, err := c.await(ctx); err != nil {
		return err
	}
	ready := time.Since(begin)
	served, err := c.atRest(ctx)
	if err != nil {
		return err
	}
	resting, err := c.resting(ctx)
	if err != nil {
		return err
	}
	var late, within, cost []float64
	for range rounds {
		r, err := c.round(ctx)
		if err != nil {
			return err
		}
		late, within, cost = append(late, float64(r.Latency)/1e6), append(within, float64(r.Elapsed)/1e6), append(cost, float64(r.CPU)/1e3/float64(keys))
	}
	c.leave(c.crowd)
	if _, err := settleFor(c.proc.pid(), leaveMost); err != nil {
		return err
	}
	idle, err := c.atRest(ctx)
	if err != nil {
		return err
	}
	held, err := c.admin.sums(ctx, "xdsrelay_keys")
	if err != nil {
		return err
	}
	if int(held[0]) != keys {
		return fmt.Errorf("holds %v keys when their clients have left, not %d", held[0], keys)
	}
	s.add("keys with a client each", append(served.perEach(before, keys-1),
		once(resting), once(ready.Seconds()), many(late), many(within), many(cost))...)
	s.add("keys without clients", append(idle.perEach(before, keys-1), make([]*spread, len(s.Columns)-len(memoryColumns))...)...)
	return nil
}

// resting is the server's CPU use at rest, in percent of a core.
func (c *contender) resting(ctx context.Context) (float64, error) {
	was, err := settleFor(c.proc.pid(), leaveMost)
	if err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-time.After(restingTime):
	}
	now, err := cpu(c.proc.pid())
	return 100 * float64(now-was) / float64(restingTime), err
}
