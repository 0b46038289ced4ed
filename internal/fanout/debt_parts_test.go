package fanout

import (
	"testing"

	"xdsrelay/internal/xds"
)

// What is refused and goes out again in parts keeps nobody from the versions before.
func TestP38_WhatWasRefusedAndGoesInPartsIsOfWhatCameSince(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			w := newWorld(t, xds.EndpointType, v)
			w.s.limit = w.room(1)
			w.named("a")
			w.sub("a", "b")
			w.want("a")
			w.ack("a", "b")
			was := w.cur.Gen
			w.named("b")
			w.want("b")
			w.nack("a", "b")
			w.named("a=2", "b=2")
			w.want("a=2")
			has, owes, _, _ := stand(w)
			if has < was || owes.Of(Span{was, was}) {
				t.Errorf("has %d but for %v: it has %d", has, owes, was)
			}
			w.ack("a", "b")
			w.want("b=2")
			w.ack("a", "b")
			w.hasAll()
		})
	}
}

// Who is sent parts while removals wait does not have less with them than before.
func TestP38_WhatIsHadIsKeptWhileRemovalsWait(t *testing.T) {
	w := newWorld(t, xds.ClusterType, xds.Delta)
	w.hold, w.s.limit = delay, w.room(1)
	w.wild("a", "c", "e")
	w.sub("*")
	least := uint64(0)
	keeps := func(response string) {
		t.Helper()
		w.want(response)
		if got := w.owns(); got < least {
			t.Errorf("had %d, and has %d", least, got)
		} else {
			least = got
		}
	}
	keeps("a")
	w.ack()
	keeps("c")
	w.wild("b")
	w.ack()
	keeps("e")
	w.wild("a=2")
	w.ack()
	keeps("a=2")
	w.wild("a=33")
	w.wild("-c")
	w.ack()
	keeps("b")
	w.ack()
	if keeps("a=33"); least == 0 {
		t.Error("it had nothing")
	}
	w.ack()
	w.pass(2 * delay)
	keeps("-c")
	w.ack()
	w.hasAll()
}
