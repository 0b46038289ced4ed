package session

import (
	"testing"
	"time"

	"xdsrelay/internal/xds"
)

// What is sent again because a cluster changed (P37) came from the origin long
// ago: its ACK says nothing of how fast a change reaches clients.
func TestP37_WhatFollowsPropagatesNothing(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.named("a", "b")
		w.sub("a")
		w.want("a")
		acked := func() time.Time {
			t.Helper()
			return w.send(request{names: w.list([]string{"a"}), ack: -1}).Received
		}
		if got := acked(); !got.Equal(w.Now) {
			t.Fatalf("the first came at %v, want %v", got, w.Now)
		}
		w.Pass(time.Hour)
		if !w.s.Refresh([]string{"a"}) {
			t.Fatal("it does not follow")
		}
		w.want("a")
		if got := acked(); !got.IsZero() {
			t.Fatalf("what is repeated came at %v", got)
		}
		w.named("a=2", "b")
		w.Pass(time.Second)
		w.want("a=2")
		if got := acked(); !got.Equal(w.Now.Add(-time.Second)) {
			t.Fatalf("the change came at %v", got)
		}
	})
}
