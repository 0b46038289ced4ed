package session

import (
	"testing"

	"xdsrelay/internal/xds"
)

// Only what is there follows a cluster: what is not is not said again, nor said
// to be gone before the origin spoke of it.
func TestP37_NothingIsThereToFollow(t *testing.T) {
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
				// With others, too.
				w.named("c=2")
				w.s.Refresh([]string{"b"})
				w.want("c=2")
				w.ack("b", "c")
				w.named("b")
				w.want("b")
			})
		})
	}
	// Where it went meanwhile, its removal is a change, and said once.
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
