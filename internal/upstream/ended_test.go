package upstream

import (
	"slices"
	"testing"
	"time"

	"xdsrelay/internal/xds"
)

// The relay itself opens the stream of an origin that took over anew, to tell it
// of what the other gave meanwhile: what it had brought, and is not to be cached,
// goes with the stream, and is asked for as what is not held.
func TestP63_TheStreamIsOpenedAnewAfterAReturn(t *testing.T) {
	first, second := startFake(t), startFake(t)
	r := startRelay(t, Options{Variant: xds.Delta}, first.address, second.address)
	_, sink, b := r.failOver(first, second, all(cds), named(rds, "r"))
	b.served(t, sink, res{name: "a", version: "B"})
	a := first.serve(2)
	a.send(resp{typ: cds, version: "A", res: []res{{name: "a", version: "A", uncached: true}}})
	a.request()
	b.send(resp{typ: cds, version: "B2", res: []res{{name: "late", version: "B"}}})
	sink.untilNames(t, cds, "a", "late")
	a.send(resp{typ: rds, version: "A", res: clusters("r")})
	a = first.next()
	a.got("CDS +[*] a= late=")
	if got := a.request(); got != "RDS +[r] r=vr" && got != "RDS +[r] r=" { // the stream may end before it has taken note of it
		t.Errorf("request %q", got)
	}
	sink.mu.Lock()
	if got := sink.names(cds); !slices.Equal(got, []string{"late"}) {
		t.Errorf("held are %v", got)
	}
	sink.mu.Unlock()
}

// What the other gave meanwhile is told of also if it has expired since: clients
// may still hold it, and nobody else would say that it is gone.
func TestP56_WhatLapsedWhileAnOriginWasTriedOut(t *testing.T) {
	began := time.Now()
	of := func(names ...string) *xds.Snapshot {
		b := xds.NewBuilder(xds.TypeOf(cds))
		u := xds.Update{Type: cds, Origin: "other", Wildcard: true}
		for _, n := range names {
			u.Changed = append(u.Changed, resourceOf(t, cds, res{name: n}).Renew(time.Second, began))
		}
		b.Apply(u)
		b.Expire(began.Add(time.Minute))
		held, _ := b.Snapshot(nil, 1)
		return held
	}
	for _, c := range []struct {
		when   string
		asked  *xds.Snapshot // what was held when it was asked
		astray bool
	}{{"it came since", nil, true}, {"it was told of", of("x"), false}} {
		s := newStage(xds.Delta, make(chan struct{}, 1))
		s.follow(&xds.Interest{Types: []xds.TypeInterest{all(cds)}}, nil)
		s.held(cds, c.asked)
		u := xds.Update{Type: cds, Wildcard: true, Changed: []*xds.Resource{resourceOf(t, cds, res{name: "a"})}}
		if kept, err := s.put(t.Context(), &u, answer{}); !kept || err != nil {
			t.Fatal(kept, err)
		}
		astray, err := s.handOver(func(xds.TypeURL) *xds.Snapshot { return of("x") }, func(xds.Update) error { return nil })
		if astray != c.astray || err != nil {
			t.Errorf("%s: %v, %v", c.when, astray, err)
		}
	}
}
