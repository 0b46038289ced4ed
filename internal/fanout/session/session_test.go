package session

import (
	"testing"

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

// A later answer to names that are asked for again is no change of what was rejected (P15).
func TestP15_LateNACKOfAResubscribedName(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("a", "b")
	w.sub("a", "b")
	w.want("a b")
	w.sub("a")
	w.want("a")
	w.send(request{nack: 1})
	w.want("")
	w.ack()
	w.want("")
	w.named("a=2") // now it is
	w.want("a=2 b")
}

// A client moves forward and back between two lines of snapshots. It is sent the difference in
// either direction.
func TestTwoTracks(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		w.wild("a", "b")
		stable := w.Cur
		w.sub()
		w.accepts("a b")
		w.wild("a=2", "c", "-b")
		candidate := w.Cur
		if got := w.next(); got != "a=2 c -b" && got != "a=2 c" {
			t.Fatalf("forward sends %q", got)
		}
		w.ack()
		w.Cur = stable
		if got := w.next(); got != "a b -c" && got != "a b" {
			t.Fatalf("back sends %q", got)
		}
		w.ack()
		w.want("")
		w.Cur = candidate
		if got := w.next(); got != "a=2 c -b" && got != "a=2 c" {
			t.Fatalf("forward again sends %q", got)
		}
	})
}
