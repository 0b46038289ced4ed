package conformance

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

// In a delta request names are added first, then removed; also in an ACK.
func TestP20_AddedThenRemoved(t *testing.T) {
	each(t, patient, downDelta, func(c *trial) {
		c.site.put(c, eds, "a=1", "b=1", "c=1")
		cl := c.client("one")
		cl.tell(eds, rawRequest{names: []string{"a", "b", "a"}, drop: []string{"b"}})
		first := cl.want(eds, "a=1")
		cl.tell(eds, rawRequest{nonce: first.nonce, names: []string{"c"}, drop: []string{"a"}})
		cl.take(eds, "c=1")
		c.site.put(c, eds, "a=2", "b=2", "c=2")
		cl.take(eds, "c=2")
		cl.quiet(eds)
	})
}

// Subscribing and unsubscribing "*" in one request subscribes to nothing.
func TestP20_WildcardAddedAndRemoved(t *testing.T) {
	each(t, patient, downDelta, func(c *trial) {
		c.site.put(c, cds, "a=1")
		cl := c.client("one")
		cl.tell(cds, rawRequest{names: []string{"*"}, drop: []string{"*"}})
		cl.quiet(cds)
		for _, r := range c.site.requests(cds) {
			if holds(r.names, "*") || len(r.names)+len(r.nonce) == 0 {
				c.Errorf("the origin received a wildcard request: %v", r)
			}
		}
	})
}

// SotW: each request lists all names, and lists are sets.
func TestP20_ListsAreSets(t *testing.T) {
	each(t, patient, downSotW, func(c *trial) {
		c.site.put(c, eds, "a=1", "b=1")
		cl := c.client("one")
		cl.state(eds).names = []string{"b", "a", "b", "a"}
		cl.tell(eds, rawRequest{names: cl.state(eds).names})
		cl.until(eds, "b=1")
		cl.state(eds).names = []string{"a", "b"}
		cl.sub(eds)
		cl.quiet(eds)
		c.site.put(c, eds, "a=2", "b=2")
		cl.take(eds, "a=2 b=2")
	})
}

// The examples of the protocol documentation, step by step. It has the same four in SotW, with
// resource_names, and in delta.
func TestP21_FourSteps(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		for _, k := range []kind{cds, lds} {
			c.site.put(c, k, "A=1", "b=1")
			other := c.servedAll("other", k, "A=1 b=1") // receives what the client does not want

			// "Client sends a request with resource_names_subscribe unset. Server interprets this
			// as a subscription to *."
			cl := c.servedAll("one", k, "A=1 b=1")

			// "Client sends a request with resource_names_subscribe set to A. Server interprets
			// this as continuing the existing subscription to * and adding a new subscription to
			// A." In SotW the list is * and A.
			if cl.delta {
				cl.sub(k, "A")
			} else {
				cl.sub(k, "*", "A")
			}
			cl.takeFull(k, "A=1 b=1", "A=1") // P23
			c.site.put(c, k, "b=2")
			for _, each := range []*client{cl, other} {
				each.takeFull(k, "A=1 b=2", "b=2")
			}

			// "Client sends a request with resource_names_unsubscribe set to *. Server interprets
			// this as unsubscribing to * and continuing the existing subscription to A."
			cl.unsub(k, "*")
			cl.quiet(k)
			c.site.put(c, k, "b=3")
			other.takeFull(k, "A=1 b=3", "b=3")
			c.site.put(c, k, "A=2")
			other.takeFull(k, "A=2 b=3", "A=2")
			cl.take(k, "A=2")

			// "Client sends a request with resource_names_unsubscribe set to A. Server interprets
			// this as unsubscribing to A (i.e., the client has now unsubscribed to all
			// resources)." In SotW the list is empty.
			cl.unsub(k, "A")
			cl.quiet(k)
			c.site.put(c, k, "A=3")
			other.takeFull(k, "A=3 b=3", "A=3")
			cl.quiet(k)
			cl.sub(k, "A") // an earlier response would have come before
			cl.take(k, "A=3")
		}
	})
}

