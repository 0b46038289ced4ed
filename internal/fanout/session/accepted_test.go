package session

import (
	"testing"

	"xdsrelay/internal/xds"
)

// A generation may be stored once a client acknowledged it and refuses nothing of it.
func TestP66_AcceptedIsWhatAClientAcknowledged(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		accepted := func(want *xds.Snapshot) {
			t.Helper()
			if got := w.s.Accepted(); got != want {
				t.Fatalf("accepted %v, want %v", got, want)
			}
		}
		w.wild("a", "b")
		w.sub("*")
		accepted(nil)
		w.want("a b")
		accepted(nil)
		w.ack("*")
		accepted(w.Cur)
		first := w.Cur
		w.wild("a=2")
		if w.s.form.Variant == xds.SotW {
			w.want("a=2 b")
		} else {
			w.want("a=2")
		}
		accepted(nil)
		w.nack("*")
		accepted(nil)
		w.wild("a=33")
		if w.s.form.Variant == xds.SotW {
			w.want("a=33 b")
		} else {
			w.want("a=33")
		}
		w.ack("*")
		accepted(w.Cur)
		if w.Cur == first {
			t.Fatal("there is no newer generation")
		}
	})
}

// A client that brings all that there is has nothing to acknowledge: it has the generation
// (P27).
func TestP27_P66_WhatAClientBringsIsAccepted(t *testing.T) {
	w := newSessionFixture(t, xds.RouteType, xds.Delta)
	w.named("a", "b")
	w.send(request{names: []string{"a"}, initial: map[string]string{"a": "other"}})
	w.want("a")
	if w.s.Accepted() != nil {
		t.Error("it was sent something, and has not acknowledged it")
	}
	w = newSessionFixture(t, xds.RouteType, xds.Delta)
	w.named("a", "b")
	w.send(request{names: []string{"a"}, initial: map[string]string{"a": w.Resource("a").Version.String()}})
	w.want("")
	if w.s.Accepted() != w.Cur {
		t.Error("it has all that there is")
	}
}

// A client that brought state gets nothing of a type that comes from the store, whatever
// else the type has, and what the origin says of it.
func TestP66_StoredIsNotForClientsWithState(t *testing.T) {
	for _, v := range variants {
		stored := func(state bool) *sessionFixture {
			w := newSessionFixture(t, xds.EndpointType, v)
			w.Builder.Recall(xds.Update{Type: w.Type.URL, Origin: "o", Version: "1", Changed: []*xds.Resource{w.Resource("a"), w.Resource("b")}})
			w.Cur, _ = w.Builder.Snapshot(w.Cur, 1)
			r := request{names: []string{"a", "b", "c"}}
			switch {
			case state && v == xds.SotW:
				r.version = "7"
			case state:
				r.initial = map[string]string{"a": "other", "gone": "1"}
			}
			w.send(r)
			return w
		}
		w := stored(false)
		w.want("a b")
		w = stored(true)
		w.want("")
		w.named("a=2") // b stays as it was stored
		w.want("a=2")
		w.ack(w.list([]string{"a", "b", "c"})...)
		w.want("")
	}
	// A full-state response would delete what it does not hold.
	full := newSessionFixture(t, xds.ClusterType, xds.SotW)
	full.Builder.Recall(xds.Update{Type: full.Type.URL, Origin: "o", Version: "1", Wildcard: true, Changed: []*xds.Resource{full.Resource("a")}})
	full.Cur, _ = full.Builder.Snapshot(full.Cur, 1)
	full.send(request{names: []string{"*"}, version: "7"})
	full.want("")
	full.part("b")
	full.want("")
	full.wild("-a")
	full.want("b")
}
