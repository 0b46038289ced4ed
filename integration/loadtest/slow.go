//go:build linux

package main

import (
	"context"
	"fmt"
	"time"
)

const (
	// slowMost bounds the study: memory is at rest four times (restMost), plus a minute of changes.
	slowMost = 12 * time.Minute
	// slowReceive is the socket buffer of a slow reader: the size before the kernel lets it grow.
	// Grown buffers of a thousand clients would exceed the kernel's limit for TCP on one machine.
	// The kernel would then drop packets, and only its retransmission timers would be measured.
	slowReceive = 128 << 10
	// cutBytes is the size of a response to readers that are to be disconnected: more than sockets
	// hold.
	cutBytes = 1_000_000
	// cutMost bounds the time until they are disconnected.
	cutMost = time.Minute
)

// side is one of the two compared relays: with slow readers, or without.
type side struct {
	*contender
	slow *child // nil: without

	before memory // while all still read
	kernel int64
	p99    []float64
	after  memory
}

// studySlow measures clients that stop reading. It measures their cost for other clients and for
// the relay, what they receive when they read again, and that they are disconnected.
func studySlow(ctx context.Context, o *options) (*study, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, slowMost, fmt.Errorf("not done after %s", slowMost))
	defer cancel()
	l := o.load
	rounds, every := warmups+o.rounds, time.Duration(l.EveryMS)*time.Millisecond
	pace := "one after the other"
	if every > 0 {
		rounds = max(l.Seconds*1000/l.EveryMS, 1)
		pace = fmt.Sprintf("one in %s", every)
	}
	s := &study{
		What: fmt.Sprintf("%d changes of %d bytes, %s, to %d clients, beside %d that stopped reading", rounds, l.Bytes, pace, l.Clients, l.Slow),
		Columns: []string{"p99 ms", "× without", "changes/s",
			"pinned KB/slow reader", "kernel", "private", "of that live",
			"newest to all after s", "in responses", "cut by send_timeout s", "first cut by pinned_bytes s"},
	}
	if !o.wants(nameRelay) {
		return s, nil
	}
	var all []*contender
	defer stopAll(&all)
	var sides []*side
	for _, slow := range []int{0, l.Slow} {
		p, err := o.side(ctx, &all, slow)
		if err != nil {
			return nil, err
		}
		sides = append(sides, p)
	}
	begin := time.Now()
	for r := range rounds {
		if r%10 == 0 {
			o.log("change %d of %d", r+1, rounds)
		}
		for k := range sides {
			if err := sides[(k+r)%len(sides)].change(ctx); err != nil {
				return nil, err
			}
		}
		if ahead := time.Until(begin.Add(time.Duration(r+1) * every)); ahead > 0 {
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(ahead):
			}
		}
	}
	rate := once(float64(rounds) / time.Since(begin).Seconds())
	for _, p := range sides {
		if err := p.measure(ctx); err != nil {
			return nil, err
		}
	}
	without, with := sides[0], sides[1]
	if err := o.heapProfiles(ctx, with.contender); err != nil {
		return nil, err
	}
	again, count, err := with.again(ctx)
	if err != nil {
		return nil, err
	}
	stopAll(&all)
	all = nil
	timeout, err := o.cut(ctx, &all, "send_timeout", ", send_timeout: 2s", l.Slow)
	if err != nil {
		return nil, err
	}
	pinned, err := o.cut(ctx, &all, "pinned_bytes", fmt.Sprintf(", limits: {pinned_bytes: %d}", cutBytes/10), 1)
	if err != nil {
		return nil, err
	}
	resident, live := func(m memory) float64 { return float64(m.resident) }, func(m memory) float64 { return m.Used }
	grown := func(what func(memory) float64) float64 {
		return what(with.after) - what(with.before) - what(without.after) + what(without.before)
	}
	each := func(bytes float64) *spread { return once(bytes / float64(l.Slow) / 1024) }
	kernel, private := float64(with.kernel-without.kernel), grown(resident)
	s.add("without slow readers", many(without.p99), once(1), rate, nil, nil, nil, nil, nil, nil, nil, nil)
	s.add(fmt.Sprintf("with %d slow readers", l.Slow), many(with.p99), quotients(with.p99, without.p99), rate,
		each(kernel+private), each(kernel), each(private), each(grown(live)), once(again.Seconds()), once(float64(count)),
		once(timeout.Seconds()), once(pinned.Seconds()))
	return s, nil
}