// Five types have no wildcard except "*": an empty first list is no interest, and is not sent to
// the origin.
func TestP21_NoLegacyWildcard(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		for _, k := range []kind{eds, rds, sds, rtds, ecds} {
			c.site.put(c, k, "a=1")
			cl := c.client("one")
			cl.sub(k)
			if c.ads {
				cl.quiet()
				if r := c.site.requests(k); len(r) != 0 {
					c.Errorf("the origin received requests for %v", r)
				}
			}
			cl.sub(k, "a") // a name counts as later
			cl.take(k, "a=1")
			if r := c.site.requests(k)[0]; strings.Join(r.names, " ") != "a" {
				c.Errorf("the origin was first sent %v", r)
			}
		}
	})
}

// For these types, as for any other, "*" subscribes to everything.
func TestP21_ExplicitWildcard(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		kinds := []kind{cds, lds, srds, eds, rds, rtds}
		if c.ads {
			kinds = append(kinds, acme)
		}
		for _, k := range kinds {
			c.site.put(c, k, "a=1", "b=1")
			cl := c.client("one")
			cl.sub(k, "*")
			cl.take(k, "a=1 b=1")
			c.site.put(c, k, "c=1")
			cl.takeFull(k, "a=1 b=1 c=1", "c=1")
			cl.quiet(k)
		}
	})
}

// A type that is not in the table has the legacy wildcard.
func TestP21_LegacyWildcardOfAnyType(t *testing.T) {
	each(t, patient, onADS, func(c *trial) {
		kinds := []kind{acme}
		if c.down == "delta" {
			kinds = append(kinds, vhds)
		}
		for _, k := range kinds {
			c.site.put(c, k, "a=1", "b=1")
			cl := c.servedAll("one", k, "a=1 b=1")
			cl.quiet()
		}
	})
}

// In SotW an empty list after a name is no interest, even in the ACK. In delta an empty list is no
// change, and the legacy wildcard stays.
func TestP21_EmptyListLater(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, cds, "a=1", "b=1")
		cl, other := c.client("one"), c.client("other")
		other.getsAll(cds, "a=1 b=1")
		if cl.delta {
			cl.getsAll(cds, "a=1 b=1")
			cl.tell(cds, rawRequest{})
			cl.gets(cds, "a=1")
			cl.tell(cds, rawRequest{})
			cl.unsub(cds, "a")
			cl.take(cds, "a=1") // P24: the wildcard still covers it
			c.site.put(c, cds, "b=2")
			cl.take(cds, "b=2")
			return
		}
		cl.sub(cds, "a")
		cl.want(cds, "a=1")
		cl.state(cds).names = nil
		a := answer{kind: cds}
		a.nonce, a.version = cl.lastNonce(cds), ""
		cl.ack(a)
		if c.ads {
			cl.quiet()
		}
		c.site.put(c, cds, "a=2")
		other.take(cds, "a=2 b=1")
		if c.ads {
			cl.quiet()
		}
		cl.gets(cds, "b=1")
	})
}

// SotW: a newly listed name is answered even if it did not change. A shorter list gets no response.
func TestP22_NewlyListed(t *testing.T) {
	each(t, patient, downSotW, func(c *trial) {
		for _, k := range []kind{eds, rds, cds, lds} {
			c.site.put(c, k, "a=1", "b=1")
			all := func(s string) string { // what a full-state response has in addition
				if k.full() {
					return s
				}
				return ""
			}
			cl := c.served("one", k, "a=1")
			cl.sub(k, "b")
			cl.take(k, all("a=1 ")+"b=1")
			cl.unsub(k, "a")
			cl.quiet(k)
			cl.sub(k, "a")
			cl.take(k, "a=1"+all(" b=1"))
			cl.quiet(k)
		}
	})
}

// Delta: a name subscribed again is sent again.
func TestP23_SubscribedAgain(t *testing.T) {
	each(t, patient, downDelta, func(c *trial) {
		for _, k := range []kind{eds, cds} {
			c.site.put(c, k, "a=1", "b=1")
			cl := c.served("one", k, "a=1 b=1")
			cl.gets(k, "a=1")
			cl.unsub(k, "b")
			cl.gets(k, "b=1")
			cl.quiet(k)
		}
	})
}

