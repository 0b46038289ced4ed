package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"
)

// removalDelay is the removal delay of these relays (P36).
const removalDelay = 400 * time.Millisecond

var (
	removing = profile{"removing", xdstest.Config{
		"downstream.removal_delay": removalDelay.String(),
		"downstream.ack_timeout":   long, "upstream.linger": long,
	}}
	// keeping relays delay removals for longer than any test.
	keeping = profile{"keeping", xdstest.Config{
		"downstream.removal_delay": long,
		"downstream.ack_timeout":   long, "upstream.linger": long,
	}}
)

// proxy is a client whose route r refers to a cluster, with its resources.
type proxy struct {
	*client
	holds map[kind]map[string]string
	skip  kind // do not acknowledge this type
}

// proxy makes one with clusters x and z, whose route refers to x.
func (c *trial) proxy(id string) *proxy {
	c.site.put(c, cds, "x=1", "z=1")
	c.site.put(c, eds, "x=1", "y=1")
	c.site.put(c, lds, "l=1")
	c.site.put(c, rds, "r=x")
	p := &proxy{client: c.client(id), holds: make(map[kind]map[string]string)}
	p.sub(cds)
	p.follow(cds, "x=1 z=1")
	p.sub(eds, "x", "y")
	p.follow(eds, "x=1 y=1")
	p.sub(lds)
	p.follow(lds, "l=1")
	p.sub(rds, "r")
	p.follow(rds, "r=x")
	return p
}

// follow takes responses until the client holds this of a type. At no time may its route refer to a
// cluster that it does not hold.
func (p *proxy) follow(k kind, want string) {
	p.t.Helper()
	for p.has(k) != want {
		a := p.first()
		if a.kind != p.skip {
			p.ack(a)
		}
		if p.holds[a.kind] == nil || p.wholeState(a.kind) {
			p.holds[a.kind] = make(map[string]string)
		}
		for _, thing := range strings.Fields(a.String()) {
			name, value, gone := parse(thing)
			if gone {
				delete(p.holds[a.kind], name)
			} else {
				p.holds[a.kind][name] = value
			}
		}
		if to := p.holds[rds]["r"]; to != "" && p.holds[cds][to] == "" {
			p.t.Fatalf("with %s %q the route leads to %s, and there are the clusters %q", a.kind.short(), a, to, p.has(cds))
		}
	}
}

