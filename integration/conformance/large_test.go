package conformance

import (
	"strings"
	"testing"
)

// A response over 256 MiB is not sent. The client keeps its resources, and receives the next
// response that fits. This test runs alone, since it needs memory and processors.
func TestP38_P59_TooLarge(t *testing.T) {
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
		cl.sub(rds, "b")
		cl.take(rds, "b=1")
		cl.sub(rds, append([]string{"b"}, all...)...)
		cl.quiet()
		clients = append(clients, cl)
	}
	c.site.put(c, rds, all[0]+"=1", all[1]+"=1")
	for _, cl := range clients {
		a := cl.next(rds)
		for _, n := range all {
			if _, there := a.bodies[n]; !there {
				t.Errorf("%s: %s is not in the response", cl.node.Id, n)
			}
		}
		cl.ack(a)
		cl.quiet()
	}
}
