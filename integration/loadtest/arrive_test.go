//go:build linux

package loadtest

import (
	"fmt"
	"time"

	"xdsrelay/internal/xdstest"
)

// measureArrive measures the time and the cost until all clients that connect at once have their
// first response. One client is connected before.
func measureArrive(b *bench) {
	var in []*contender
	for _, name := range []string{nameBare, nameRelay, nameSnapshot, nameLinear} {
		c := b.start(name, nil)
		c.first()
		in = append(in, c)
	}
	for r := range 1 + min(b.rounds, 5) { // the first grows the servers' memory
		took, used, bare := make(map[string]float64), make(map[string]float64), 0.0
		for k := range in {
			c := in[(k+r)%len(in)]
			w := c.join(crowdSettings{load: c.load, later: true})
			idle := c.settle()
			begin := monotonic()
			w.start()
			took[c.name] = float64(c.await(w, 0).last - begin)
			used[c.name] = float64(c.settle() - idle)
			w.close()
			bare = took[nameBare]
		}
		for _, c := range in {
			if r > 0 {
				b.print(c.name, value{took[c.name], "latency-ns"}, value{used[c.name], "cpu-ns"},
					value{used[c.name] / float64(b.load.Clients), "cpu-ns/client"},
					value{took[c.name] / bare, "latency/bare"}, value{used[c.name] / used[nameRelay], "cpu/relay"})
			}
		}
	}
}

// outage is how long an origin is away. The small case waits less.
const outage = 10 * time.Second

// measureReturn measures how long clients wait for what changed during an outage of the origin (P54).
func measureReturn(b *bench) {
	c := b.start(nameRelay, nil)
	c.connect()
	for range b.rounds {
		c.origin.stop()
		c.gen++
		c.next(c.gen)()
		away := outage
		if b.small {
			away = time.Second
		}
		xdstest.Pause(b, away)
		begin := monotonic()
		c.origin.start()
		r := c.crowd.await(b, c.gen)
		b.print(c.name, value{float64(r.last - begin), "latency-ns"})
	}
	if n := c.metric("xdsrelay_upstream_streams"); int(n) < b.load.Keys {
		b.Error(fmt.Errorf("%v streams to the origin for %d keys", n, b.load.Keys))
	}
}
