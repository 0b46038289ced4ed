//go:build linux

package main

import (
	"context"
	"fmt"
)

// eds is the load of clients that ask for 100 of 10,000 load assignments.
func eds(clients int) load {
	return load{Clients: clients, Bytes: 1000, Clusters: 10_000, Names: 100}
}

func (l load) apart() load { l.Apart = true; return l }
func (l load) delta() load { l.Delta = true; return l }

const (
	// wanted is how many clients want what changes, in the study of those who do
	// not.
	wanted = 10
	// changesPerRound is how often it changes in one round: once is too little
	// to measure.
	changesPerRound = 10
)

// studyUnwanted measures what it costs that others are connected who do not want
// the name that changes: the same change with them and without, in turn.
func studyUnwanted(ctx context.Context, o *options) (*study, error) {
	s := &study{
		What: fmt.Sprintf("A change of one load assignment that %d of %d clients want, each of which asked for %d of %d; %d rounds of %d",
			wanted, o.load.Clients, o.load.Names, o.load.Clusters, o.rounds, changesPerRound),
		Columns: []string{"CPU µs/change", "× without the others", "from trigger ms", "CPU at rest, % of a core"},
	}
	var all []*contender
	defer stopAll(&all)
	var in []*contender // without the others, and with them
	for _, e := range o.among(nameRelay) {
		for _, others := range []int{0, o.load.Clients - wanted} {
			c, err := o.unwanted(ctx, &all, e, others)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", e.name, err)
			}
			in = append(in, c)
		}
	}
	rest := make([]float64, len(in))
	for i, c := range in {
		var err error
		if rest[i], err = c.resting(ctx); err != nil {
			return nil, err
		}
	}
	costs, late := make([][]float64, len(in)), make([][]float64, len(in))
	for r := range warmups + o.rounds {
		o.log("round %d of %d", r-warmups+1, o.rounds)
		for k := range in {
			i := (k + r) % len(in)
			cost, latency := 0.0, 0.0
			for range changesPerRound {
				s, err := in[i].round(ctx)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", in[i].name, err)
				}
				cost += float64(s.CPU) / 1e3 / changesPerRound
				latency += float64(s.Latency) / 1e6 / changesPerRound
			}
			if r >= warmups {
				costs[i], late[i] = append(costs[i], cost), append(late[i], latency)
			}
		}
	}
	for i, c := range in {
		name, to := fmt.Sprintf("%s, the %d alone", c.name, wanted), i
		if i%2 == 1 {
			name, to = fmt.Sprintf("%s, with %d others", c.name, o.load.Clients-wanted), i-1
		}
		s.add(name, many(costs[i]), quotients(costs[i], costs[to]), many(late[i]), once(rest[i]))
	}
	return s, nil
}

// unwanted starts a server with those who want what changes, and so many others.
func (o *options) unwanted(ctx context.Context, all *[]*contender, e *entry, others int) (*contender, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startMost, fmt.Errorf("not connected after %s", startMost))
	defer cancel()
	c, err := o.begun(ctx, all, e)
	if err != nil {
		return nil, err
	}
	if err := c.warm(ctx); err != nil {
		return nil, err
	}
	if others > 0 {
		l := c.load
		l.Clients, l.Asks = others, &l.Names // all but the first block
		crowd, err := c.join(ctx, l)
		if err != nil {
			return nil, err
		}
		if _, err := c.awaitOf(ctx, crowd, 0); err != nil {
			return nil, err
		}
	}
	c.load.Clients = wanted
	return c, c.connect(ctx)
}
