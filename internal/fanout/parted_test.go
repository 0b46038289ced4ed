package fanout

import (
	"strconv"
	"testing"

	"xdsrelay/internal/xds"
)

// What a session remembers of names that were given up is counted, whatever keeps
// it from answering them, and no more once they are answered.
func TestP24_GivenUpIsCounted(t *testing.T) {
	const limit = 10
	for _, answered := range []bool{true, false} {
		w := newWorld(t, xds.ClusterType, xds.Delta)
		w.sub("*")
		if answered {
			w.wild("a")
			w.want("a") // and no more is taken
		}
		for i := range limit {
			n := "n" + strconv.Itoa(i)
			w.sub(n)
			w.unsub(n)
			w.sub(n) // the same is one
			w.unsub(n)
			if w.s.Parted(limit) {
				t.Fatalf("answered %v: %d names are taken for more than %d", answered, i+1, limit)
			}
		}
		w.sub("last")
		w.unsub("last")
		if !w.s.Parted(limit) {
			t.Errorf("answered %v: it remembers %d names", answered, len(w.s.fresh))
		}
		w.wild("a")
		for range 2 {
			w.next()
			w.ack()
		}
		if w.next(); w.s.Parted(0) {
			t.Errorf("answered %v: it remembers %v and %v", answered, w.s.fresh, w.s.early)
		}
	}
}
