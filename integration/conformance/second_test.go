package conformance

import (
	"testing"
)

// If a key has both a wildcard and names of a type, a second stream carries the names. It is opened
// only then, and closed when it is no longer needed.
func TestP50_SecondStream(t *testing.T) {
	each(t, hasty, anywhere, func(c *trial) {
		c.site.put(c, cds, "a=1", "od-x=1")
		all, named := c.client("all"), c.client("named")
		all.getsAll(cds, "a=1")
		if ever, _ := c.site.opened(); ever != 1 {
			c.Errorf("the origin has %d streams before any name", ever)
		}
		named.sub(cds, "od-x")
		named.until(cds, "od-x=1")
		if ever, open := c.site.opened(); ever != 2 || open != 2 {
			c.Errorf("the origin has %d streams of %d, want 2", open, ever)
		}
		c.site.put(c, cds, "od-x=2", "a=2")
		all.take(cds, "a=2") // without od-x (P51)
		named.take(cds, "od-x=2")
		named.unsub(cds, "od-x")
		c.site.waitFor(c, "the end of the second stream", func() bool { return c.site.streams[1].closed })
		c.site.put(c, cds, "a=3")
		all.take(cds, "a=3")
	})
}

// A removal on one stream does not remove the other stream's copy.
func TestP50_BothHold(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.manual(cds)
		all, named := c.client("all"), c.client("named")
		all.sub(cds)
		c.site.request(c, cds, 1)
		wild := c.site.stream(c, 1)
		wild.reply(c, cds, "w1", "a=wild", "b=wild")
		all.take(cds, "a=wild b=wild")
		named.sub(cds, "a")
		c.site.await(c, cds, "the name on a second stream", func(r request) bool { return r.stream == 2 })
		names := c.site.stream(c, 2)
		names.reply(c, cds, "n1", "a=named")
		named.until(cds, "a=named")
		if c.ads {
			all.quiet() // gets the wildcard's copy
		}
		if names.delta {
			names.reply(c, cds, "n2", "-a")
			named.take(cds, "a=wild")
		}
		if c.ads {
			all.quiet()
		}
		wild.reply(c, cds, "w2", "a=wild2", "b=wild")
		all.takeFull(cds, "a=wild2 b=wild", "a=wild2")
	})
}

// Beside a wildcard, an unsubscribed name that the wildcard does not cover is answered as removed.
func TestP24_NotUnderTheWildcard(t *testing.T) {
	each(t, patient, downDelta, func(c *trial) {
		c.site.put(c, cds, "a=1", "od-x=1")
		cl := c.servedAll("one", cds, "a=1")
		cl.gets(cds, "od-x=1")
		cl.unsub(cds, "od-x")
		cl.take(cds, "-od-x")
		cl.unsub(cds, "od-x") // does not exist
		if c.ads {
			cl.quiet()
		}
	})
}
