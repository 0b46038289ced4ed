package session

import (
	"testing"

	"xdsrelay/internal/xds"
)

// A response that is too large is not sent, whatever asks for it. The client keeps
// what it has, and other types and later responses go on.
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
		w.ack("a")
		w.want("")
		w.sub("a", "b")
		w.named("a=2", "b=2")
		w.want("")
		if o := w.s.Oversized(); o == nil || o.Version != w.Cur.Version || o.Bytes <= w.s.limit {
			t.Errorf("%v: reported %+v", v, o)
		}
		w.want("") // nor is it made again
		w.s.limit = maxResponse
		w.named("a=33")
		w.want("a=33 b=2")
		if w.s.Oversized() != nil {
			t.Errorf("%v: still reported", v)
		}
	}
}

// P59: a response is as large as its limit, to the byte.
func TestP59_TheBound(t *testing.T) {
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
	b := xds.Body{Form: xds.Form{Variant: w.s.form.Variant}, Type: w.Type.URL, Version: w.Cur.Version, Identifier: "id"}
	w.Cur.Resources(func(r *xds.Resource) bool {
		b.Resources = append(b.Resources, r)
		return true
	})
	return b.Size() + NonceSize
}
