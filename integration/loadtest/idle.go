//go:build linux

package main

import (
	"context"
	"fmt"
)

// idle is the load of clients that do nothing, under a key with so many
// clusters.
func idle(clusters int) load {
	// A cluster that is little more than its name: 5,000 clients get 10,000 each.
	return load{Clients: 5000, Bytes: slimBytes * clusters, Clusters: clusters, Slim: true}
}

// memory of a server: what the system says, and what its Go runtime says.
type memory struct {
	resident int64
	heap
}

func (c *contender) memory(ctx context.Context) (m memory, err error) {
	if m.heap, err = c.heap(ctx); err != nil {
		return m, err
	}
	m.resident, err = resident(c.proc.pid())
	return m, err
}

// atRest is the memory once garbage was collected and the runtime has given
// back what it is going to.
func (c *contender) atRest(ctx context.Context) (memory, error) {
	if _, err := c.rested(ctx); err != nil {
		return memory{}, err
	}
	return c.memory(ctx)
}

// memoryColumns are those of perEach.
var memoryColumns = []string{"KB each", "of it live", "stacks", "free, kept"}

// perEach is what each of so many more than there were before costs, in KB.
func (m memory) perEach(before memory, n int) []*spread {
	kb := func(bytes float64) *spread { return once(bytes / float64(n) / 1024) }
	return []*spread{
		kb(float64(m.resident - before.resident)),
		kb(m.Used - before.Used), kb(m.Stacks - before.Stacks), kb(m.Free - before.Free),
	}
}

// studyIdle measures what a stream costs in memory whose client has taken the
// first response and waits for the next. One client is there before, so that the
// key is.
func studyIdle(ctx context.Context, o *options) (*study, error) {
	over := "plaintext"
	if o.load.TLS != nil {
		over = "TLS"
	}
	s := &study{
		What:    fmt.Sprintf("%d idle streams over %s, a connection each, under a key with %d clusters", o.load.Clients, over, o.load.Clusters),
		Columns: append(append([]string{}, memoryColumns...), "KB each before garbage was collected", "RSS MB without them", "with"),
	}
	for _, e := range o.among(nameBare, nameRelay) {
		without, first, with, err := o.idle(ctx, e)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		s.add(e.name, append(with.perEach(without, o.load.Clients),
			first.perEach(without, o.load.Clients)[0], once(float64(without.resident)/1e6), once(float64(with.resident)/1e6))...)
	}
	return s, nil
}

// idle returns the memory of a server without the crowd, with it right after all
// took the first response, and at rest.
func (o *options) idle(ctx context.Context, e *entry) (without, first, with memory, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startMost, fmt.Errorf("not done after %s", startMost))
	defer cancel()
	var all []*contender
	defer stopAll(&all)
	c, err := o.begun(ctx, &all, e)
	if err != nil {
		return
	}
	one := o.load
	one.Clients = 1
	holder, err := c.join(ctx, one)
	if err != nil {
		return
	}
	if _, err = c.awaitOf(ctx, holder, 0); err != nil {
		return
	}
	if without, err = c.atRest(ctx); err != nil {
		return
	}
	if err = c.connect(ctx); err != nil {
		return
	}
	if first, err = c.memory(ctx); err != nil {
		return
	}
	if with, err = c.atRest(ctx); err != nil {
		return
	}
	err = o.heapProfiles(ctx, c)
	return
}
