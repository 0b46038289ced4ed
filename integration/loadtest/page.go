//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"sync"
)

// studyPage measures what the admin page costs while it is open: rounds with a
// page that reads its events and without one, by turns, of the same relay and the
// same clients.
func studyPage(ctx context.Context, o *options) (*study, error) {
	s := &study{
		What:    fmt.Sprintf("%s, with the admin page open and without, by turns; %d rounds each", o.load, o.rounds),
		Columns: []string{"from trigger ms", "elapsed ms", "CPU ms"},
	}
	var all []*contender
	defer stopAll(&all)
	for _, e := range o.among(relayAlone...) {
		c, err := e.begin(ctx, o)
		if c != nil {
			all = append(all, c)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		if err := c.watched(ctx, o, s); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return s, nil
}

// watched does the rounds. Which of a pair comes first changes.
func (c *contender) watched(ctx context.Context, o *options, s *study) error {
	var got [2]struct{ latency, elapsed, cpu []float64 } // without, with
	events := 0
	for r := range warmups + o.rounds {
		o.log("round %d of %d", r-warmups+1, o.rounds)
		for i := range 2 {
			with := (i+r)%2 == 1
			one, seen, err := c.roundWith(ctx, with)
			if err != nil {
				return err
			}
			events += seen
			if r < warmups {
				continue
			}
			at := &got[0]
			if with {
				at = &got[1]
			}
			at.latency = append(at.latency, one.Latency.Seconds()*1e3)
			at.elapsed = append(at.elapsed, one.Elapsed.Seconds()*1e3)
			at.cpu = append(at.cpu, one.CPU.Seconds()*1e3)
		}
	}
	if events == 0 {
		return fmt.Errorf("the page was told nothing")
	}
	without, with := &got[0], &got[1]
	s.add("no page", many(without.latency), many(without.elapsed), many(without.cpu))
	s.add("a page open", many(with.latency), many(with.elapsed), many(with.cpu))
	s.add("what it costs", differences(with.latency, without.latency), differences(with.elapsed, without.elapsed), differences(with.cpu, without.cpu))
	return nil
}

// roundWith is a round, with a page that has been told how things stand, or
// without one. It returns how many events the page was told.
func (c *contender) roundWith(ctx context.Context, page bool) (sample, int, error) {
	if !page {
		s, err := c.round(ctx)
		return s, 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := c.admin.get(ctx, "/events")
	if err != nil {
		return sample{}, 0, err
	}
	told := make(chan struct{})
	n := 0
	var reading sync.WaitGroup
	reading.Go(func() {
		first := sync.OnceFunc(func() { close(told) })
		defer first()
		lines := bufio.NewReader(events)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if strings.HasPrefix(line, "data: ") {
				n++
				first()
			}
		}
	})
	<-told
	s, err := c.round(ctx)
	cancel()
	reading.Wait()
	_ = events.Close() // nobody reads it any more
	return s, n, err
}