// The same under a wildcard.
func TestP23_UnderTheWildcard(t *testing.T) {
	each(t, patient, downDelta, func(c *trial) {
		c.site.put(c, cds, "a=1", "b=1")
		cl := c.client("one")
		cl.sub(cds, "*")
		cl.take(cds, "a=1 b=1")
		cl.gets(cds, "b=1")
		cl.sub(cds, "*")
		cl.until(cds, "b=1")
	})
}

// Unsubscribing from a name that was not subscribed is ignored. Unsubscribing alone is not
// answered.
func TestP24_Unsubscribe(t *testing.T) {
	each(t, patient, downDelta, func(c *trial) {
		c.site.put(c, eds, "a=1", "b=1")
		cl := c.served("one", eds, "a=1 b=1")
		cl.unsub(eds, "phantom")
		cl.unsub(eds, "b")
		cl.quiet(eds)
		c.site.put(c, eds, "b=2")
		c.site.put(c, eds, "a=2")
		cl.take(eds, "a=2")
		cl.unsub(eds, "a", "b", "phantom")
		cl.quiet(eds)
	})
}

// Beside a wildcard, an unsubscribed name is answered: either the wildcard covers it, or it is
// removed.
func TestP24_UnderTheWildcard(t *testing.T) {
	each(t, patient, downDelta, func(c *trial) {
		c.site.put(c, cds, "a=1", "b=1")
		cl := c.client("one")
		cl.sub(cds, "*")
		cl.take(cds, "a=1 b=1")
		cl.gets(cds, "a=1") // P23
		cl.unsub(cds, "a")
		cl.take(cds, "a=1")
		c.site.put(c, cds, "a=2")
		cl.take(cds, "a=2")
		cl.quiet(cds)
	})
}

// In delta, a name that the origin reports as missing is answered as removed. It is sent as soon as
// it appears.
func TestP25_AbsentThenThere(t *testing.T) {
	each(t, patient, both(downDelta, upDelta), func(c *trial) {
		c.site.put(c, eds, "a=1")
		cl := c.served("one", eds, "a=1 -b")
		c.site.put(c, eds, "b=1")
		cl.take(eds, "b=1")
		c.site.put(c, eds, "-b")
		cl.take(eds, "-b")
		late := c.client("late") // receives the known state
		late.gets(eds, "a=1 -b")
		c.site.put(c, eds, "b=2")
		cl.take(eds, "b=2")
		late.take(eds, "b=2")
	})
}

// A name is pending while the origin is away.
func TestP25_PendingWhileTheOriginIsAway(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, eds, "a=1", "b=1")
		cl := c.served("one", eds, "a=1")
		c.site.leave()
		c.site.waitFor(c, "the end of the stream", func() bool { return c.site.streams[0].closed })
		cl.sub(eds, "b")
		ever, _ := c.site.opened()
		c.site.stream(c, ever+2) // the relay has tried again since
		cl.nothing(eds, "the origin's return")
		c.site.back()
		cl.take(eds, "b=1")
		cl.quiet(eds)
	})
}

// A reconnecting delta client receives the difference to the versions that it resumes with.
func TestP27_Reconnect(t *testing.T) {
	each(t, patient, downDelta, func(c *trial) {
		for _, k := range []kind{cds, rds} {
			c.site.put(c, k, "a=1", "b=1", "c=1", "d=1")
			names := []string{"a", "b", "c", "d"}
			cl, other := c.client("one"), c.client("other")
			other.sub(k, names...)
			other.take(k, "a=1 b=1 c=1 d=1")
			cl.sub(k, names...)
			held := cl.take(k, "a=1 b=1 c=1 d=1")
			cl.reconnect()
			c.site.put(c, k, "b=2")
			other.take(k, "b=2")
			if c.up == "delta" || k.full() {
				c.site.put(c, k, "-c")
				other.take(k, "-c")
			}
			resumed := map[string]string{"d": ""} // P27: matches nothing
			for _, n := range []string{"a", "b", "c"} {
				resumed[n] = held.wraps[n].Version
			}
			cl.tell(k, rawRequest{names: names, resumed: resumed})
			if c.up == "delta" || k.full() {
				cl.take(k, "b=2 d=1 -c")
			} else {
				cl.take(k, "b=2 d=1")
			}
			cl.state(k).names = names
			cl.quiet(k)
			cl.sub(k, "a") // P23: suppressed once only
			cl.take(k, "a=1")
		}
	})
}

