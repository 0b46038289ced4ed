package session

import (
	"testing"

	"xdsrelay/internal/xds"
)

// What the origin says of a name to who asked for it is nothing to who has the
// wildcard alone: else each name that one client asks for in vain would send all
// others the whole state (P51, P16).
func TestP51_ErrorsOfOthersAreNoWordToTheWildcard(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			w := newSessionFixture(t, xds.ClusterType, v)
			w.wild("a", "b")
			w.sub()
			w.want("a b")
			w.ack()
			w.Fail(false, "x", "-y", "a")
			w.want("")
			w.joins()
			w.sub()
			w.want("a b")
			w.ack()
			w.joins()
			w.sub("*", "x")
			w.want("a b !x")
			w.ack("*", "x")
			// What is said of what the wildcard brings is for all.
			w.Fail(true, "b")
			if v == xds.SotW {
				w.want("a b !b !x")
			} else {
				w.want("!b")
			}
		})
	}
}
