package session

import (
	"testing"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

func TestP30_FullState(t *testing.T) {
	for _, url := range []xds.TypeURL{xds.ClusterType, xds.ListenerType, xds.ScopedType} {
		w := newSessionFixture(t, url, xds.SotW)
		w.wild("a", "b")
		w.sub()
		w.want("a b")
		w.ack()
		w.wild("c")
		w.want("a b c")
		w.ack()
		w.wild("-a")
		w.want("b c")
		w.ack()
		w.wild("-b", "-c")
		w.want("(empty)")
	}
	// Any type under a wildcard.
	w := newSessionFixture(t, "type.googleapis.com/acme.Thing", xds.SotW)
	w.wild("a", "b")
	w.sub()
	w.want("a b")
	w.ack()
	w.wild("a=2")
	w.want("a=2 b")
	// A name beside the wildcard waits for it too: what a full set leaves out is gone.
	w = newSessionFixture(t, xds.ClusterType, xds.SotW)
	w.named("a")
	w.sub("*", "a")
	w.want("")
	w.wild("a", "b")
	w.want("a b")
	// By names, all that the stream asked for.
	w = newSessionFixture(t, xds.ListenerType, xds.SotW)
	w.named("a", "b", "other")
	w.sub("a", "b")
	w.want("a b")
	w.ack("a", "b")
	w.named("other=2")
	w.want("")
	w.named("-a")
	w.want("b")
}

func TestP31_OtherTypes(t *testing.T) {
	w := newSessionFixture(t, xds.RouteType, xds.SotW)
	w.named("a", "b", "c")
	w.sub("a", "b")
	w.want("a b")
	w.ack("a", "b")
	w.named("b=2", "c=2")
	w.want("b=2")
	w.ack("a", "b")
	w.named("-a")
	w.want("") // a removal sends nothing
}

func TestP32_Delta(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.wild("a", "b", "c")
	w.sub()
	w.want("a b c")
	w.ack()
	w.wild("b=2", "-c")
	w.want("b=2 -c")
}

func TestP33_NothingChanged(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		w.wild("a")
		w.sub()
		w.want("a")
		w.ack()
		u := snapshot.Update{Type: w.Type.URL, Origin: "o", Version: "v2", Wildcard: true, Changed: []*xds.Resource{w.Resource("a")}}
		w.Builder.Apply(u) // equal content under a new version
		w.Cur, _ = w.Builder.Snapshot(w.Cur, 9)
		w.want("")
		w.wild("b")
		w.wild("-b") // gone and back between two sends
		w.want("")
		w.wild("-a")
		if got := w.next(); got != "-a" && got != "(empty)" {
			t.Fatalf("the removal sends %q", got)
		}
		w.ack()
		w.wild("a") // new when it returns
		w.want("a")
	})
}

func TestP34_ResponseDoesNotWaitForNames(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		w.named("a")
		w.sub("a", "b", "c")
		w.want("a")
		w.ack("a", "b", "c")
		w.named("b")
		if got := w.next(); got != "b" && got != "a b" {
			t.Fatalf("sends %q", got)
		}
	})
}

func TestP37_LoadAssignmentFollows(t *testing.T) {
	each(t, xds.EndpointType, func(eds *sessionFixture) {
		cds := newSessionFixture(t, xds.ClusterType, eds.s.form.Variant)
		cds.wild("a", "b")
		cds.sub()
		if got := cds.next(); got != "a b" || len(cds.follow) != 2 {
			t.Fatalf("sends %q, followed by %v", got, cds.follow)
		}
		cds.ack()
		eds.named("a", "b", "c")
		eds.sub("a", "b")
		eds.want("a b")
		eds.ack("a", "b")
		cds.wild("b=2", "c")
		if got := cds.next(); got == "" || len(cds.follow) != 2 {
			t.Fatalf("followed by %v, want those of b and c", cds.follow)
		}
		if !eds.s.Refresh(cds.follow) {
			t.Fatal("nothing follows")
		}
		eds.want("b") // unchanged, and c is not subscribed
		eds.ack("a", "b")
		eds.want("")
	})
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
				w.want("c")
				w.ack("*")
				w.s.Refresh([]string{"b"})
				if w.s.Pending(w.Cur) {
					t.Error("something is pending")
				}
				w.want("")
				w.wild("b")
				if v == xds.SotW {
					w.want("b c")
				} else {
					w.want("b")
				}
			})
			t.Run("by name", func(t *testing.T) {
				w := newSessionFixture(t, xds.EndpointType, v)
				w.named("-b", "c")
				w.sub("b", "c")
				if v == xds.SotW {
					w.want("c")
				} else {
					w.want("c -b")
				}
				w.ack("b", "c")
				w.s.Refresh([]string{"b"})
				w.want("")
				if w.s.Refresh([]string{"z"}) {
					t.Error("what is not subscribed follows")
				}
				// So it is beside other names.
				w.named("c=2")
				w.s.Refresh([]string{"b"})
				w.want("c=2")
				w.ack("b", "c")
				w.named("b")
				w.want("b")
			})
		})
	}
	// If it went meanwhile, its removal is a change, and is sent once.
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("b")
	w.sub("b")
	w.want("b")
	w.ack()
	w.s.Refresh([]string{"b"})
	w.named("-b")
	w.want("-b")
	w.ack()
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
		w.ack("a")
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