// For a wildcard, it also receives removals.
func TestP27_ReconnectOfAWildcard(t *testing.T) {
	each(t, patient, downDelta, func(c *trial) {
		c.site.put(c, cds, "a=1", "b=1")
		cl := c.client("one")
		held := cl.getsAll(cds, "a=1 b=1")
		cl.reconnect()
		cl.state(cds).wild = true
		cl.tell(cds, rawRequest{resumed: map[string]string{"a": held.wraps["a"].Version, "b": "of-another-time", "gone": "7"}})
		if c.up == "delta" { // the answer to the wildcard may have a second part (P67)
			cl.take(cds, "b=1")
			cl.take(cds, "-gone")
		} else {
			cl.take(cds, "b=1 -gone")
		}
		cl.quiet(cds)
	})
}

// Load assignments are always sent: a cluster may have been warming.
func TestP27_EndpointsAreAlwaysSent(t *testing.T) {
	each(t, patient, downDelta, func(c *trial) {
		c.site.put(c, eds, "a=1")
		cl := c.client("one")
		held := cl.gets(eds, "a=1")
		cl.reconnect()
		cl.state(eds).names = []string{"a"}
		cl.tell(eds, rawRequest{names: []string{"a"}, resumed: map[string]string{"a": held.wraps["a"].Version}})
		cl.take(eds, "a=1")
		cl.quiet(eds)
	})
}

// The delta session of the protocol documentation: a first update that is acknowledged, a second
// that is rejected, and a name that the client adds. Then it reconnects, resumes with
// versions of known resources, and lists all names. It receives only the difference.
func TestP15_P23_P27_DocumentedSession(t *testing.T) {
	each(t, patient, downDelta, func(c *trial) {
		c.site.put(c, rds, "foo=1", "bar=1", "wc=1")
		cl := c.client("one")
		held := cl.gets(rds, "bar=1 foo=1")
		c.site.put(c, rds, "foo=2")
		cl.nack(cl.want(rds, "foo=2"))
		wc := cl.gets(rds, "wc=1")
		cl.quiet(rds)

		cl.reconnect()
		cl.state(rds).names = []string{"foo", "bar", "wc"}
		cl.tell(rds, rawRequest{names: cl.state(rds).names, resumed: map[string]string{
			"foo": held.wraps["foo"].Version, "bar": held.wraps["bar"].Version, "wc": wc.wraps["wc"].Version}})
		cl.take(rds, "foo=2")
		cl.quiet(rds)
	})
}

// Names are opaque.
func TestP28_Opaque(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		for _, name := range []string{" ", "*x", "**", "a*", "/", "a b", "%2A", "ünïcödé ✓", "\u0000", "\ufeff", "a\u0301", "á", "x-", "_",
			"http://xdstp://x/*", strings.Repeat("n", 2048)} {
			c.site.put(c, rds, name+"=1")
			cl := c.client("one")
			cl.sub(rds, name)
			cl.take(rds, name+"=1")
			c.site.put(c, rds, name+"=2")
			cl.take(rds, name+"=2")
			cl.reconnect()
		}
	})
}

// Their length is the exception.
func TestP28_TooLong(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		cl := c.client("one")
		cl.sub(rds, strings.Repeat("n", 2049))
		cl.ended(rds, codes.InvalidArgument)

		good := c.client("good")
		up := good.byHand(cds)
		if r := up.reply(c, cds, "n1", "a=1", strings.Repeat("n", 2049)+"=1"); r.err == "" {
			c.Errorf("a name over 2 KiB was accepted from the origin")
		}
		up.accepts(c, cds, "n2", "a=2")
		good.take(cds, "a=2")
	})
}
