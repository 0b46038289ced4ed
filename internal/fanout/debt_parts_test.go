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
