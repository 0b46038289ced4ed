package conformance

import (
	"strings"
	"testing"
)

// A response over the bound of 256 MiB comes in parts, each with a nonce of its
// own and after the ACK of the one before. All clients of a relay are served
// from the same five resources; this test runs alone, since it needs memory and
// processors.
func TestP38_P59_Parts(t *testing.T) {
	for _, up := range []string{"sotw", "delta"} {
		control := newTestControl(t)
		c := on(t, place{up: up, down: "delta", ads: true}, own(t, up, nil, control.addr), control)
		value := strings.Repeat("x", 52<<20)
		all := names("a", 5)
		first := c.client("first")
		for i, n := range all {
			c.site.put(c, rds, n+"="+value)
			if i%2 == 1 || i+1 == len(all) { // as much as an origin may send at once
				first.sub(rds, all[i/2*2:i+1]...)
				first.ack(first.next(rds))
			}
		}
		for _, at := range places() {
			if at.up != up {
				continue
			}
			t.Run(at.String(), func(t *testing.T) {
				c := *c
				c.TB, c.place = t, at
				cl := c.client("one")
				cl.sub(rds, all...)
				have := make(map[string]bool)
				var nonces []string
				for len(have) < len(all) {
					a := cl.next(rds)
					for n, b := range a.bodies {
						if have[n] {
							t.Errorf("%s came twice", n)
						}
						have[n] = field(b.Value, valueField) == value
					}
					if holds(nonces, a.nonce) {
						t.Errorf("two parts have the nonce %q", a.nonce)
					}
					nonces = append(nonces, a.nonce)
					if c.ads {
						cl.quiet() // the next part waits
					}
					cl.nothing(rds, "the ACK")
					cl.ack(a)
				}
				if len(nonces) < 2 {
					t.Errorf("%d parts", len(nonces))
				}
				for n, whole := range have {
					if !whole {
						t.Errorf("%s came otherwise", n)
					}
				}
			})
		}
	}
}
