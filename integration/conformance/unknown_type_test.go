package conformance

import (
	"fmt"
	"strings"
	"testing"

	"xdsrelay/internal/xdstest"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const health kind = "type.googleapis.com/istio.v1.HealthInformation"

// Under a wildcard an unknown type may have one resource without a name. It is replaced, removed,
// and passed on without a name, in all combinations.
func TestP3_Singleton(t *testing.T) {
	each(t, patient, onADS, func(c *trial) {
		cl, up := c.byHand(acme)
		for i := range 5 {
			one := fmt.Sprint("=", i)
			up.accepts(c, acme, fmt.Sprint("v", i), one)
			cl.take(acme, one)
		}
		for _, variant := range []string{"sotw", "delta"} {
			late := c.clientOf(variant, true, "late-"+variant)
			late.getsAll(acme, "=4")
		}
		up.accepts(c, acme, "gone", "-")
		cl.takeFull(acme, "", "-")
		up.accepts(c, acme, "back", "=5")
		cl.nack(cl.want(acme, "=5"))
		up.accepts(c, acme, "good", "=6")
		cl.take(acme, "=6")

		up.end(c, status.Error(codes.Unavailable, "restart"))
		up = c.site.stream(c, 2)
		r := c.site.await(c, acme, "the request on stream 2", func(r request) bool { return r.stream == 2 })
		if _, listed := r.resumed[""]; listed || holds(r.names, "") {
			c.Errorf("the empty name is listed: %v", r)
		}
		up.accepts(c, acme, "again", "=6")
		up.accepts(c, acme, "new", "=7")
		cl.take(acme, "=7")
		cl.quiet()
	})
}

// A delta origin can name its resources, so two without a name are a fault.
func TestP3_TwoWithoutAName(t *testing.T) {
	each(t, patient, both(upDelta, onADS), func(c *trial) {
		cl, up := c.byHand(acme)
		up.accepts(c, acme, "1", "=1")
		cl.take(acme, "=1")
		if r := up.reply(c, acme, "2", "=2", "=3"); r.err == "" {
			c.Error("two resources without a name were acknowledged")
		}
		cl.quiet()
	})
}

// values are the values in a response, in the order in which they stand there.
func (a answer) values() string {
	var out []string
	for _, r := range a.msg.(*discoveryv3.DiscoveryResponse).Resources {
		out = append(out, field(r.Value, valueField))
	}
	return strings.Join(out, " ")
}

// Resources that a SotW origin sends without unique names reach SotW clients as they came. Each
// response is the full state. Delta clients wait, and get what has names.
func TestP3_Places(t *testing.T) {
	each(t, patient, both(upSotW, onADS), func(c *trial) {
		cl, up := c.byHand(acme)
		unnamed := func(version, values string, things ...string) {
			c.Helper()
			up.accepts(c, acme, version, things...)
			if cl.delta {
				return
			}
			a := cl.any(acme)
			if got := a.values(); got != values {
				c.Fatalf("a response holds the values %q, want %q", got, values)
			}
			cl.ack(a)
		}
		unnamed("1", "x y z", "=x", "=y", "=z")
		unnamed("2", "z y", "=z", "=y")
		if cl.delta {
			cl.quiet()
			if !strings.Contains(c.relay.said(c.key), "reason=no_names") {
				c.Error("the log does not say why the type stays unanswered")
			}
		}
		up.accepts(c, acme, "3", "a=1", "b=1")
		cl.take(acme, "a=1 b=1")
		up.accepts(c, acme, "4", "a=2")
		cl.takeFull(acme, "a=2 b=1", "a=2")   // b has a name
		unnamed("5", "1 2", "p\n=1", "q\n=2") // field 1 of a map, for example
		up.accepts(c, acme, "6", "c=1")
		cl.takeFull(acme, "c=1", "c=1 -a -b")
		cl.quiet()
	})
}

// A report is no subscription: the origin does not hear of it, and the client's other requests go
// on, also for the same type.
func TestP3_Reports(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, cds, "a=1")
		cl := c.client("one")
		if c.ads {
			cl.tell(health, rawRequest{err: "unhealthy"})
			cl.tell(health, rawRequest{})
		}
		cl.tell(cds, rawRequest{err: "a report"})
		cl.getsAll(cds, "a=1")
		if c.ads {
			cl.tell(health, rawRequest{err: "unhealthy"})
			cl.quiet()
		}
		if r := c.site.requests(health); len(r) > 0 {
			c.Errorf("the origin was asked %v", r)
		}
		if r := c.site.requests(cds)[0]; r.err != "" {
			c.Errorf("the origin was asked %v", r)
		}
	})
}

// What has no name is stored, and is served after a restart without an origin. The origin's answer
// replaces all of it, also if the relay uses the other variant from now on.
func TestP3_P66_StoredWithoutNames(t *testing.T) {
	eachOwn(t, onADS, func(t *testing.T, at place) {
		control, dir := newTestControl(t), t.TempDir()
		more := xdstest.Config{"store.path": dir, "store.interval": "20ms"}
		first := own(t, at.up, more, control.addr)
		c := on(t, at, first, control)
		before, up := c.byHand(acme)
		places := at.up == "sotw" && at.down == "sotw"
		if places {
			up.accepts(c, acme, "1", "=1", "=2")
			before.ack(before.any(acme))
		} else {
			up.accepts(c, acme, "1", "=1")
			before.take(acme, "=1")
		}
		before.reconnect()
		c.stopStored(dir)
		c.site.leave()
		variant := at.up
		if places {
			variant = "delta"
		}
		c.relay = own(t, variant, more, control.addr)
		fresh := c.client("fresh")
		fresh.sub(acme)
		if places {
			a := fresh.any(acme)
			if got := a.values(); got != "1 2" {
				t.Errorf("stored: %q", got)
			}
			fresh.ack(a)
		} else {
			fresh.take(acme, "=1")
		}
		ever, _ := c.site.opened()
		c.site.back()
		var r request
		c.site.waitFor(t, "a stream that stays open", func() bool {
			for _, u := range c.site.streams[ever:] {
				if !u.closed && u.asks != nil {
					up = u
				}
			}
			return up.number > ever
		})
		r = c.site.await(c, acme, "the request", func(r request) bool { return r.stream == up.number })
		if len(r.names) > 1 || len(r.resumed) > 0 {
			t.Errorf("the relay asked %v", r)
		}
		up.accepts(c, acme, "2", "=3")
		fresh.take(acme, "=3")
	})
}
