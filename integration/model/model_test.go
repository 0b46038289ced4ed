package model

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"xdsrelay/internal/xds"
)

var variants = map[string]xds.Variant{"sotw": xds.SotW, "delta": xds.Delta}

// At rest a client of either variant holds the origin's resources for its subscriptions, whatever
// happened on the way.
func TestP60_Model(t *testing.T) {
	for up, upstream := range variants {
		for down, downstream := range variants {
			t.Run(up+"-"+down+"/ads", func(t *testing.T) {
				t.Parallel()
				rapid.Check(t, func(rt *rapid.T) { inBubble(t, func() { run(t, rt, upstream, downstream) }) })
			})
		}
	}
}

// inBubble runs f in a bubble of its own. It passes on a panic of f.
func inBubble(t *testing.T, f func()) {
	var failed any
	synctest.Test(t, func(*testing.T) {
		defer func() { failed = recover() }()
		f()
	})
	// rapid distinguishes failures by their stack.
	switch {
	case failed == nil:
	case fmt.Sprintf("%T", failed) == "rapid.invalidData": // it drew too much while shrinking
		panic(failed)
	default:
		panic(failed)
	}
}

// relayFixture is the relay of one case between its origin and its clients.
type relayFixture struct {
	tb      tester
	rt      *rapid.T // draws the steps; nil where a test sets them
	ctx     context.Context
	dice    *rand.Rand
	o       *origin
	both    []xds.TypeURL // types that may have both wildcard and names
	clients []*client
	// start starts a relay in place of the one that stopRelay ended. Clients reach it through down.
	start, stopRelay func()
	restarted        bool
	pushed           bool // the origin has sent everything again (P15)
	down             atomic.Pointer[dialer]
}

