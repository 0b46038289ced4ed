package conformance

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/xdstest"
)

// A SotW response over 256 MiB is not sent. The client keeps its resources, and receives the next
// response that fits. A delta response is sent in parts. This test runs alone, since it needs memory
// and processors.
func TestP38_P59_TooLarge(t *testing.T) {
	t.Parallel()
	control := newTestControl(t)
	c := on(t, place{up: "delta", down: "delta", ads: true}, own(t, "delta", nil, control.addr), control)
	value := strings.Repeat("x", 52<<20)
	all := names("a", 5)
	first := c.client("first")
	for i, n := range all {
		c.site.put(c, rds, n+"="+value)
		if i%2 == 1 || i+1 == len(all) { // the limit of one response of an origin
			first.sub(rds, all[i/2*2:i+1]...)
			first.ack(first.next(rds))
		}
	}
	c.site.put(c, rds, "b=1")
	var clients []*client
	for _, variant := range []string{"sotw", "delta"} {
		cl := c.clientOf(variant, true, variant)
		cl.gets(rds, "b=1")
		cl.sub(rds, append([]string{"b"}, all...)...)
		for range len(all) + 1 {
			if cl.delta {
				a := cl.next(rds)
				if len(a.bodies) != 1 { // b is asked for again
					t.Errorf("a part has %d resources", len(a.bodies))
				}
				cl.ack(a)
			}
		}
		cl.quiet()
		clients = append(clients, cl)
	}
	c.site.put(c, rds, all[0]+"=1", all[1]+"=1")
	for _, cl := range clients {
		a := cl.next(rds)
		want := all
		if cl.delta {
			want = all[:2] // the others are not new
		}
		for _, n := range want {
			if _, there := a.bodies[n]; !there {
				t.Errorf("%s: %s is not in the response", cl.node.Id, n)
			}
		}
		cl.ack(a)
		cl.quiet()
	}
}

// Clients that receive 4 MiB at most, gRPC's default, get a large delta response in parts. A NACK of a
// part concerns that part: a change in it sends that part again, and no other.
func TestP38_Parts(t *testing.T) {
	each(t, patient, both(downDelta, onADS), func(c *trial) {
		value := strings.Repeat("x", 1<<20)
		var all []string
		for _, n := range names("a", 7) {
			all = append(all, n+"="+value)
		}
		c.site.put(c, cds, all...)
		for _, what := range []string{"first", "later"} {
			cl := c.client(what)
			cl.receives = 4 << 20
			cl.sub(cds)
			var parts []answer
			for n := 0; n < len(all); n += len(parts[len(parts)-1].bodies) {
				parts = append(parts, cl.next(cds))
			}
			for i, a := range parts {
				if i == 1 {
					cl.nack(a)
				} else {
					cl.ack(a)
				}
			}
			cl.quiet()
			rejected := slices.Sorted(maps.Keys(parts[1].bodies))
			c.site.put(c, cds, rejected[0]+"="+what+value)
			if a := cl.next(cds); !slices.Equal(slices.Sorted(maps.Keys(a.bodies)), rejected) {
				c.Fatalf("sent again: %v, want %v", slices.Sorted(maps.Keys(a.bodies)), rejected)
			}
		}
	})
}

// SotW responses are not cut. A client that ends its stream right after one over 4 MiB is reported. A
// client that has answered it is not.
func TestP38_ClientLimit(t *testing.T) {
	each(t, patient, both(downSotW, onADS), func(c *trial) {
		c.site.put(c, cds, "a="+strings.Repeat("x", 5<<20))
		large, happy := c.client("large-"+c.key), c.client("happy-"+c.key)
		happy.sub(cds)
		happy.ack(happy.next(cds))
		happy.quiet()
		happy.reconnect()
		large.receives = 4 << 20
		large.sub(cds)
		large.ended(cds, codes.ResourceExhausted)
		said := func(cl *client) bool {
			return strings.Contains(c.relay.said("node="+cl.node.Id), "reason=client_message_limit")
		}
		xdstest.Eventually(c, "the log", func() error {
			if !said(large) {
				return errors.New("the relay does not say why the stream ended")
			}
			return nil
		})
		if said(happy) {
			c.Error("a client that answered is reported")
		}
		if !strings.Contains(c.relay.get(c, "/server_info"), "client_message_limit") {
			c.Error("the status does not have it")
		}
	})
}
