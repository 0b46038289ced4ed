package fanout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"xdsrelay/internal/xds"
)

// troop are sessions on one type of a group, each with its own way through the
// group's states.
func troop(t *testing.T, v xds.Variant, n int) []*world {
	first := newWorld(t, xds.ClusterType, v)
	out := []*world{first}
	for range n - 1 {
		w := newWorld(t, xds.ClusterType, v)
		w.builder, w.subs = first.builder, first.subs
		out = append(out, w)
	}
	for _, w := range out {
		w.hold = delay
	}
	return out
}

// to brings all to the first one's state.
func to(ws []*world) {
	for _, w := range ws {
		w.cur, w.subs = ws[0].cur, ws[0].subs
	}
}

// Streams that see the same removal share what is held back, and the frames;
// also those that came over other states to the same.
func TestP36_HeldBackIsShared(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			ws := troop(t, v, 4)
			a := ws[0]
			a.wild("a", "b", "c", "d")
			to(ws)
			for _, w := range ws {
				w.sub()
				w.want("a b c d")
				w.ack()
			}
			change := func(others ...*world) {
				t.Helper()
				var frame *Frame
				var keep *held
				for i, w := range others {
					p := w.s.Next(a.cur, w.moment())
					f := framesOf(p.to).frame(nil, &p, "id")
					if i > 0 && (f.Empty() != frame.Empty() || !f.Empty() && f != frame || p.keep != keep) {
						t.Fatalf("client %d has another frame (%v, %v) or set (%v, %v)", i, f.names, frame.names, p.keep, keep)
					}
					if frame, keep = f, p.keep; f.Empty() {
						w.s.Settled(&p, w.now)
						continue
					}
					w.seq++
					w.nonces = append(w.nonces, w.seq)
					w.s.Sent(&p, f.manifest, w.seq, w.now)
					w.ack()
				}
			}
			a.wild("-a")
			change(ws...)
			if a.s.hold == nil || a.s.hold.over.get("a").r == nil {
				t.Fatal("nothing is held back")
			}
			// One of them is not there for a while.
			late, rest := ws[3], ws[:3]
			a.wild("c=2")
			change(rest...)
			a.wild("-b")
			change(rest...)
			a.wild("e")
			change(rest...)
			change(late)
			if late.s.keep() != a.s.keep() {
				t.Fatalf("who came another way has another set: %v, %v", late.s.keep(), a.s.keep())
			}
			for _, w := range ws {
				w.pass(delay)
				w.routed = w.now
			}
			change(ws...)
			to(ws)
			for _, w := range ws {
				if w.s.hold != nil {
					t.Fatalf("%+v is left", w.s.hold)
				}
				if w.want(""); w.s.sent != a.cur {
					t.Fatal("not in step")
				}
			}
		})
	}
}

// However many removals there are, a session's account of them is bounded, and
// each waits for its time, and no longer than twice that.
func TestP36_WaitsAreBounded(t *testing.T) {
	w := troop(t, xds.Delta, 1)[0]
	var all []string
	const n = 400
	for i := range n {
		all = append(all, fmt.Sprintf("n%03d", i))
	}
	w.wild(all...)
	w.sub()
	w.next()
	w.ack()
	gone := map[string]time.Time{}
	most := 0
	for i := 0; i < n || len(gone) > 0; i++ {
		if i < n {
			w.wild("-" + all[i])
			gone[all[i]] = w.now
		}
		w.next()
		if len(w.s.flights) > 0 {
			for _, name := range w.s.flights[0].frame.names {
				if waited := w.now.Sub(gone[name]); waited < delay || waited > 2*delay+delay/50 {
					t.Fatalf("%s went after %v", name, waited)
				}
				delete(gone, name)
			}
			w.ack()
		}
		if h := w.s.hold; h != nil {
			most = max(most, len(h.waits))
		}
		w.pass(delay / 50)
		if i%3 == 0 {
			w.routed = w.now
		}
	}
	if most < 3 || most > 2*grain+1 {
		t.Errorf("%d waits at most", most)
	}
	if w.s.hold != nil {
		t.Errorf("left: %+v", w.s.hold)
	}
}

