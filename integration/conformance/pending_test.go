package conformance

import (
	"strings"
	"testing"

	"xdsrelay/internal/xdstest"
)

// At most one response of a type is unanswered at a time. Changes meanwhile are merged.
func TestP19_OneUnanswered(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, rds, "a=1", "b=1")
		cl := c.served("one", rds, "a=1 b=1")
		c.site.put(c, rds, "a=2")
		a := cl.want(rds, "a=2")
		c.site.put(c, rds, "a=3")
		c.site.put(c, rds, "b=3")
		c.unanswered(cl, rds, "b=4")
		cl.ack(a)
		cl.take(rds, "a=3 b=4")
		cl.quiet(rds)

		c.site.put(c, rds, "a=5")
		a = cl.want(rds, "a=5")
		c.unanswered(cl, rds, "b=5")
		cl.nack(a) // sends the merged changes, and is not part of them
		cl.take(rds, "b=5")
		cl.quiet(rds)
	})
}

// After ack_timeout the next response is sent without an ACK, based on the last acknowledged one. A
// NACK that comes then is still kept.
func TestP19_AckTimeout(t *testing.T) {
	each(t, hasty, anywhere, func(c *trial) {
		c.site.put(c, rds, "a=1", "b=1", "c=1")
		cl := c.served("late", rds, "a=1 b=1 c=1")
		c.site.put(c, rds, "a=2")
		late := cl.want(rds, "a=2")
		c.site.put(c, rds, "b=2")
		second := cl.next(rds) // with or without a, which the client has not acknowledged either
		if got := second.String(); got != "b=2" && got != "a=2 b=2" {
			c.Errorf("after the timeout it received %q", got)
		}
		if second.nonce == late.nonce {
			c.Errorf("both have the nonce %q", late.nonce)
		}
		cl.tell(rds, rawRequest{names: map[bool][]string{true: nil, false: {"a", "b", "c"}}[cl.delta], nonce: late.nonce, err: "late NACK"})
		xdstest.Eventually(c, "the late NACK", func() error {
			if body := c.relay.get(c, "/keys/"+c.key); !strings.Contains(body, "late NACK") {
				return errorf("%s", body)
			}
			return nil
		})
	})
}

// In delta, answers to newly subscribed names do not wait.
func TestP19_NewNamesDoNotWait(t *testing.T) {
	each(t, patient, downDelta, func(c *trial) {
		c.site.put(c, rds, "a=1", "b=1")
		cl := c.client("one")
		cl.sub(rds, "a")
		a := cl.want(rds, "a=1")
		cl.sub(rds, "b")
		b := cl.want(rds, "b=1")
		unanswered := []answer{a, b}
		if c.up == "delta" { // a SotW origin reports no absence
			cl.sub(rds, "nowhere")
			unanswered = append(unanswered, cl.want(rds, "-nowhere"))
		}
		c.unanswered(cl, rds, "a=2")
		for _, r := range unanswered {
			cl.ack(r)
		}
		cl.take(rds, "a=2")
	})
}

// Envoy withholds the ACK of clusters while they warm. That does not delay the next clusters if
// listeners or routes come after them.
func TestP19_WarmingDoesNotHoldBack(t *testing.T) {
	each(t, patient, onADS, func(c *trial) {
		c.site.put(c, cds, "a=1")
		c.site.put(c, eds, "a=1")
		c.site.put(c, lds, "l=1")
		cl := c.client("one")
		cl.sub(cds)
		cl.want(cds, "a=1") // not acknowledged
		cl.sub(eds, "a")
		cl.want(eds, "a=1") // not acknowledged either
		cl.getsAll(lds, "l=1")
		witness := c.servedAll("witness", cds, "a=1")
		c.site.put(c, cds, "b=1")
		witness.takeFull(cds, "a=1 b=1", "b=1")
		cl.nothing("", "a later type's change")
		c.site.put(c, lds, "l=2")
		got := cl.first()
		if got.kind != cds || got.bodies["b"] == nil {
			c.Fatalf("with a later type's change it first received %s %q, want the clusters", got.kind.short(), got)
		}
		for range 2 { // a response of endpoints may come before the listeners
			if got = cl.first(); got.kind != eds {
				break
			}
		}
		if got.kind != lds || got.String() != "l=2" {
			c.Fatalf("then it received %s %q, want the listeners", got.kind.short(), got)
		}
	})
}
