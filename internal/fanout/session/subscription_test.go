package session

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"xdsrelay/internal/xds"
)

// A SotW list with names appended adds them to what the list before requested, the wildcard included
// (P20). Any other list replaces it.
func TestP20_AppendedNames(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.SotW)
	for _, c := range []struct {
		names []string
		want  string
		wild  bool
	}{
		{[]string{"b", "a"}, "[a b]", false},
		{[]string{"b", "a"}, "[a b]", false},
		{[]string{"b", "a", "*"}, "[a b]", true},
		{[]string{"b", "a", "*", "c", "a"}, "[a b c]", true},
		{[]string{"b", "a", "c"}, "[a b c]", false},
		{[]string{"b"}, "[b]", false},
		{[]string{"b", "d"}, "[b d]", false},
		{nil, "[]", false},
		{[]string{"b"}, "[b]", false},
	} {
		w.sub(c.names...)
		got := w.s.Requested()
		if names := slices.Collect(got.Names.All()); fmt.Sprint(names) != c.want || got.Wildcard != c.wild {
			t.Fatalf("%q requests %q, wildcard %v", c.names, names, got.Wildcard)
		}
	}
}

// Names that a client gives up beside the wildcard count until the client has acknowledged
// their answer (P24).
func TestP24_UnsubscribedIsCounted(t *testing.T) {
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

// What a client already had counts until it is answered. What it has to remove counts until the
// client has acknowledged that (P27).
func TestP27_ClientVersionsAreCounted(t *testing.T) {
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
