package content

import (
	"fmt"
	"testing"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Deletions that wait cost nothing until they are due, however many they are. They end in the order
// in which they came, and one that ends early leaves the others.
func TestP36_WaitingDeletionsCostNothing(t *testing.T) {
	const n, delay = 100_000, 5 * time.Second
	v := New(false).Add(xds.TypeOf(xds.ClusterType), new(notes))
	r, start := &v.removals, time.Now()
	for i := range n {
		r.wait(partName{snapshot.ScopeOf(i%2 == 0), fmt.Sprint(i)}, start.Add(time.Duration(i)))
	}
	began := time.Now()
	for range 1000 {
		v.Remove(start, delay)
		equal(t, "due", r.due(delay), start.Add(delay))
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("1000 steps with %d deletions that wait take %v", n, took)
	}
	r.forget([]string{"1"}, false)
	v.Remove(start.Add(delay), delay)
	equal(t, "due", r.due(delay), start.Add(delay+2))
	v.Remove(start.Add(delay+9), delay)
	equal(t, "due", r.due(delay), start.Add(delay+10))
	r.forget(nil, true) // the wildcard's
	v.Remove(start.Add(delay+10), delay)
	equal(t, "due", r.due(delay), start.Add(delay+11))
	equal(t, "waiting", len(r.waiting), n/2-5)
	equal(t, "an ACK of a type whose deletions do not wait", New(false).Add(xds.TypeOf(xds.RouteType), new(notes)).Acked(1), false)
}
