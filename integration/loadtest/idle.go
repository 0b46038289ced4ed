//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// idle is the load of clients that do nothing, under a key with this many clusters.
func idle(clusters int) load {
	// A cluster is little more than its name: 5,000 clients get 10,000 each.
	return load{Clients: 5000, Bytes: slimBytes * clusters, Clusters: clusters, Slim: true}
}

// memory is a server's memory: the system's number without the free memory that the Go runtime
// keeps, and the runtime's numbers.
type memory struct {
	resident int64
	heap
}

func (c *contender) memory(ctx context.Context) (m memory, err error) {
	if m.heap, err = c.heap(ctx); err != nil {
		return m, err
	}
	m.resident, err = resident(c.proc.pid())
	m.resident -= int64(m.Free)
	return m, err
}

// atRest is the memory after garbage collection, once the runtime has returned free memory.
func (c *contender) atRest(ctx context.Context) (memory, error) {
	if err := c.rested(ctx); err != nil {
		return memory{}, err
	}
	return c.memory(ctx)
}

// memoryColumns are the columns of perEach.
var memoryColumns = []string{"KB each", "of it live", "stacks", "free, kept"}

// each divides the growth since before by n, in KB, in the order of memoryColumns.
func (m memory) each(before memory, n int) []float64 {
	kb := func(bytes float64) float64 { return bytes / float64(n) / 1024 }
	return []float64{
		kb(float64(m.resident - before.resident)),
		kb(m.Used - before.Used), kb(m.Stacks - before.Stacks), kb(m.Free - before.Free),
	}
}

// perEach is each, as measured once.
func (m memory) perEach(before memory, n int) (out []*spread) {
	for _, v := range m.each(before, n) {
		out = append(out, once(v))
	}
	return out
}

const (
	// idleRounds is the maximal number of servers of each kind. Each round has its own server,
	// because one that had a crowd before still has memory from it.
	idleRounds = 3
	// idleMost bounds the study: memory is at rest twice (restMost).
	idleMost = 10 * time.Minute
)

// idler is one server of a round.
type idler struct {
	*contender
	round                int
	without, first, with memory // before the crowd; right after all had the first response; at rest
}

// studyIdle measures the memory of a stream whose client has received the first response and waits
// for the next. One client connects before, so that the key exists. Servers of all rounds come to
// rest at the same time, because that takes long. Crowds connect one after the other.
func studyIdle(ctx context.Context, o *options) (*study, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, idleMost, fmt.Errorf("not done after %s", idleMost))
	defer cancel()
	over, rounds := "plaintext", min(o.rounds, idleRounds)
	if o.load.TLS != nil {
		over = "TLS"
	}
	s := &study{
		What: fmt.Sprintf("%d idle streams over %s, a connection each, under a key with %d clusters; %d servers of each kind, in turn",
			o.load.Clients, over, o.load.Clusters, rounds),
		Columns: append(append([]string{}, memoryColumns...), "KB each before garbage was collected", "RSS MB without them", "with"),
	}
	var all []*contender
	defer stopAll(&all)
	var in []*idler
	kinds := o.among(grpcs...)
	for r := range rounds {
		for k := range kinds {
			if err := o.withOne(ctx, &all, kinds[(k+r)%len(kinds)]); err != nil {
				return nil, fmt.Errorf("%s: %w", kinds[(k+r)%len(kinds)].name, err)
			}
			in = append(in, &idler{contender: all[len(all)-1], round: r})
		}
	}
	resting, at := errgroup.WithContext(ctx)
	for _, i := range in {
		resting.Go(func() (err error) {
			i.without, err = i.atRest(at)
			return err
		})
	}
	if err := resting.Wait(); err != nil {
		return nil, err
	}
	resting, at = errgroup.WithContext(ctx)
	for _, i := range in {
		o.log("round %d of %d: %s", i.round+1, rounds, i.name)
		err := i.connect(at)
		if err == nil {
			i.first, err = i.memory(at)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", i.name, err)
			resting.Go(func() error { return err })
			break
		}
		resting.Go(func() (err error) {
			i.with, err = i.atRest(at)
			return err
		})
	}
	if err := resting.Wait(); err != nil {
		return nil, err
	}
	for _, e := range kinds {
		values := make([][]float64, len(s.Columns))
		for _, i := range in {
			if i.name != e.name {
				continue
			}
			row := append(i.with.each(i.without, o.load.Clients),
				i.first.each(i.without, o.load.Clients)[0], float64(i.without.resident)/1e6, float64(i.with.resident)/1e6)
			for c, v := range row {
				values[c] = append(values[c], v)
			}
		}
		row := make([]*spread, len(values))
		for c := range values {
			row[c] = many(values[c])
		}
		s.add(e.name, row...)
	}
	for _, i := range in[:len(kinds)] {
		if err := o.heapProfiles(ctx, i.contender); err != nil {
			return nil, err
		}
	}
	return s, nil
}