// A table gives all of one key the same, up to a bound.
func TestHeldTable(t *testing.T) {
	w := newWorld(t, xds.ClusterType, xds.Delta)
	w.wild("a", "b")
	from := w.cur
	w.wild("-a", "-b")
	sub := &xds.Subscription{Wildcard: true}
	key := func(let uint32) *heldKey {
		return &heldKey{sub: sub, by: sub, lineage: from.Lineage, gen: from.Gen, let: let}
	}
	var table heldTable
	one := table.find(key(0), base{at: from}, nil, w.cur)
	if len(one.noted.items) != 2 || one.keep != one.noted || table.find(key(0), base{at: from}, nil, w.cur) != one {
		t.Fatalf("%+v", one)
	}
	if other := table.find(key(1), base{at: from}, nil, w.cur); other.noted != one.noted || other.keep != nil {
		t.Fatalf("let go: %+v", other)
	}
	for i := range uint32(1000) {
		table.find(key(i), base{at: from}, nil, w.cur)
	}
	// Sets of many names fill it before there are many of them.
	many := make([]heldItem, maxHeldTable/100)
	for i := range many {
		many[i] = one.noted.items[i%2]
	}
	for i := range uint32(200) {
		many[0].round = i + 2
		h := newHeld(slices.Clone(many), i+2)
		if got := table.share(h); got != h {
			t.Fatalf("set %d is not itself", i)
		}
	}
	n := 0
	table.sets.Range(func(_, v any) bool {
		n += heldKeyCost
		if h, ok := v.(*held); ok {
			n += len(h.items)
		}
		return true
	})
	if n > maxHeldTable+2000*heldKeyCost {
		t.Errorf("%d items", n)
	}
	if again := table.find(key(2000), base{at: from}, nil, w.cur); !again.noted.equal(one.noted) {
		t.Errorf("beyond the bound: %+v", again)
	}
}

// What a session had to send is answered up to a time.
func TestP36_Through(t *testing.T) {
	each(t, xds.RouteType, func(w *world) {
		start := w.now
		through := func(want time.Duration) {
			t.Helper()
			if got := w.s.Through(w.cur, w.now).Sub(start); got != want {
				t.Fatalf("answered until %v, want %v", got, want)
			}
		}
		w.named("r")
		w.sub("r", "pending")
		w.want("r")
		w.pass(time.Second)
		through(time.Time{}.Sub(start)) // never, so far
		w.pass(time.Second)
		w.ack("r", "pending")
		through(2 * time.Second) // in step, whatever is pending at the origin
		w.pass(time.Second)
		w.named("r=2")
		through(2 * time.Second) // to be sent
		w.want("r=2")
		w.pass(time.Second)
		through(2 * time.Second) // sent
		w.pass(time.Second)
		w.named("r=33")
		w.pass(time.Second)
		through(2 * time.Second)
		w.nack("r", "pending") // all that there was 4 s after the start
		through(4 * time.Second)
		if got := w.next(); got != "r=33" {
			t.Fatalf("sends %q", got)
		}
		w.ack("r", "pending")
		through(6 * time.Second)
	})
	// A wildcard that the origin has not answered is nothing to wait for.
	each(t, xds.ListenerType, func(w *world) {
		w.named("l")
		w.sub()
		w.want("")
		if got := w.s.Through(w.cur, w.now); got != w.now {
			t.Fatalf("answered until %v", got)
		}
	})
}

// Sessions that need the same bytes share them, but not what follows: to one
// only b is new, to the other everything.
func TestP37_FollowsAreNotMixed(t *testing.T) {
	ws := troop(t, xds.SotW, 2)
	a, b := ws[0], ws[1]
	a.wild("a", "b")
	a.sub()
	a.want("a b")
	a.ack()
	a.wild("b=2")
	a.want("a b=2")
	to(ws)
	b.sub()
	b.want("a b=2")
	if !slices.Equal(a.follow, []string{"b"}) || !slices.Equal(b.follow, []string{"a", "b"}) {
		t.Fatalf("followed by %v and %v", a.follow, b.follow)
	}
}

// What follows a cluster before a type's first answer is a part of that, which
// others get as well.
func TestP37_FirstAnswerHasWhatFollows(t *testing.T) {
	each(t, xds.EndpointType, func(w *world) {
		w.named("a", "b")
		if w.s.Refresh([]string{"a"}) {
			t.Fatal("follows, and nobody asked")
		}
		w.sub("a", "b")
		if w.s.Refresh([]string{"a"}) {
			t.Fatal("follows beside the first answer")
		}
		if p := w.s.Next(w.cur, w.moment()); p.do != regular {
			t.Fatal("the first answer is this client's alone")
		}
		w.want("a b")
	})
}

// The first answer to a wildcard is due also after names beside it came to
// nothing that the client had not brought.
func TestP11_WildcardBesideWhatWasBrought(t *testing.T) {
	w := newWorld(t, xds.ClusterType, xds.Delta)
	w.named("a")
	w.send(request{names: []string{"*", "a"}, initial: map[string]string{"a": w.resource("a").Version.String()}})
	w.want("")
	w.wild("a")
	w.want("(empty)")
	w.ack()
	w.want("")
}

