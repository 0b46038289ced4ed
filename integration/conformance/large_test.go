package conformance

import (
	"strings"
	"testing"
)

// A response over the bound of 256 MiB is not sent. The client keeps what it has, and
// gets the next response that has room. This test runs alone, since it needs memory
// and processors.
func TestP38_P59_TooLarge(t *testing.T) {
	control := newTestControl(t)
	r := own(t, "delta", nil, control.addr)
	value := strings.Repeat("x", 52<<20)
	for _, down := range []string{"sotw", "delta"} {
		t.Run(down, func(t *testing.T) {
			c := on(t, place{up: "delta", down: down, ads: true}, r, control)
			all := names("a", 5)
			first := c.client("first")
			for i, n := range all {
				c.site.put(c, rds, n+"="+value)
				if i%2 == 1 || i+1 == len(all) { // as much as an origin may send at once
					first.sub(rds, all[i/2*2:i+1]...)
					first.ack(first.next(rds))
				}
			}
			c.site.put(c, rds, "b=1")
			cl := c.client("one")
			cl.sub(rds, "b")
			cl.take(rds, "b=1")
			cl.sub(rds, append([]string{"b"}, all...)...)
			cl.quiet()
			c.site.put(c, rds, all[0]+"=1", all[1]+"=1")
			a := cl.next(rds)
			for _, n := range all {
				if a.bodies[n] == nil {
					t.Errorf("%s is not in the response", n)
				}
			}
			cl.ack(a)
			cl.quiet()
		})
	}
}
