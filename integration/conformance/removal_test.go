package conformance

import (
	"slices"
	"testing"
)

// On an aggregated stream with routes, what adds Y, repoints, and removes X at
// once comes in the order in which no request is lost.
func TestP36_MakeBeforeBreak(t *testing.T) {
	each(t, removing, onADS, func(c *trial) {
		c.site.put(c, cds, "x=1")
		c.site.put(c, rds, "r=to-x")
		cl := c.client("one")
		cl.sub(cds)
		cl.take(cds, "x=1")
		cl.sub(rds, "r")
		cl.take(rds, "r=to-x")
		c.site.put(c, rds, "r=to-y") // the origin's order is of no use
		c.site.put(c, cds, "-x", "y=1")
		var got []string
		for range 3 {
			a := cl.first()
			cl.ack(a)
			got = append(got, a.kind.short()+" "+a.String())
		}
		add, remove := "Cluster x=1 y=1", "Cluster y=1"
		if cl.delta {
			add, remove = "Cluster y=1", "Cluster -x"
		}
		if got[2] != remove || !slices.Contains(got[:2], add) || !slices.Contains(got[:2], "RouteConfiguration r=to-y") {
			c.Errorf("what came is %q", got)
		}
		cl.quiet()
	})
}

// Removals are held, additions never are; what returns in time was never
// removed.
func TestP36_Held(t *testing.T) {
	for _, parent := range []kind{lds, rds} {
		t.Run(parent.short(), func(t *testing.T) {
			each(t, keeping, onADS, func(c *trial) {
				c.site.put(c, parent, "r=1")
				c.site.put(c, cds, "x=1", "y=1")
				cl := c.client("one")
				cl.sub(cds)
				cl.take(cds, "x=1 y=1")
				cl.sub(parent, "r")
				cl.take(parent, "r=1")
				c.site.put(c, cds, "-x")
				cl.quiet()
				c.site.put(c, cds, "z=1")
				cl.takeFull(cds, "x=1 y=1 z=1", "z=1")
				c.site.put(c, cds, "x=1")
				cl.quiet()
				c.site.put(c, cds, "x=2")
				cl.takeFull(cds, "x=2 y=1 z=1", "x=2")
				c.site.put(c, cds, "-z")
				cl.quiet()
			})
		})
	}
}

// Without a stream that has routes or listeners as well, deletions go out at once.
// Streams of one type are no such streams.
func TestP36_NotHeld(t *testing.T) {
	each(t, keeping, anywhere, func(c *trial) {
		c.site.put(c, cds, "x=1", "y=1")
		cl := c.client("one")
		cl.sub(cds)
		cl.take(cds, "x=1 y=1")
		if !c.ads {
			c.site.put(c, rds, "r=1")
			cl.sub(rds, "r")
			cl.take(rds, "r=1")
		}
		c.site.put(c, cds, "-x")
		cl.takeFull(cds, "y=1", "-x")
	})
}
