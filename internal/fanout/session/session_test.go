package session

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"xdsrelay/internal/xds"
)

var variants = []xds.Variant{xds.SotW, xds.Delta}

func each(t *testing.T, url xds.TypeURL, f func(*sessionFixture)) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) { f(newSessionFixture(t, url, v)) })
	}
}

// A client rejects a response late. A response that did not wait had a change of a part of it.
// The rest is sent, since no further change may come to send it (P15).
func TestP15_LateNACKOfAChangedResource(t *testing.T) {
	t.Run("delta", func(t *testing.T) {
		w := newSessionFixture(t, xds.ClusterType, xds.Delta)
		w.wild("a", "b", "c")
		w.sub()
		w.accepts("a b c")
		w.wild("a=2", "-b")
		w.want("a=2 -b")
		w.later = true
		w.wild("-a")
		w.want("-a")
		w.later = false
		w.send(request{nack: 2})
		w.want("")
		w.ack() // the ACK of the newest is pending
		w.accepts("-b")
		w.want("")
	})
	t.Run("sotw", func(t *testing.T) {
		w := newSessionFixture(t, xds.EndpointType, xds.SotW)
		w.named("a", "b")
		w.sub("a", "b")
		w.accepts("a b")
		w.named("a=2", "b=2")
		w.want("a=2 b=2")
		w.later = true
		w.named("a=33")
		w.want("a=33")
		w.later = false
		w.send(request{names: []string{"a", "b"}, nack: 2})
		w.want("")
		w.ack()
		w.accepts("b=2")
		w.want("")
	})
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

// Only an existing load assignment follows a cluster. An absent one is not reported again, nor
// reported as gone before the origin said so (P37).
func TestP37_FollowersThatDoNotExist(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			t.Run("wildcard", func(t *testing.T) {
				w := newSessionFixture(t, xds.EndpointType, v)
				w.wild("c")
				w.sub("*")
				w.accepts("c")
				w.s.Refresh([]string{"b"})
				if w.s.Pending(w.Cur) {
					t.Error("something is pending")
				}
				w.want("")
				w.wild("b")
				w.want(w.either("b c", "b"))
			})
			t.Run("by name", func(t *testing.T) {
				w := newSessionFixture(t, xds.EndpointType, v)
				w.named("-b", "c")
				w.sub("b", "c")
				w.accepts(w.either("c", "c -b"))
				w.s.Refresh([]string{"b"})
				w.want("")
				if w.s.Refresh([]string{"z"}) {
					t.Error("what is not subscribed follows")
				}
				// So it is beside other names.
				w.named("c=2")
				w.s.Refresh([]string{"b"})
				w.accepts("c=2")
				w.named("b")
				w.want("b")
			})
		})
	}
	// If it went meanwhile, its removal is a change, and is sent once.
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("b")
	w.sub("b")
	w.accepts("b")
	w.s.Refresh([]string{"b"})
	w.named("-b")
	w.accepts("-b")
	w.want("")
}

// A response that is too large is not sent, in no case. The client keeps what it has. Other
// types and later responses are sent (P38).
func TestP38_TooLarge(t *testing.T) {
	for _, v := range variants {
		w := newSessionFixture(t, xds.EndpointType, v)
		w.s.limit = w.room(1)
		w.named("a", "b")
		w.sub("a")
		w.want("a")
		if v == xds.Delta { // an answer that does not wait for the ACK
			w.named("c", "d")
			w.sub("c", "d")
			w.want("")
			if w.s.Oversized() == nil {
				t.Errorf("%v: not reported", v)
			}
			w.unsub("c", "d")
		}
		w.ack()
		w.want("")
		w.sub("a", "b")
		w.named("a=2", "b=2")
		w.want("")
		if o := w.s.Oversized(); o == nil || o.Version != w.Cur.Version || o.Bytes <= w.s.limit {
			t.Errorf("%v: reported %+v", v, o)
		}
		w.want("") // it is not built again either
		w.s.limit = maxResponse
		w.named("a=33")
		w.want("a=33 b=2")
		if w.s.Oversized() != nil {
			t.Errorf("%v: still reported", v)
		}
	}
}

// A response may be as large as its limit, to the byte (P59).
func TestP59_ResponseAtTheLimit(t *testing.T) {
	for extra, responses := range map[int]int{0: 1, 1: 1, -1: 0} {
		w := newSessionFixture(t, xds.EndpointType, xds.Delta)
		w.named("a", "b")
		w.s.limit = sizeOf(w) + extra
		w.sub("a", "b")
		n := 0
		for ; w.next() != ""; n++ {
			w.ack()
		}
		if n != responses {
			t.Errorf("%d bytes to spare: %d responses", extra, n)
		}
	}
}

// sizeOf is the size of everything in one response.
func sizeOf(w *sessionFixture) int {
	b := xds.ResponseBody{ResourceFormat: xds.ResourceFormat{Variant: w.s.form.Variant}, Type: w.Type.URL, Version: w.Cur.Version, Identifier: "id"}
	w.Cur.Resources(func(r *xds.Resource) bool {
		b.Resources = append(b.Resources, r)
		return true
	})
	return b.Size() + nonceSize
}

// The model plays the histories of one seed, so that its result depends on the code alone.
// With -rapid.checks, as in make model, or -rapid.seed it plays others.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" || f.Name == "rapid.seed" })
	if !given {
		if err := flag.Set("rapid.seed", "1"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}
