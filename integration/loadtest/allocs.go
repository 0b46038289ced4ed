//go:build linux

package main

import (
	"context"
	"fmt"
)

// repeats is how many additional ACKs a response gets in every other round.
const repeats = 4

// studyAllocs divides a server's allocation for each client into sending a response and receiving
// its ACK. In every other round clients acknowledge several times, which shows the cost of one ACK.
func studyAllocs(ctx context.Context, o *options) (*study, error) {
	s := &study{
		What: fmt.Sprintf("One response of %d bytes to %d clients, which acknowledge it once and %d times, in turn; %d rounds each",
			o.load.Bytes, o.load.Clients, 1+repeats, o.rounds),
		Columns: []string{"to send, B", "to receive an ACK, B", "both, B"},
	}
	var all []*contender
	defer stopAll(&all)
	for _, e := range o.among(grpcs...) {
		c, err := e.begin(ctx, o)
		if c != nil {
			all = append(all, c)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	sends, acks, both := make(map[string][]float64), make(map[string][]float64), make(map[string][]float64)
	for r := range warmups + o.rounds {
		o.log("round %d of %d", r-warmups+1, o.rounds)
		for i := range all {
			c := all[(i+r)%len(all)]
			once, err := c.acknowledged(ctx, 1)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			often, err := c.acknowledged(ctx, 1+repeats)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			if r < warmups {
				continue
			}
			ack := (often - once) / repeats
			sends[c.name] = append(sends[c.name], once-ack)
			acks[c.name] = append(acks[c.name], ack)
			both[c.name] = append(both[c.name], once)
		}
	}
	for _, c := range all {
		s.add(c.name, many(sends[c.name]), many(acks[c.name]), many(both[c.name]))
	}
	return s, nil
}

// acknowledged is the allocation of a round for each client, if clients acknowledge this many
// times.
func (c *contender) acknowledged(ctx context.Context, times int) (float64, error) {
	if _, err := c.crowd.ask(ctx, command{Do: doAcknowledge, N: times}); err != nil {
		return 0, err
	}
	r, err := c.round(ctx)
	return r.Allocated, err
}