// has formats what the client holds of a type, like answer.String.
func (p *proxy) has(k kind) string {
	var out []string
	for name, value := range p.holds[k] {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// The origin's changes come within milliseconds, and any of them may be merged. No route ever
// refers to a missing cluster. The removal is delayed.
func TestP35_P36_AddRepointRemove(t *testing.T) {
	type change struct {
		k      kind
		things []string
	}
	add, repoint, remove := change{cds, []string{"y=1"}}, change{rds, []string{"r=y"}}, change{cds, []string{"-x"}}
	endpoints := change{eds, []string{"y=2"}}
	for i, order := range [][]change{
		{add, repoint, remove},
		{add, remove, repoint},
		{remove, add, repoint},
		{{cds, []string{"y=1", "-x"}}, repoint},
		{endpoints, {cds, []string{"y=1", "-x"}}, {lds, []string{"l=2"}}, repoint},
	} {
		t.Run(fmt.Sprint("order ", i), func(t *testing.T) {
			each(t, removing, onADS, func(c *trial) {
				p := c.proxy("one")
				for round := range 4 {
					start := time.Now()
					for _, ch := range order {
						version := c.site.put(c, ch.k, ch.things...)
						// Otherwise all changes are in flight at once. A SotW origin is not asked for the
						// endpoints of a removed cluster (P52), so it may have sent nothing.
						if round%2 == 1 && version != "" {
							c.site.stream(c, 1).reaction(c, ch.k, version)
						}
					}
					p.follow(cds, "x=1 y=1 z=1")
					p.follow(rds, "r=y")
					p.follow(cds, "y=1 z=1")
					if took := time.Since(start); took < removalDelay {
						c.Errorf("the removal was received after %v", took)
					}
					c.site.put(c, cds, "x=1")
					p.follow(cds, "x=1 y=1 z=1")
					c.site.put(c, rds, "r=x")
					p.follow(rds, "r=x")
					c.site.put(c, cds, "-y")
					p.follow(cds, "x=1 z=1")
				}
			})
		})
	}
	// The origin may send changes in the wrong order, if the relay waits for more changes.
	t.Run("settled", func(t *testing.T) {
		each(t, settled, onADS, func(c *trial) {
			p := c.proxy("one")
			c.site.put(c, rds, "r=y")
			c.site.put(c, cds, "-x", "y=1")
			p.follow(rds, "r=y")
			if got := p.has(cds); got != "x=1 y=1 z=1" {
				c.Errorf("the route was received with the clusters %q", got)
			}
		})
	})
}

// Listeners or routes on a stream are enough to delay removals. Additions are never delayed.
func TestP36_Held(t *testing.T) {
	for _, parent := range []kind{lds, rds} {
		t.Run(parent.short(), func(t *testing.T) {
			each(t, keeping, onADS, func(c *trial) {
				c.site.put(c, parent, "r=1")
				c.site.put(c, cds, "x=1", "y=1")
				cl := c.servedAll("one", cds, "x=1 y=1")
				cl.gets(parent, "r=1")
				c.site.put(c, cds, "-x")
				cl.quiet()
				c.site.put(c, cds, "z=1")
				cl.takeFull(cds, "x=1 y=1 z=1", "z=1")
			})
		})
	}
}

// Additions are never delayed. In SotW their response still has the resources to be removed.
func TestP36_AdditionsDoNotWait(t *testing.T) {
	each(t, keeping, onADS, func(c *trial) {
		p := c.proxy("one")
		c.site.put(c, cds, "-x")
		p.quiet()
		c.site.put(c, cds, "y=1")
		p.takeFull(cds, "x=1 y=1 z=1", "y=1")
		p.take(eds, "y=1") // P37
		p.quiet()
		c.site.put(c, cds, "-y", "z=2")
		p.takeFull(cds, "x=1 y=1 z=2", "z=2")
		p.quiet()
	})
}

// A resource that returns in time was never removed.
func TestP36_ReturnsInTime(t *testing.T) {
	each(t, keeping, onADS, func(c *trial) {
		p := c.proxy("one")
		c.site.put(c, cds, "-x")
		c.site.put(c, cds, "x=1")
		c.site.put(c, cds, "-x")
		p.quiet()
		c.site.put(c, cds, "x=1")
		p.quiet()
		c.site.put(c, cds, "-x")
		c.site.put(c, cds, "x=2")
		p.takeFull(cds, "x=2 z=1", "x=2")
		p.take(eds, "x=1") // P37
		p.quiet()
	})
}

// A client without routes and listeners on its stream has no delay, and neither have other types.
func TestP36_NoDelayWithoutReferences(t *testing.T) {
	each(t, keeping, anywhere, func(c *trial) {
		c.site.put(c, cds, "x=1", "z=1")
		c.site.put(c, lds, "l=1", "m=1")
		cl := c.servedAll("one", cds, "x=1 z=1")
		c.site.put(c, cds, "-x")
		cl.takeFull(cds, "z=1", "-x")
		cl.getsAll(lds, "l=1 m=1")
		c.site.put(c, lds, "-m")
		cl.takeFull(lds, "l=1", "-m")
		c.site.put(c, cds, "-z", "y=1") // from now on the types share the aggregated stream
		if c.ads {
			cl.takeFull(cds, "y=1 z=1", "y=1")
		} else {
			cl.takeFull(cds, "y=1", "y=1 -z")
		}
	})
}

// Until the removal takes effect the resource exists for every rule. That includes a name that is
// unsubscribed beside the wildcard, and one that is subscribed again.
func TestP36_ExistsUntilThen(t *testing.T) {
	each(t, keeping, both(onADS, downDelta), func(c *trial) {
		p := c.proxy("one")
		p.gets(cds, "x=1")
		p.take(eds, "x=1") // P37
		c.site.put(c, cds, "-x")
		p.quiet()
		p.unsub(cds, "x")
		p.take(cds, "x=1") // P24: the wildcard covers it
		p.take(eds, "x=1") // P37
		p.quiet()

		if c.up == "delta" { // clients do not learn of a SotW origin's removal of load assignments
			c.site.put(c, eds, "-y")
			p.quiet()
			p.gets(eds, "y=1") // P23
			p.quiet()
		}
	})
}

// A client without routes sees the key's published state, as the others do.
func TestP36_DelayIsPerKey(t *testing.T) {
	each(t, keeping, onADS, func(c *trial) {
		p := c.proxy("one")
		other := c.servedAll("two", cds, "x=1 z=1")
		c.site.put(c, cds, "-x")
		other.quiet()
		p.quiet()
		p.reconnect() // and subscribes to nothing
		other.takeFull(cds, "z=1", "-x")
	})
}

// The roll-back of a bad cluster is not delayed: all clients reject it, and the origin removes it.
func TestP36_RollBack(t *testing.T) {
	each(t, keeping, onADS, func(c *trial) {
		clients := []*proxy{c.proxy("one"), c.proxy("two")}
		for _, p := range clients {
			p.quiet()
		}
		c.site.put(c, cds, "bad=1")
		for _, p := range clients {
			if p.delta {
				p.nack(p.want(cds, "bad=1"))
			} else {
				p.nack(p.want(cds, "bad=1 x=1 z=1"))
			}
		}
		c.site.put(c, cds, "-bad")
		for _, p := range clients {
			p.takeFull(cds, "x=1 z=1", "-bad")
			if !p.delta {
				p.take(eds, "x=1") // P37: the client may have dropped the whole rejected response
			}
			p.quiet()
		}
		c.site.put(c, cds, "-x") // other delayed removals still wait
		for _, p := range clients {
			p.quiet()
		}
	})
}
