package session

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"xdsrelay/internal/xds"
)

func TestP20_AddThenRemove(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("a", "b")
	w.send(request{names: []string{"a", "b", "a"}, unsub: []string{"b", "x"}})
	w.want("a")
	w.send(request{names: []string{"b"}, unsub: []string{"a"}, ack: -1})
	w.want("b")
	w = newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.wild("a")
	w.send(request{names: []string{"*"}, unsub: []string{"*"}})
	w.want("")
	if !w.s.sub.requested.Empty() {
		t.Fatalf("wants %+v", w.s.sub.requested)
	}
}

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

func TestP21_LegacyWildcardByType(t *testing.T) {
	for _, typ := range append(xds.Types(), xds.TypeOf("type.googleapis.com/acme.Thing")) {
		for _, v := range variants {
			w := newSessionFixture(t, typ.URL, v)
			w.sub()
			excepted := typ.Short == "EDS" || typ.Short == "RDS" || typ.Short == "SDS" || typ.Short == "RTDS" || typ.Short == "ECDS"
			if w.s.sub.requested.Wildcard == excepted {
				t.Errorf("%s %s: an empty first list is a wildcard: %v", typ.URL, v, w.s.sub.requested.Wildcard)
			}
			w = newSessionFixture(t, typ.URL, v)
			w.sub("*")
			if !w.s.sub.requested.Wildcard {
				t.Errorf("%s %s: * is no wildcard", typ.URL, v)
			}
		}
	}
	// Delta: an empty list means no change. The legacy wildcard stays until * is
	// unsubscribed.
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.sub()
	w.sub("A")
	w.unsub("A")
	w.sub()
	if !w.s.sub.requested.Wildcard {
		t.Fatal("the legacy wildcard ended")
	}
	w.unsub("*")
	w.sub()
	if !w.s.sub.requested.Empty() {
		t.Fatal("an empty list subscribed again")
	}
}

func TestP22_NewlyListed(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.SotW)
	w.named("a", "b", "c")
	w.sub("a", "b")
	w.want("a b")
	w.ack("a", "b", "c")
	w.want("c")
	w.ack("a") // a shorter list gets no response
	w.want("")
	w.sub("a", "b")
	w.want("b") // newly listed again
	w = newSessionFixture(t, xds.ClusterType, xds.SotW)
	w.named("a", "b", "-x")
	w.sub("a")
	w.want("a")
	w.ack("a", "b")
	w.want("a b")
	w.ack("a")
	w.want("")
	w.sub("a", "x") // the full set answers it, without it
	w.want("a")
}

func TestP23_SubscribedAgain(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("a", "b")
	w.sub("a", "b")
	w.want("a b")
	w.ack()
	w.sub("a")
	w.want("a")
	w.ack()
	w = newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.wild("a", "b")
	w.sub("*")
	w.want("a b")
	w.ack()
	w.sub("*")
	w.want("a b")
}

func TestP24_Unsubscribe(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.wild("a", "b")
	w.sub("*", "a", "x")
	w.want("a b")
	w.ack()
	w.named("-x") // the name has an answer of its own
	w.want("-x")
	w.ack()
	w.unsub("b") // was not subscribed by name
	w.want("")
	w.unsub("a") // the wildcard covers it
	w.want("a")
	w.ack()
	w.unsub("x") // the wildcard does not
	w.want("-x")
	w = newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("a", "b")
	w.sub("a", "b")
	w.want("a b")
	w.ack()
	w.unsub("b")
	w.want("")
	w.named("b=2")
	w.want("")
}

// A subscription to a name that does not exist is answered at once, and the origin is asked once
// more. SotW lists all names in each request, so there the group compares the lists.
func TestP25_AbsentIsRequestedAgain(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.named("-a", "b")
	w.sub("a", "b", "c")
	if !slices.Equal(w.again, []string{"a"}) {
		t.Errorf("asks again for %v", w.again)
	}
	w.want("b -a")
	w.ack()
	if len(w.again) > 0 {
		t.Errorf("an ACK asks again for %v", w.again)
	}
	w.sub("a")
	if !slices.Equal(w.again, []string{"a"}) {
		t.Errorf("asks again for %v", w.again)
	}
	w.want("-a")
}

func TestP27_Reconnect(t *testing.T) {
	w := newSessionFixture(t, xds.RouteType, xds.Delta)
	v := func(spec string) string { return w.Resource(spec).Version.String() }
	w.named("same", "changed=2", "-gone", "new", "empty")
	w.send(request{
		names:   []string{"same", "changed", "gone", "new", "empty", "late", "late2"},
		initial: map[string]string{"same": v("same"), "changed": v("changed"), "gone": v("gone"), "empty": "", "late": v("late"), "late2": v("late2"), "unwanted": "x"},
	})
	w.want("changed=2 empty new -gone")
	w.ack()
	w.named("late") // known later, and just what the client has
	w.want("")
	w.named("late2=2")
	w.want("late2=2 -unwanted") // no answer is outstanding any more
	w.ack()
	w.named("same=2")
	w.want("same=2")
	w.ack()
	w.sub("late") // P23
	w.want("late")

	// Under the wildcard, what is gone is removed as well.
	w = newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.wild("a", "b=2")
	w.send(request{initial: map[string]string{"a": w.Resource("a").Version.String(), "b": w.Resource("b").Version.String(), "gone": "v"}})
	w.want("b=2 -gone")
	w.ack()
	w.want("")

	// Before the origin answered, nothing counts as gone.
	w = newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.send(request{initial: map[string]string{"a": w.Resource("a").Version.String(), "gone": "v"}})
	w.want("")
	w.wild("a")
	w.want("-gone")

	// Load assignments are always sent.
	w = newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("a")
	w.send(request{names: []string{"a"}, initial: map[string]string{"a": w.Resource("a").Version.String()}})
	w.want("a")
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
