//go:build linux

package loadtest

import (
	"time"

	"xdsrelay/internal/xdstest"
)

const (
	// wanted is how many clients want the changed name, in the case of clients that do not.
	wanted = 10
	// turnMost is how often a turn is tried until no garbage collection happens in it.
	turnMost = 3
)

// changes is how many changes one turn has, because a single one is too short to measure.
func (b *bench) changesPerTurn() int {
	if b.small {
		return 3
	}
	return 40
}

// measureUnwanted measures the cost of connected clients that do not want the changed name. The same
// change is made with and without them, in turn.
func measureUnwanted(b *bench) {
	idle := b.start(nameBare, nil)
	idle.connect()
	b.print(nameBare, value{b.resting(idle)[0], "rest-%core"})
	idle.crowd.close()
	idle.Kill()

	sides := []*contender{b.unwanted(0), b.unwanted(b.load.Clients)}
	names := []string{"relay/others=no", "relay/others=yes"}
	for i, rest := range b.resting(sides...) {
		b.print(names[i], value{rest, "rest-%core"})
	}
	changes := float64(b.changesPerTurn())
	for r := range warmups + b.rounds {
		var turns [2]turn
		for k := range sides {
			i := (k + r) % 2
			turns[i] = b.turn(sides[i], sides[1-i])
		}
		if r < warmups {
			continue
		}
		// The cost of the changes alone: without the server's use at rest, measured over the same time in
		// the other's turn of the same round.
		var net [2]float64
		for i, t := range turns {
			net[i] = (float64(t.cpu) - float64(turns[1-i].idle)*float64(t.took)/float64(turns[1-i].took)) / changes
		}
		for i, t := range turns {
			b.print(names[i], value{net[i], "cpu-ns/change"}, value{net[i] - net[0], "more-ns/change"},
				value{float64(t.cpu) / changes, "with-rest-ns/change"}, value{float64(t.late) / changes, "latency-ns"})
		}
	}
}

// measureBystanders measures what clients cost that do not get a change. Of disjoint clients, only the
// first one wants the change. The slow clients want all changes, but owe an ACK.
func measureBystanders(b *bench) {
	var in, origins []*contender
	for _, name := range []string{nameLinear, nameRelay} {
		c, origin := b.linear(name)
		l := b.load
		if l.Slow == 0 {
			c.load.Clients = 1
			l.From, l.Clients = 1, l.Clients-1
		} else {
			l.Clients = l.Slow
		}
		others := c.join(crowdSettings{load: l})
		c.connect()
		if l.Slow > 0 {
			others.acks.Store(0)
		}
		in, origins = append(in, c), append(origins, origin)
	}
	for i, rest := range b.resting(in...) {
		b.print(in[i].name, value{rest, "rest-%core"})
	}
	for r := range warmups + b.rounds {
		for i := range in {
			c, origin := in[(i+r)%len(in)], origins[(i+r)%len(in)]
			var took, p99 int64
			used, ofOrigin := -c.settle(), -origin.settle()
			for range b.changesPerTurn() {
				at, got := c.change()
				took, p99 = took+got.last-at, max(p99, got.p99-at)
				xdstest.Pause(b, b.load.Every)
			}
			used, ofOrigin = used+c.settle(), ofOrigin+origin.settle()
			changes := float64(b.changesPerTurn())
			if r >= warmups {
				b.print(c.name, value{float64(used) / changes, "cpu-ns/change"}, value{float64(ofOrigin) / changes, "origin-cpu-ns/change"},
					value{float64(took) / changes, "latency-ns"}, value{float64(p99), "p99-ns"})
			}
		}
	}
}

// unwanted starts a relay with the clients that want the changed name, and this many others.
func (b *bench) unwanted(others int) *contender {
	c := b.start(nameRelay, nil)
	c.warm()
	if others > 0 {
		l := c.load
		l.Clients, l.Asks = others, &l.Names // all but the first block
		c.join(crowdSettings{load: l})
	}
	c.load.Clients = wanted
	c.connect()
	return c
}

// turn is the use of one server during its changes, and of the other meanwhile.
type turn struct {
	cpu, idle, took time.Duration
	late            int64 // from the trigger until all clients have a change, of all changes
}

// turn makes changes on one server while another is at rest. Garbage is collected beforehand, and
// not meanwhile. Otherwise the cost of marking the heap would fall on the change that fills it up.
func (b *bench) turn(busy, idle *contender) (t turn) {
	collections := func() float64 {
		return busy.metric("go_gc_duration_seconds") + idle.metric("go_gc_duration_seconds")
	}
	for range turnMost {
		busy.collect()
		idle.collect()
		busy.change() // fills the pools again
		garbage := collections()
		idle.settle()
		busy.settle()
		t = turn{}
		begin, before := time.Now(), b.used(busy, idle)
		for range b.changesPerTurn() {
			at, r := busy.change()
			t.late += r.last - at
		}
		busy.settle()
		now := b.used(busy, idle)
		t.cpu, t.idle, t.took = now[0]-before[0], now[1]-before[1], time.Since(begin)
		if collections() == garbage {
			return t
		}
	}
	b.Logf("garbage was collected in each of %d turns", turnMost)
	return t
}
