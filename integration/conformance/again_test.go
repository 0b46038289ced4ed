package conformance

import (
	"slices"
	"testing"
)

// A name that does not exist is requested from a delta origin once more when a client subscribes to
// it, and is not unsubscribed. The client is answered at once.
func TestP25_RequestedOnDemand(t *testing.T) {
	each(t, patient, upDelta, func(c *trial) {
		c.site.put(c, eds, "a=1")
		one, two := c.client("one"), c.client("two")
		answer := map[bool]string{true: "a=1 -b", false: "a=1"}[c.down == "delta"]
		one.sub(eds, "a", "b")
		one.take(eds, answer)
		two.sub(eds, "a", "b")
		two.take(eds, answer)
		c.site.await(c, eds, "a second request of b", func(r request) bool { return slices.Equal(r.names, []string{"b"}) })
		if c.down == "delta" {
			two.sub(eds, "b") // again within linger
			two.take(eds, "-b")
		}
		c.site.put(c, eds, "b=1") // the origin made it because it was requested
		one.take(eds, "b=1")
		two.take(eds, "b=1")
		n := 0
		for _, r := range c.site.requests(eds) {
			if slices.Contains(r.names, "b") {
				n++
			}
			if len(r.dropped) > 0 {
				c.Errorf("the relay unsubscribed: %v", r)
			}
		}
		if n != 2 {
			c.Errorf("b was requested %d times, want 2", n)
		}
	})
}

// A name that the origin has not answered is unsubscribed as soon as no client wants it.
func TestP52_UnansweredNamesDoNotLinger(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.manual(eds)
		cl, up := c.byHand(eds, "a", "nowhere")
		up.accepts(c, eds, "v1", "a=1")
		cl.take(eds, "a=1")
		cl.unsub(eds, "a", "nowhere")
		cl.sub(eds, "c") // in SotW, a type without names says nothing
		c.site.asksFor(c, eds, "a", "c")
	})
}

// With a SotW origin, the endpoints of a removed cluster are left out of requests at once, while
// clients keep them for removal_delay.
func TestP52_EndpointsOfARemovedCluster(t *testing.T) {
	each(t, keeping, both(onADS, upSotW), func(c *trial) {
		p := c.proxy("one") // with the endpoints of x and y
		c.site.asksFor(c, eds, "x", "y")
		c.site.put(c, cds, "-x")
		c.site.asksFor(c, eds, "y")
		p.quiet()
		c.site.put(c, cds, "x=1")
		c.site.asksFor(c, eds, "x", "y")
		p.quiet()
	})
}

// A SotW list that a response overtook counts as not sent: the name that it dropped is left out by
// the ACK, and listed by the next request.
func TestP64_OvertakenBySotWResponse(t *testing.T) {
	each(t, hasty, upSotW, func(c *trial) {
		cl, up := c.byHand(rds, "a", "b")
		up.accepts(c, rds, "v1", "a=1", "b=1")
		cl.take(rds, "a=1 b=1")
		cl.unsub(rds, "b")
		c.site.asksFor(c, rds, "a")
		cl.sub(rds, "b")
		c.site.asksFor(c, rds, "a", "b")
		n := len(c.site.requests(rds))
		up.send(c, up.response(rds, "v2", "a=2")) // as if sent before the lists were read
		for i, want := range []string{"RouteConfiguration +a version=v2 nonce=v2", "RouteConfiguration +a +b nonce=v2"} {
			if got := c.site.request(c, rds, n+1+i).String(); got != want {
				c.Errorf("request %d after the response is %q, want %q", i+1, got, want)
			}
		}
	})
}

// An origin does not answer a name again that it answered earlier on the stream. The relay requests
// the name on a new stream.
func TestP64_AnsweredOncePerStream(t *testing.T) {
	each(t, hasty, anywhere, func(c *trial) {
		cl, up := c.byHand(rds, "a", "b")
		up.accepts(c, rds, "v1", "a=1", "b=1")
		cl.take(rds, "a=1 b=1")
		cl.unsub(rds, "b")
		c.site.asksFor(c, rds, "a")
		cl.sub(rds, "b")
		up = c.site.stream(c, 2)
		c.site.asksFor(c, rds, "a", "b")
		up.accepts(c, rds, "v2", "a=1", "b=1")
		cl.take(rds, "b=1")
	})
}
