package session

import (
	"strconv"
	"testing"

	"xdsrelay/internal/xds"
)

// Names that a client gives up beside the wildcard count until the client has acknowledged
// their answer.
func TestP24_GivenUpIsCounted(t *testing.T) {
	const many = 10
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.sub("*")
	for i := range many {
		n := "n" + strconv.Itoa(i)
		w.sub(n)
		w.unsub(n)
		if got := w.s.NamesWeight(); got != i+1 {
			t.Fatalf("%d names count as %d", i+1, got)
		}
	}
	w.wild("a")
	if w.next(); w.s.NamesWeight() != many {
		t.Errorf("sent, and not acknowledged: %d", w.s.NamesWeight())
	}
	if w.ack(); w.s.NamesWeight() != 0 {
		t.Errorf("acknowledged: %d", w.s.NamesWeight())
	}
}

// What a client brought counts until it is answered, and what it is to let go of until it
// has acknowledged that.
func TestP27_BroughtIsCounted(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.send(request{names: []string{"*"}, initial: map[string]string{"a": "v", "b": "v"}})
	if got := w.s.NamesWeight(); got != 2 {
		t.Errorf("brought: %d", got)
	}
	w.wild("a")
	if w.next(); w.s.NamesWeight() != 2 {
		t.Errorf("sent, and not acknowledged: %d", w.s.NamesWeight())
	}
	if w.ack(); w.s.NamesWeight() != 0 {
		t.Errorf("acknowledged: %d", w.s.NamesWeight())
	}
}
