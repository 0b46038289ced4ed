package fanout

import (
	"fmt"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"xdsrelay/internal/xds"
)

// Of too many unanswered responses the newest is never forgotten, be it the only one that
// was sent ahead.
func TestP19_ThirtyTwoUnansweredAndAnAnswerAhead(t *testing.T) {
	w := newWorld(t, xds.ClusterType, xds.Delta)
	w.named("a", "b")
	w.sub("a")
	if w.next() == "" {
		t.Fatal("nothing")
	}
	for i := range maxFlights - 1 {
		w.pass(ackTimeout)
		w.named(fmt.Sprintf("a=%s", []string{"2", "33"}[i%2]))
		if w.next() == "" {
			t.Fatalf("nothing %d", i)
		}
	}
	w.sub("b")
	w.named("b=2")
	w.want("b=2")
	last := w.s.last()
	if last.seq != w.seq {
		t.Errorf("the last flight is %d, not %d", last.seq, w.seq)
	}
}

// Who is sent nothing before the wildcard is answered (P11) does not have what comes
// meanwhile of what it asks for by name.
func TestP11_WhoWaitsForTheWildcardHasNothingOfIt(t *testing.T) {
	for _, v := range variants {
		for _, url := range []xds.TypeURL{xds.ClusterType, xds.EndpointType} {
			t.Run(v.String()+xds.TypeOf(url).Short, func(t *testing.T) {
				w := newWorld(t, url, v)
				w.named("a")
				w.sub("a")
				w.want("a")
				w.ack("a")
				was := w.cur.Gen
				w.sub("a", "*")
				w.named("a=2")
				got := w.next()
				has, arrears, _, _ := stand(w)
				if got == "" && has > was {
					t.Errorf("has %d of %d but for %v: it was sent %d", has, w.cur.Gen, arrears, was)
				}
			})
		}
	}
}

// The same with a first request.
func TestP11_WhoWaitsForTheWildcardFirst(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			w := newWorld(t, xds.ClusterType, v)
			w.named("a")
			w.sub("a", "*")
			got := w.next()
			has, arrears, _, _ := stand(w)
			if got == "" && has > 0 {
				t.Errorf("has %d of %d but for %v: it was sent nothing", has, w.cur.Gen, arrears)
			}
		})
	}
}

// Who refuses a response that has nothing refuses it.
func TestP15_AnEmptyResponseThatIsRefused(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			w := newWorld(t, xds.ClusterType, v)
			w.wild()
			w.sub()
			got := w.next()
			if got != "" {
				w.nack()
			}
			has, arrears, ref, _ := stand(w)
			if got != "" && (!ref || has >= w.cur.Gen) {
				t.Errorf("has %d of %d but for %v, refusing %v", has, w.cur.Gen, arrears, ref)
			}
		})
	}
}

// Who refuses a response before it answered those before it took none of these.
func TestP19_DeltaRefusesTheNewestBeforeTheOthers(t *testing.T) {
	w := newWorld(t, xds.ClusterType, xds.Delta)
	w.named("a", "b")
	w.sub("a", "b")
	w.next()
	w.ack()
	was := w.cur.Gen
	w.named("a=2")
	w.want("a=2")
	w.pass(ackTimeout)
	w.named("b=2")
	w.want("b=2")
	w.nack()
	has, arrears, _, _ := stand(w)
	if has != was {
		t.Errorf("has %d of %d, was %d, but for %v", has, w.cur.Gen, was, arrears)
	}
}

// Who refuses a, and a=2 after it, and takes b, which was sent ahead, has nothing of the
// first.
func TestP19_WhatIsRefusedTwiceIsNotHadWithAnother(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
	w.sub("a")
	w.named("a")
	w.want("a")
	w.named("a=2", "b")
	w.pass(ackTimeout)
	w.want("a=2")
	w.sub("b")
	w.want("b")
	w.send(request{nack: 1})
	w.send(request{nack: 2})
	w.send(request{ack: 3})
	has, debt, refusing, _ := stand(w)
	if has > 0 {
		t.Errorf("has %d of %d but for %v, refusing %v: it refused a and a=2", has, w.cur.Gen, debt, refusing)
	}
}

// Who refused a full set, and asks for nothing, refuses nothing.
func TestP24_WhoAsksForNothingRefusesNothing(t *testing.T) {
	w := newWorld(t, xds.ClusterType, xds.SotW)
	w.named("a")
	w.sub("a")
	w.want("a")
	w.nack("a")
	w.sub()
	w.next()
	w.named("a=2")
	w.next()
	if has, owes, refusing, _ := stand(w); refusing || !owes.None() {
		t.Errorf("has %d of %d but for %v, refusing %v", has, w.cur.Gen, owes, refusing)
	}
}

// The same without any clock.
func TestP19_TheWildcardAgainAndAgainAndAName(t *testing.T) {
	w := newWorld(t, xds.ClusterType, xds.Delta)
	w.wild("a", "b")
	w.named("b")
	w.sub("*")
	w.next()
	for range maxFlights - 1 {
		w.sub("*")
		if w.next() == "" {
			t.Fatal("nothing")
		}
	}
	w.sub("b")
	w.want("b")
}

// The same over gRPC.
func TestP19_RigTheWildcardAgainAndAgainAndAName(t *testing.T) {
	r := newRig(t, nil)
	named := update(t, xds.ClusterType, "b")
	named.Wildcard = false
	r.house.group("edge").publish(update(t, xds.ClusterType, "a", "b"), named)
	c := r.delta(nil)
	for i := range maxFlights {
		req := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(xds.ClusterType), ResourceNamesSubscribe: []string{"*"}}
		if i == 0 {
			req.Node = node("n")
		}
		c.must(req)
		if _, err := c.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(xds.ClusterType), ResourceNamesSubscribe: []string{"b"}})
	c.want("b ")
}
