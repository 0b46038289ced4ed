package model

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"xdsrelay/internal/xds"
)

// eventsInACase is about 20 minutes of a cluster.
const eventsInACase = 8

// checksInACase is how many of rapid's checks make a case, of each variant.
const checksInACase = 300

// minTime is how much cluster time a run has at least, in each case of each variant.
const minTime = eventsInACase * settleTime

// Random events happen to a cluster, sometimes two or three at once: in make test for more than an hour
// of cluster time, and in `make model` for hours. The schedule of goroutines differs each time, also
// with the same seed.
func TestCluster_Model(t *testing.T) {
	seed, cases := flagOf(t, "rapid.seed"), max(1, flagOf(t, "rapid.checks")/checksInACase)
	if seed == 0 {
		seed = rand.Uint64()
	}
	var total atomic.Int64
	t.Cleanup(func() {
		t.Logf("%v of cluster time", time.Duration(total.Load()).Round(time.Minute))
		if least := time.Duration(cases) * minTime * time.Duration(len(variants)); !t.Failed() && time.Duration(total.Load()) < least {
			t.Errorf("%d cases have less than %v of cluster time", cases, least)
		}
	})
	for i := range cases {
		for name, v := range variants {
			t.Run(fmt.Sprint(name, "/", seed+i), func(t *testing.T) {
				t.Parallel()
				dice := rand.New(rand.NewPCG(seed+i, 2))
				inCluster(t, v, 3+dice.IntN(3), seed+i, func(w *clusterFixture) {
					began := time.Now()
					(&driver{w, dice, 0}).run()
					total.Add(int64(time.Since(began)))
				})
			})
		}
	}
}

func flagOf(t *testing.T, name string) uint64 {
	n, err := strconv.ParseUint(flag.Lookup(name).Value.String(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// driver draws the events of a case. Its dice is its own, so that a seed draws the same events again.
type driver struct {
	*clusterFixture
	dice  *rand.Rand
	added int // relays
}

// flip draws yes or no.
func (d *driver) flip() bool { return d.dice.IntN(2) == 0 }

// upTo draws a time.
func (d *driver) upTo(t time.Duration) time.Duration { return time.Duration(d.dice.Int64N(int64(t))) }

func (d *driver) run() {
	for range 6 + d.dice.IntN(6) {
		d.client()
	}
	d.rest("clients")
	for range eventsInACase {
		d.mu.Lock()
		d.breaks = 1 + []time.Duration{0, 10 * time.Millisecond, 20 * time.Millisecond}[d.dice.IntN(3)]
		d.mu.Unlock()
		name, f := d.lifecycle()
		if d.flip() {
			name, f = d.cutting()
			if other, g := d.lifecycle(); d.dice.IntN(4) == 0 {
				name, f = name+", and "+other, both(f, after(d.upTo(time.Minute), g))
			}
		}
		if d.dice.IntN(4) == 0 {
			other, g := d.ofOrigin()
			name, f = name+", and "+other, both(f, after(d.upTo(time.Minute), g))
		}
		d.log("event: %s", name)
		d.event(f)
		d.mu.Lock()
		d.breaks = 0
		d.mu.Unlock()
		d.o.wake()
		d.rest(name)
	}
}

// both returns what runs both at once.
func both(f, g func()) func() {
	return func() {
		var other sync.WaitGroup
		other.Go(g)
		f()
		other.Wait()
	}
}

// after returns f after a while.
func after(d time.Duration, f func()) func() {
	return func() {
		sleepInBubble(d)
		f()
	}
}

// client adds a client.
func (d *driver) client() {
	subs := make(map[xds.TypeURL]*watched)
	key := []string{"a", "b", "c"}[d.dice.IntN(3)]
	for _, typ := range types {
		t := &watched{wild: key == "a" || key == "c" && d.flip()}
		for range 3 {
			if n := names[d.dice.IntN(len(names))]; !t.wild && !slices.Contains(t.names, n) {
				t.names = append(t.names, n)
			}
		}
		subs[typ] = t
	}
	d.join(key, xds.Variant(d.dice.IntN(2)), subs)
}

// relay draws a running relay.
func (d *driver) relay() *relay {
	all := d.running()
	return all[d.dice.IntN(len(all))]
}

// some draws one or more of relays.
func (d *driver) some(of []*relay) []*relay {
	of = slices.Clone(of)
	d.dice.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
	return of[:1+d.dice.IntN(len(of))]
}

// lifecycle draws an event of a relay, or of clients.
func (d *driver) lifecycle() (string, func()) {
	r, away := d.relay(), d.upTo(time.Minute)
	switch n := d.dice.IntN(8); n {
	case 0:
		return fmt.Sprintf("kill %s for %v", r.name, away), func() { d.killed(r, away) }
	case 1:
		return "restart " + r.name, func() { d.restarted(r) }
	case 2:
		return "drain " + r.name, func() { d.drained(r) }
	case 3:
		compat := []string{"c1", "c2"}[d.dice.IntN(2)]
		return fmt.Sprintf("%s gets %s", r.name, compat), func() { d.kill(r); d.start(r.name, compat) }
	case 4:
		var each []func()
		name := "all restart"
		for _, r := range d.running() {
			each = append(each, after(d.upTo(10*time.Second), func() { d.restarted(r) }))
		}
		f := func() {}
		for _, g := range each {
			f = both(f, g)
		}
		return name, f
	case 5:
		if len(d.running()) < 6 {
			d.added++
			name := fmt.Sprint("relay-x", d.added)
			return "add " + name, func() { d.start(name, r.compat); d.busy(away) }
		}
		return "drain " + r.name + " for good", func() { d.drain(r); d.busy(away) }
	default:
		moving := slices.Clone(d.watchers)
		moving = slices.DeleteFunc(moving, func(*watcher) bool { return d.flip() })
		return fmt.Sprintf("%d clients move", len(moving)), func() {
			for _, c := range moving {
				c.move()
				d.busy(time.Second)
			}
		}
	}
}

// cutting draws an event of links.
func (d *driver) cutting() (string, func()) {
	r, length := d.relay(), d.upTo(2*time.Minute)
	others := d.others(r)
	if len(others) == 0 {
		return "nothing", func() { d.busy(length) }
	}
	others = d.some(others)
	connections, gossip, both := d.flip(), d.flip(), d.flip()
	if !connections && !gossip {
		connections, gossip = true, true
	}
	return fmt.Sprintf("cut %s from %d, connections %v, gossip %v, both directions %v, for %v", r.name, len(others), connections, gossip, both, length),
		func() { d.cutOff(r, others, connections, gossip, both, length) }
}

// ofOrigin draws an event of the origin, or of links to it.
func (d *driver) ofOrigin() (string, func()) {
	length := d.upTo(time.Minute)
	switch d.dice.IntN(4) {
	case 0:
		return fmt.Sprintf("the origin refuses for %v", length), func() { d.refused(length) }
	case 1:
		return "streams of the origin break", func() {
			for range 5 {
				d.o.cut()
				d.busy(length / 5)
			}
		}
	case 2:
		relays := d.some(d.running())
		return fmt.Sprintf("%d lose the origin for %v", len(relays), length), func() { d.withoutOrigin(relays, length) }
	default:
		relays := d.running()
		return fmt.Sprintf("all lose the origin for %v", length), func() { d.withoutOrigin(relays, length) }
	}
}