// A name that was given up beside the wildcard before that is answered stays to
// be answered, whatever goes out meanwhile.
func TestP24_StaysToBeAnswered(t *testing.T) {
	w := newWorld(t, xds.ClusterType, xds.Delta)
	w.named("a", "c")
	w.sub("*", "a")
	w.want("a")
	w.ack()
	w.unsub("a")
	w.sub("c")
	w.want("c")
	w.ack()
	w.wild("b")
	w.want("b -a")
}

// What was sent ahead is undone where the client is moved back to the State
// that it was sent before, and the ACK that this waits for sends it.
func TestP19_WhatWasSentAheadIsUndone(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
	w.named("a", "-b")
	stable := w.cur
	w.sub("a")
	w.want("a")
	w.named("b")
	w.sub("b")
	w.want("b") // ahead
	w.cur = stable
	w.want("")
	w.send(request{ack: 1})
	w.want("") // what was sent ahead is not answered yet
	if out := w.send(request{ack: -1}); !out.Wake {
		t.Fatal("the ACK wakes nobody")
	}
	w.want("-b")
	w.ack()
	w.want("")
}

// What was sent ahead and is gone is held back as well.
func TestP36_SentAheadAndGone(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
	w.hold = delay
	w.named("a")
	w.sub("a")
	w.want("a")
	w.named("b")
	w.sub("b")
	w.want("b") // ahead
	w.named("-b")
	w.want("")
	w.named("b=2")
	w.named("-b")
	w.ack()
	w.want("")
	w.pass(delay - 1)
	w.want("")
	w.pass(1)
	w.routed = w.now
	w.want("-b")
	w.ack()
	w.want("")
}

// A wildcard that is given up before it is answered again leaves things as they
// were, but for what was asked for meanwhile.
func TestP21_WildcardGivenUpBeforeItIsAnswered(t *testing.T) {
	each(t, xds.ClusterType, func(w *world) {
		w.named("a", "b", "c")
		w.sub("a")
		w.want("a")
		w.ack("a")
		if w.s.variant == xds.SotW {
			w.sub("a", "b", "*")
			w.sub("a", "b")
			w.want("a b")
			w.ack("a", "b")
			w.sub("a", "b", "c")
			w.want("a b c")
		} else {
			w.sub("b", "*")
			w.send(request{names: []string{"c"}, unsub: []string{"*"}})
			w.want("b c")
		}
		w.ack("a", "b", "c")
		w.want("")
		w.named("a=2")
		if got := w.next(); got != "a=2" && got != "a=2 b c" {
			t.Fatalf("sends %q", got)
		}
	})
	each(t, xds.ClusterType, func(w *world) { // nothing was sent before
		w.sub("a")
		if w.s.variant == xds.SotW {
			w.sub("a", "*")
			w.sub("a")
		} else {
			w.sub("*")
			w.unsub("*")
		}
		w.named("a")
		w.want("a")
	})
}

// A part of what there was to send is not all of it (P38).
func TestP36_ThroughInParts(t *testing.T) {
	w := parted(t, xds.RouteType, xds.Delta, 1)
	start := w.now
	w.named("a", "b")
	w.sub("a", "b")
	w.want("a")
	w.pass(time.Second)
	w.ack()
	w.want("b")
	if w.s.Through(w.cur, w.now); !w.s.through.IsZero() {
		t.Fatalf("answered until %v with the first of two parts", w.s.through.Sub(start))
	}
	w.pass(time.Second)
	w.ack()
	if got := w.s.Through(w.cur, w.now).Sub(start); got != 2*time.Second {
		t.Fatalf("answered until %v with all parts", got)
	}
}

// Whatever routes and listeners wait for, it is at most as long again.
func TestP36_AtMostAsLongAgain(t *testing.T) {
	each(t, xds.ClusterType, func(w *world) {
		w.hold = delay
		w.wild("a", "b")
		w.sub()
		w.want("a b")
		w.ack()
		w.wild("-a")
		for _, d := range []time.Duration{0, delay, delay - 1} {
			w.pass(d)
			w.want("")
		}
		w.pass(1)
		if got := w.next(); got != "-a" && got != "b" {
			t.Fatalf("sends %q", got)
		}
	})
}

// What is given up by an alias beside the wildcard is answered, with what the
// alias led to: neither is held back (P24).
func TestP26_GivenUpByAliasIsNotHeld(t *testing.T) {
	w := newWorld(t, xds.ClusterType, xds.Delta)
	w.hold = delay
	w.named("n|a", "m|a")
	w.wild("w")
	w.sub("*", "a")
	w.want("m n w")
	w.ack()
	w.named("-n") // nobody has looked yet
	w.unsub("a")
	w.want("-a -m -n")
}