// side starts a relay with clients that read, and this many that have stopped.
func (o *options) side(ctx context.Context, all *[]*contender, slow int) (*side, error) {
	with := *o
	// The slow readers do not answer pings either, and must not be disconnected yet. With a short
	// ack_timeout their sockets are soon full, which is the worst case.
	with.downstream = ", ack_timeout: 500ms, send_timeout: 1h, keepalive: {time: 1h}"
	p := &side{}
	var err error
	for _, e := range with.among(nameRelay) {
		if p.contender, err = with.begun(ctx, all, e); err != nil {
			return nil, err
		}
	}
	if slow > 0 {
		l := p.load
		l.Clients = slow
		if p.slow, err = p.joinAs(ctx, crowdSettings{Load: l, Newest: true, Receive: slowReceive}); err != nil {
			return nil, err
		}
		if _, err := p.awaitOf(ctx, p.slow, 0); err != nil {
			return nil, err
		}
	}
	if err := p.connect(ctx); err != nil {
		return nil, err
	}
	for range warmups {
		if err := p.change(ctx); err != nil {
			return nil, err
		}
	}
	p.p99 = nil
	if p.before, err = p.atRest(ctx); err != nil {
		return nil, err
	}
	if p.slow != nil {
		_, err = p.slow.ask(ctx, command{Do: doStop})
	}
	return p, err
}

// change serves the next generation. It records when 99 % of the reading clients had it.
func (p *side) change(ctx context.Context) error {
	if err := p.prepare(ctx); err != nil {
		return err
	}
	begin := monotonic()
	r, err := p.push(ctx)
	p.p99 = append(p.p99, float64(r.P99-begin)/1e6)
	return err
}

// measure records the current memory.
func (p *side) measure(ctx context.Context) error {
	if _, err := settleFor(p.proc.pid(), leaveMost); err != nil {
		return err
	}
	var err error
	if p.kernel, err = kernelBytes(p.addr); err != nil {
		return err
	}
	p.after, err = p.atRest(ctx)
	return err
}

// again makes the slow readers read. It returns the time until all have the newest, and the largest
// number of responses to one of them.
func (p *side) again(ctx context.Context) (time.Duration, int, error) {
	begin := time.Now()
	if _, err := p.slow.ask(ctx, command{Do: doRead}); err != nil {
		return 0, 0, err
	}
	r, err := p.slow.ask(ctx, command{Do: doNewest, N: p.gen})
	if err != nil {
		return 0, 0, fmt.Errorf("the newest to clients that read again: %w%s", err, p.words())
	}
	// Before they stopped they had the first response and the warm-ups.
	return time.Since(begin), r.Count - 1 - warmups, nil
}

// cut starts a relay with another configuration and readers that stop. It returns the time until
// this many of them were disconnected for this reason.
func (o *options) cut(ctx context.Context, all *[]*contender, reason, config string, most int) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, cutMost, fmt.Errorf("%s: not cut after %s", reason, cutMost))
	defer cancel()
	with := *o
	with.downstream = ", ack_timeout: 100ms" + config
	with.load = load{Clients: 1, Bytes: cutBytes}
	for _, e := range with.among(nameRelay) {
		c, err := with.begun(ctx, all, e)
		if err != nil {
			return 0, err
		}
		if err := c.connect(ctx); err != nil {
			return 0, err
		}
		l := with.load
		l.Clients = o.load.Slow
		slow, err := c.joinAs(ctx, crowdSettings{Load: l, Receive: slowReceive})
		if err != nil {
			return 0, err
		}
		if _, err := c.awaitOf(ctx, slow, 0); err != nil {
			return 0, err
		}
		if _, err := slow.ask(ctx, command{Do: doStop}); err != nil {
			return 0, err
		}
		begin := time.Now()
		for {
			// Grown sockets hold more than one response.
			if err := c.prepare(ctx); err != nil {
				return 0, err
			}
			if _, err := c.push(ctx); err != nil {
				return 0, err
			}
			n, err := c.admin.sums(ctx, `xdsrelay_refused_total{reason="`+reason+`"}`)
			if err != nil {
				return 0, err
			}
			if int(n[0]) >= most {
				return time.Since(begin), nil
			}
			select {
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	return 0, nil
}
