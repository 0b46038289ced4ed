//go:build linux

package loadtest

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"time"
)

// contenders are those of rounds, in the order of their first turn. SERVERS has other ones, with
// commas between.
var contenders = strings.Split(cmp.Or(os.Getenv("SERVERS"), "raw,bare,relay,snapshot,linear"), ",")

// sample is the cost of one round for one contender.
type sample struct {
	// elapsed is the time from the first byte of the new generation at any client to the last byte at
	// the last client. latency has the same end, and begins when the server was told to serve the
	// change. For the relay, its origin was told.
	elapsed, latency time.Duration
	// cpu is the server process's user and system time until it was quiet again. It includes ACKs and
	// garbage collection.
	cpu time.Duration
	// allocated is the heap allocation of the server for each send, including its ACK, in bytes.
	allocated float64
}

// round changes the resources, and measures the change.
func (c *contender) round() sample {
	c.t.Helper()
	push := c.next(c.gen + 1)
	// Reading the counter allocates too, for the relay not little. The cost of one reading is the
	// difference of two successive ones.
	asked := c.allocated()
	before := c.allocated()
	idle := c.settle()
	begin := monotonic()
	c.gen++
	push()
	r := c.await(c.crowd, c.gen)
	s := sample{elapsed: time.Duration(r.last - r.first), latency: time.Duration(r.last - begin), cpu: c.settle() - idle}
	s.allocated = (c.allocated() - before - (before - asked)) / float64(c.load.Clients)
	if s.elapsed <= 0 || s.latency < s.elapsed || s.cpu <= 0 {
		c.t.Fatalf("%s: not measured: %+v", c.name, s)
	}
	return s
}

// measureRounds makes all servers run the rounds in turn. All stay connected. Idle connections cost
// nothing, and other load on the machine affects all alike.
func measureRounds(b *bench) {
	var in []*contender
	for _, name := range contenders {
		c := b.start(name, nil)
		c.warm()
		c.connect()
		in = append(in, c)
	}
	for r := range warmups + b.rounds {
		got := make(map[string]sample)
		for i := range in {
			c := in[(i+r)%len(in)] // the order changes
			got[c.name] = c.round()
		}
		if r < warmups {
			continue
		}
		for _, c := range in {
			s := got[c.name]
			values := []value{
				{float64(s.elapsed), "elapsed-ns"}, {float64(s.latency), "latency-ns"},
				{float64(s.cpu), "cpu-ns"}, {float64(s.cpu) / float64(b.load.Clients), "cpu-ns/client"},
				{s.allocated, "B/client"}, {float64(c.Usage().RSS), "rss-B"},
			}
			for _, base := range []string{nameRaw, nameBare, nameRelay} {
				if !slices.Contains(contenders, base) {
					continue
				}
				values = append(values,
					value{float64(s.elapsed) / float64(got[base].elapsed), "elapsed/" + base},
					value{float64(s.cpu) / float64(got[base].cpu), "cpu/" + base})
			}
			b.print(c.name, values...)
		}
	}
	if dir := os.Getenv("PROFILES"); dir != "" {
		in[slices.Index(contenders, nameRelay)].profile(dir)
	}
}
