package upstream

import (
	"testing"
	"time"

	"xdsrelay/internal/xds"
)

// recall has the sink hold what was written down once, as a group does while no origin
// can be reached.
func (s *testSink) recall(t *testing.T, typ xds.TypeURL, wildcard bool, names ...string) {
	t.Helper()
	other := newRig(t, xds.SotW)
	other.want(xds.TypeInterest{Type: typ, Wildcard: wildcard, Names: xds.NewNameSet(names...)})
	other.next()
	other.respond(resp{typ: typ, res: clusters(names...)})
	u := other.last()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.builder(typ).Recall(u)
	s.publish(typ)
}

func (s *testSink) stale(typ xds.TypeURL) bool { return s.Held(typ).Stale }

// What was recalled and an origin says nothing of stays held, and is stale no more once
// a name may not stay unanswered for longer: be it asked for by name, or by the
// wildcard of a type of which an answer may leave something out.
func TestP57_WhatWasRecalledIsNotStaleForEver(t *testing.T) {
	for what, in := range map[string]xds.TypeInterest{"names": named(rds, "x", "y", "never"), "wildcard": all(rds)} {
		t.Run(what, func(t *testing.T) {
			bothVariants(t, func(t *testing.T, r *rig) {
				r.sink.recall(t, rds, in.Wildcard, "x", "y")
				r.connect()
				r.want(in, all(cds))
				for req := r.next(); req != nil; req = r.next() {
					r.talk.written(r.now)
				}
				r.respond(resp{typ: rds, res: clusters("y")})
				r.pass(15*time.Second - 1)
				if !r.sink.stale(rds) {
					t.Error("x is taken for said")
				}
				r.pass(1)
				if r.sink.stale(rds) {
					t.Error("x is stale still")
				}
				r.holds(rds, "x", "y")
				if !in.Wildcard {
					r.is(rds, xds.Absent, "never")
				}
				if at := r.talk.deadline(); !at.IsZero() {
					t.Errorf("something is waited for until %v", at)
				}
			})
		})
	}
}

// An origin that says nothing at all on a stream may hang: then what was recalled stays
// stale until it speaks, whatever of.
func TestP57_AnOriginThatHangsHasNotSaidAllItWill(t *testing.T) {
	bothVariants(t, func(t *testing.T, r *rig) {
		r.sink.recall(t, rds, false, "x")
		r.sink.recall(t, cds, true, "c")
		r.connect()
		r.want(named(rds, "x", "never"), all(cds))
		for req := r.next(); req != nil; req = r.next() {
			r.talk.written(r.now)
		}
		for range 10 {
			r.pass(15 * time.Second)
			if !r.sink.stale(rds) || !r.sink.stale(cds) {
				t.Fatal("silence is taken for a word")
			}
		}
		r.is(rds, xds.Absent, "never")
		r.respond(resp{typ: cds, res: clusters("d"), removed: gone(r.v, "c")})
		r.pass(15 * time.Second)
		if r.sink.stale(rds) || r.sink.stale(cds) {
			t.Error("x, or c, is stale still")
		}
		r.holds(rds, "x")
		r.holds(cds, "d")
		if at := r.talk.deadline(); !at.IsZero() {
			t.Errorf("something is waited for until %v", at)
		}
	})
}

// What a full-state type's answer in state of the world leaves out is gone (P65): there
// is nothing to wait for.
func TestP65_WhatWasRecalledAndIsLeftOutIsGone(t *testing.T) {
	for _, in := range []xds.TypeInterest{all(cds), named(cds, "c", "d")} {
		r := newRig(t, xds.SotW)
		r.sink.recall(t, cds, in.Wildcard, "c", "d")
		r.connect()
		r.want(in)
		r.next()
		r.talk.written(r.now)
		r.respond(resp{typ: cds, res: clusters("c")})
		r.holds(cds, "c")
		if r.sink.stale(cds) {
			t.Error("c is stale, and was given")
		}
	}
}

func bothVariants(t *testing.T, f func(t *testing.T, r *rig)) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		t.Run(map[xds.Variant]string{xds.SotW: "sotw", xds.Delta: "delta"}[v], func(t *testing.T) { f(t, newRig(t, v)) })
	}
}

// What was recalled is waited for as well where another origin is tried out, which
// answers all types and says nothing of it: before that takes over, and after.
func TestP56_WhatWasRecalledIsWaitedForWhereAnOriginIsTriedOut(t *testing.T) {
	for what, wait := range map[string]bool{"before it takes over": true, "after it has": false} {
		t.Run(what, func(t *testing.T) {
			eachVariant(t, func(t *testing.T, v xds.Variant) {
				first, second := startFake(t), startFake(t)
				r := startRelay(t, Options{Variant: v, AbsentAfter: 200 * time.Millisecond}, first.address, second.address)
				_, sink := r.stream(named(rds, "x", "y"), all(cds))
				sink.recall(t, rds, false, "x")
				sink.recall(t, cds, true, "c")
				first.refuse(2)
				second.serve(2) // and is silent
				a := first.serve(2)
				a.send(resp{typ: rds, res: clusters("y")})
				a.request()
				if wait {
					<-time.After(300 * time.Millisecond)
				}
				if !sink.stale(rds) {
					t.Error("what is tried out counts")
				}
				a.send(resp{typ: cds, res: clusters("c")})
				sink.from(t, rds, first.address)
				sink.until(t, "x is not stale", func() bool { return !sink.held[rds].Stale })
				sink.untilNames(t, rds, "x", "y")
			})
		})
	}
}

// A name whose time ran out while an origin was tried out may have been recalled
// meanwhile: it stays, as what is held does, and is not waited for any more.
func TestP56_ANameThatWasRecalledWhileAnOriginIsTriedOut(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		first, second := startFake(t), startFake(t)
		r := startRelay(t, Options{Variant: v, AbsentAfter: 100 * time.Millisecond}, first.address, second.address)
		_, sink := r.stream(named(rds, "x", "y"), all(cds))
		first.refuse(2)
		second.serve(2) // and is silent
		sink.recall(t, cds, true, "c")
		a := first.serve(2)
		a.send(resp{typ: rds, res: clusters("y")})
		a.request()
		<-time.After(200 * time.Millisecond)
		sink.recall(t, rds, false, "x")
		a.send(resp{typ: cds, res: clusters("c")})
		sink.from(t, rds, first.address)
		sink.until(t, "x is not stale", func() bool { return !sink.held[rds].Stale })
		sink.untilNames(t, rds, "x", "y")
	})
}