// tester is a test, or a case of rapid's.
type tester interface {
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// Names of the resources. The permanent ones exist from the beginning and are never removed. The
// wildcard does not cover those with an x.
var (
	fleeting  = []string{"a", "b", "c", "x"}
	permanent = []string{"p", "q", "xp"}
	names     = slices.Concat(fleeting, permanent)
)

func (w *relayFixture) permanent(_ xds.TypeURL, name string) bool {
	return slices.Contains(permanent, name)
}

// still reports whether the origin still has what a response of this client
// held.
func (w *relayFixture) still(t *clientType, items map[string]int) bool {
	w.o.mu.Lock()
	defer w.o.mu.Unlock()
	for n, content := range items {
		if t.covers(n) && w.o.has[t.typ][n] != content {
			return false
		}
	}
	return true
}

// pick draws a number below n for the driver.
func (w *relayFixture) pick(n int) int { return rapid.IntRange(0, n-1).Draw(w.rt, "pick") }

// say makes the origin send a response. The number of calls depends on the relay's jitter, so it
// has its own random source: a repeated case draws as much as the first time.
func (w *relayFixture) say() bool { return w.o.say(w.dice.IntN) }

func (w *relayFixture) fatal(err error) {
	if err != nil {
		w.tb.Fatalf("%v", err)
	}
}

// newRelayFixture starts an origin with the permanent resources, and a relay. stop ends them.
func newRelayFixture(t *testing.T, tb tester, upstream xds.Variant, seed uint64) (w *relayFixture, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	w = &relayFixture{tb: tb, ctx: ctx, o: startOrigin(), both: types, dice: rand.New(rand.NewPCG(seed, 1))}
	for _, typ := range types {
		for _, n := range permanent {
			w.o.put(typ, n, 1)
		}
	}
	w.start = func() {
		down, stop := startRelay(t, upstream, dialerOf(w.o.listener))
		dial := dialerOf(down)
		w.down.Store(&dial)
		w.stopRelay = stop
	}
	w.start()
	return w, func() {
		for _, c := range w.clients {
			c.end()
			c.cc.Close()
		}
		w.stopRelay()
		cancel()
		w.o.stop()
	}
}

func (w *relayFixture) dial(ctx context.Context, target string) (net.Conn, error) {
	return (*w.down.Load())(ctx, target)
}

// restart ends the relay and starts another one without state. The clients reconnect with what they
// have (P67).
func (w *relayFixture) restart() {
	w.restarted = true
	for _, c := range w.clients {
		c.setSlow(false)
		c.end()
	}
	w.stopRelay()
	synctest.Wait()
	w.start()
	for _, c := range w.clients {
		w.fatal(c.reconnect(w.ctx, false, func() {}))
	}
}

// join connects a client, which subscribes as ask says.
func (w *relayFixture) join(v xds.Variant, own xds.TypeURL, ask func(*client)) *client {
	cc, err := grpc.NewClient("passthrough:///relay", grpc.WithContextDialer(w.dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
	w.fatal(err)
	c := newClient(cc, fmt.Sprint("client-", len(w.clients)), v, w.tb.Logf)
	c.own = own
	ask(c)
	if err := c.connect(w.ctx); err != nil {
		cc.Close()
		w.fatal(err)
	}
	w.clients = append(w.clients, c)
	c.begin()
	return c
}

func run(t *testing.T, rt *rapid.T, upstream, downstream xds.Variant) {
	w, stop := newRelayFixture(t, rt, upstream, rapid.Uint64().Draw(rt, "dice"))
	defer stop()
	w.rt = rt
	w.o.splits = rapid.Bool().Draw(rt, "splits")
	// If only one type has wildcard and names, the second stream opens and closes more often (P50).
	one := w.pick(3) > 0
	if one {
		w.both = []xds.TypeURL{types[w.pick(len(types))]}
	}
	for i := range 1 + w.pick(3) {
		v := downstream
		if i > 0 && rapid.Bool().Draw(rt, "the other variant") {
			v = 1 - v
		}
		w.join(v, "", func(c *client) {
			for _, typ := range types {
				ways := []string{"names", "wildcard", "both"} // P50
				switch {
				case !slices.Contains(w.both, typ):
					ways = []string{"names"}
				case typ == eds && !one:
					ways = append(ways, "names", "names", "names")
				}
				way := rapid.SampledFrom(ways).Draw(rt, "way")
				c.types[typ].wild = way != "names"
				for range 2 {
					if n := names[w.pick(len(names))]; way != "wildcard" {
						c.types[typ].names[n] = true
					}
				}
			}
		})
	}
	for range rapid.IntRange(1, 40).Draw(rt, "steps") {
		w.step()
		if rapid.Bool().Draw(rt, "settle") {
			time.Sleep(10 * time.Millisecond) // new names are merged before they go upstream
		}
		synctest.Wait()
		for _, c := range w.clients {
			w.take(c)
		}
	}
	w.finish()
}

// take makes a client read its responses. A client that was refused because no origin is reachable
// (P53) reconnects. That may also be one that was served before, if all clients unsubscribed since.
func (w *relayFixture) take(c *client) bool {
	took, err := c.take(w)
	if status.Code(err) == codes.Unavailable && (c.empty() || strings.Contains(err.Error(), "none of the requested resources")) {
		w.fatal(c.reconnect(w.ctx, false, func() {}))
		return true
	}
	w.fatal(err)
	return took
}

// step is an action of the origin or a client.
func (w *relayFixture) step() {
	typ := slices.Concat(types, w.both, w.both)[w.pick(len(types)+2*len(w.both))]
	c := w.clients[w.pick(len(w.clients))]
	some := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 3, rapid.ID[string])
	switch what := rapid.SampledFrom([]string{
		"put", "put", "put", "remove", "remove", "stamp", "repeat", "cut", "say", "say", "say", "say",
		"ack", "ack", "ack", "ack", "nack", "names", "names", "names", "quit", "wildcard", "wildcard", "turn", "turn", "burst", "slow", "reconnect", "restart", "time",
	}).Draw(w.rt, "step"); what {
	case "put":
		w.o.put(typ, names[w.pick(len(names))], 1+w.pick(3))
	case "remove":
		w.o.remove(typ, fleeting[w.pick(len(fleeting))])
	case "stamp": // another version for equal content
		w.o.stamp(typ, names[w.pick(len(names))])
	case "repeat":
		w.o.repeat(typ, names[w.pick(len(names))])
	case "cut":
		w.o.cut()
	case "say":
		w.say()
	case "ack", "nack":
		c.answer(c.types[typ], what == "nack")
	case "names":
		c.change(c.types[typ], some.Draw(w.rt, "add"), some.Draw(w.rt, "drop"))
	case "quit":
		c.change(c.types[typ], nil, names)
	case "wildcard":
		t := c.types[w.both[w.pick(len(w.both))]]
		w.calm(c, t)
		c.widen(t, !t.wild)
	case "turn":
		w.turn(rapid.Bool().Draw(w.rt, "wildcard"))
	case "burst":
		for range 4 {
			w.say()
		}
	case "slow":
		c.setSlow(rapid.Bool().Draw(w.rt, "slow"))
	case "reconnect":
		forget := rapid.Bool().Draw(w.rt, "forget")
		w.fatal(c.reconnect(w.ctx, forget, func() {
			if rapid.Bool().Draw(w.rt, "stay away") { // meanwhile everything goes on
				w.o.put(typ, names[w.pick(len(names))], 1+w.pick(3))
				w.o.remove(typ, fleeting[w.pick(len(fleeting))])
				w.flush()
			}
		}))
	case "restart":
		w.restart()
	case "time":
		w.pass(time.Duration(1+w.pick(20)) * time.Second)
	}
}

// turn makes all clients unsubscribe from the wildcard of a type, or from its names. It continues
// just as the relay unsubscribes: one of the two streams may close.
func (w *relayFixture) turn(wild bool) {
	typ := w.both[w.pick(len(w.both))]
	for _, c := range w.clients {
		t := c.types[typ]
		w.calm(c, t)
		if wild {
			c.widen(t, false)
		} else {
			c.change(t, nil, names)
		}
	}
	w.pass(linger)
	time.Sleep(time.Duration(w.pick(20)) * time.Millisecond)
	for range w.pick(4) {
		c := w.clients[w.pick(len(w.clients))]
		if t := c.types[typ]; !wild && rapid.Bool().Draw(w.rt, "wildcard") {
			w.calm(c, t)
			c.widen(t, true)
		} else {
			c.change(t, []string{names[w.pick(len(names))]}, nil)
		}
		time.Sleep(10 * time.Millisecond)
		w.say()
		synctest.Wait()
	}
}

// calm makes a client accept all responses of a type in flight.
func (w *relayFixture) calm(c *client, t *clientType) {
	c.setSlow(false)
	synctest.Wait()
	for w.take(c); c.answer(t, false); w.take(c) {
		synctest.Wait()
	}
}

// pass lets time pass. The origin answers within a second.
func (w *relayFixture) pass(d time.Duration) {
	for ; d > 0; d -= time.Second {
		w.flush()
		time.Sleep(time.Second)
	}
}

// flush makes the origin send all that is pending.
func (w *relayFixture) flush() (said bool) {
	synctest.Wait()
	for w.say() {
		said = true
		synctest.Wait()
	}
	return said
}

// pass lets the bubble's time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
