//go:build linux

package loadtest

import (
	"time"

	"xdsrelay/internal/xdstest"
)

// memory is a server's memory in bytes: the system's number without the free memory that the Go
// runtime keeps, and the runtime's numbers.
type memory struct {
	resident float64
	used     float64 // by objects, including dead ones
	stacks   float64 // of goroutines
	free     float64 // got from the system, not used, not given back
}

func (c *contender) memory() (m memory) {
	m.used, m.stacks = c.metric("go_memstats_heap_alloc_bytes"), c.metric("go_memstats_stack_inuse_bytes")
	m.free = c.metric("go_memstats_heap_sys_bytes") - c.metric("go_memstats_heap_released_bytes") - m.used
	m.resident = float64(c.Usage().RSS) - m.free
	return m
}

// Memory is at rest when it has changed by at most restBytes for restTime.
const (
	restBytes = 1 << 20
	restTime  = 2 * time.Second
	restMost  = time.Minute
)

// atRest is the memory after garbage collection, once the runtime has returned free memory. It logs
// that the memory is not at rest after restMost, because the numbers are then less reliable.
func (b *bench) atRest(c *contender) memory {
	c.settle()
	c.collect()
	wait := restTime
	if b.small {
		wait = 50 * time.Millisecond
	}
	before := c.Usage().RSS
	for end := time.Now().Add(restMost); ; {
		xdstest.Pause(b, wait)
		now := c.Usage().RSS
		moved := now - before
		before = now
		if max(moved, -moved) < restBytes {
			break
		}
		if time.Now().After(end) {
			b.Logf("%s: its memory is not at rest: it changed by %d KB in the last %s", c.name, moved>>10, wait)
			break
		}
	}
	return c.memory()
}

// each divides the growth since before by n.
func (m memory) each(before memory, n int, of string) []value {
	f := float64(n)
	return []value{
		{(m.resident - before.resident) / f, "B/" + of},
		{(m.used - before.used) / f, "live-B/" + of},
		{(m.stacks - before.stacks) / f, "stacks-B/" + of},
		{(m.free - before.free) / f, "free-B/" + of},
	}
}

// idle is the load of clients that do nothing, under a key with this many clusters.
func idle(clusters int) load {
	// A cluster is little more than its name: 5,000 clients get 10,000 each.
	return load{Clients: 5000, Bytes: slimBytes * clusters, Clusters: clusters, Slim: true}
}

// measureIdle measures the memory of a stream whose client has received the first response and waits
// for the next. One client connects before, so that the key exists. Each round has servers of its own,
// because one that had a crowd before still has memory from it.
func measureIdle(b *bench) {
	for range min(b.rounds, 3) {
		for _, name := range []string{nameBare, nameRelay} {
			c := b.start(name, nil)
			c.first()
			before := b.atRest(c)
			c.connect()
			early := c.memory()
			values := b.atRest(c).each(before, b.load.Clients, "stream")
			values = append(values, value{early.each(before, b.load.Clients, "")[0].of, "early-B/stream"}, value{before.resident, "process-B"})
			b.print(name, values...)
			c.crowd.close()
			c.Kill()
		}
	}
}

// scale is the load of this many keys with 100 clusters and one client each. A hundred clients
// share a connection.
func scale(keys int) load {
	return load{Clients: keys, Keys: keys, Clusters: 100, Slim: true, Bytes: 100 * slimBytes, Streams: 100}
}

// own gives each key different clusters.
func (l load) ownKeys() load { l.Own = true; return l }

// measureScale measures the relay's cost of a key: in memory with a client and without, in CPU at
// rest, and in CPU for one update each.
func measureScale(b *bench) {
	keys := b.load.Keys
	// All keys may be idle, including the first client's.
	c := b.start(nameRelay, xdstest.Config{"upstream.max_idle": keys + 1, "upstream.idle_ttl": "1h"})
	c.first()
	before := b.atRest(c)
	begin := time.Now()
	c.crowd = c.join(crowdSettings{load: c.load})
	b.print(nameRelay, value{float64(time.Since(begin)), "all-served-ns"})
	b.print(nameRelay, append(b.atRest(c).each(before, keys-1, "key"), value{b.resting(c)[0], "rest-%core"})...)
	for range min(b.rounds, 3) {
		s := c.round()
		b.print(nameRelay, value{float64(s.latency), "latency-ns"}, value{float64(s.elapsed), "elapsed-ns"},
			value{float64(s.cpu) / float64(keys), "cpu-ns/key"})
	}
	c.crowd.close()
	b.print(nameRelay, b.atRest(c).each(before, keys-1, "idle-key")...)
	if held := c.metric("xdsrelay_keys"); int(held) != keys {
		b.Errorf("holds %v keys when their clients have left, not %d", held, keys)
	}
}

// resting is the CPU use of servers at rest, over the same minute, in percent of a core. The relay
// pings silent connections once a minute.
func (b *bench) resting(servers ...*contender) (out []float64) {
	wait := time.Minute
	if b.small {
		wait = 100 * time.Millisecond
	}
	for _, c := range servers {
		c.collect()
	}
	for _, c := range servers {
		c.settle()
	}
	before := b.used(servers...)
	xdstest.Pause(b, wait)
	for i, now := range b.used(servers...) {
		out = append(out, 100*float64(now-before[i])/float64(wait))
	}
	return out
}

// used is the CPU time of servers.
func (b *bench) used(servers ...*contender) (out []time.Duration) {
	for _, c := range servers {
		out = append(out, cpu(b, c.PID()))
	}
	return out
}
