package session

import (
	"testing"

	"xdsrelay/internal/xds"
)

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
