package fanout

import (
	"fmt"
	"testing"

	"xdsrelay/internal/xds"
)

// stand is what a session says that its client has, and is to take yet.
func stand(w *world) (has uint64, arrears Debt, refusing bool, refused uint64) {
	look := newSurvey()
	has, arrears, declined := look.owned(w.s, w.cur, look.unsent(w.s, w.cur))
	return has, arrears.with(declined), w.s.refusing(), declined.From
}

// Who refused something and gave it up has everything that it asks for.
func TestP24_WhatIsRefusedAndGivenUpKeepsNothingBack(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			w := newWorld(t, xds.EndpointType, v)
			w.named("a", "b", "c")
			w.sub("a", "b")
			w.next()
			w.ack("a", "b")
			w.named("b=2")
			w.want("b=2")
			r := request{nack: -1, unsub: []string{"b"}}
			if v == xds.SotW {
				r = request{nack: -1, names: []string{"a"}}
			}
			w.send(r)
			w.next()
			for i := range 3 {
				w.named(fmt.Sprintf("c=%s", []string{"2", "33", "2"}[i]))
				w.next()
			}
			has, arrears, refusing, refused := stand(w)
			if has != w.cur.Gen || refusing {
				t.Errorf("has %d of %d but for %v, refusing %v since %d: it holds all that it asks for", has, w.cur.Gen, arrears, refusing, refused)
			}
		})
	}
}

// What was refused and is removed is nothing more to be had.
func TestP15_WhatIsRefusedAndRemovedIsToldAndHad(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			w := newWorld(t, xds.EndpointType, v)
			w.named("a", "b")
			w.sub("a", "b")
			w.next()
			w.ack("a", "b")
			w.named("b=2")
			w.want("b=2")
			w.nack("a", "b")
			w.named("-b")
			if w.next() != "" {
				w.ack("a", "b")
			}
			w.named("a=2")
			w.next()
			w.ack("a", "b")
			w.named("a=33")
			w.next()
			w.ack("a", "b")
			has, arrears, refusing, refused := stand(w)
			if has != w.cur.Gen || refusing {
				t.Errorf("has %d of %d but for %v, refusing %v since %d", has, w.cur.Gen, arrears, refusing, refused)
			}
		})
	}
}

// And where nothing is sent of the removal (P31), and nothing else changes for it.
func TestP31_WhatIsRefusedAndRemovedKeepsNothingBack(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.SotW)
	w.named("a", "b", "c")
	w.sub("a", "b")
	w.next()
	w.ack("a", "b")
	w.named("b=2")
	w.want("b=2")
	w.nack("a", "b")
	w.named("-b")
	for i := range 4 {
		if got := w.next(); got != "" {
			t.Fatalf("sends %q", got)
		}
		w.named(fmt.Sprintf("c=%s", []string{"2", "33"}[i%2]))
	}
	has, arrears, refusing, refused := stand(w)
	if has != w.cur.Gen || refusing {
		t.Errorf("has %d of %d but for %v, refusing %v since %d: what it refused is not there any more, and nothing is ever sent of that", has, w.cur.Gen, arrears, refusing, refused)
	}
}

// A client that goes on asking for names (on demand) has what it took.
func TestP23_WhoGoesOnAskingHasWhatItTook(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
	w.named("a", "z")
	var all []string
	for i := range 60 {
		all = append(all, fmt.Sprintf("n%02d", i))
	}
	all = all[:20]
	for _, n := range all {
		w.named(n)
	}
	first := w.cur.Gen - 19
	w.sub("a")
	w.want("a")
	w.ack()
	v := w.cur.Gen
	w.sub(all[0])
	w.want(all[0])
	for i := 1; i < len(all); i++ {
		w.sub(all[i])
		if got := w.next(); got != all[i] {
			t.Fatalf("sent %q", got)
		}
		w.send(request{ack: len(w.nonces) - 1}) // the one before is taken
		if i == 5 {
			w.named("z=2") // concerns nobody
			v = w.cur.Gen
		}
	}
	has, arrears, _, _ := stand(w)
	if has < v {
		t.Errorf("has %d, not %d, which does not concern it (%d is the newest)", has, v, w.cur.Gen)
	}
	if arrears.Of(Span{first, first}) {
		t.Errorf("but for %v: n00 of %d it took %d answers ago", arrears, first, len(all)-1)
	}
}

// A name that is asked for later, and that changed in two versions.
func TestP23_AllThatChangedItIsNotHad(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
	w.named("a", "b")
	w.named("b=2")
	v2 := w.cur.Gen
	w.named("b=33")
	w.sub("a")
	w.next()
	w.ack()
	w.sub("b")
	w.next() // not taken
	has, arrears, _, _ := stand(w)
	if has >= v2 && !arrears.Of(Span{v2, v2}) {
		t.Errorf("version %d is had (has %d, but for %v), which made b another: the client has no b at all", v2, has, arrears)
	}
}

// What follows (P37) counts as asked for.
func TestP37_WhatFollowsIsNothingToTake(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
	var all []string
	for i := range 80 {
		all = append(all, fmt.Sprintf("n%02d", i))
	}
	w.named(append(all, "x")...)
	w.named("n00=2")
	v := w.cur.Gen
	w.sub(all...)
	w.next()
	w.ack()
	w.named("n01=2")
	w.next() // in flight
	w.s.Refresh(all)
	w.send(request{names: []string{"x"}})
	has, arrears, _, _ := stand(w)
	if arrears.Of(Span{v, v}) {
		t.Errorf("has %d but for %v: x is of 1 alone", has, arrears)
	}
}

// What was refused before a move to another lineage is numbered as it was there.
func TestP15_WhatIsRefusedIsCountedAnew(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
	w.named("x") // generations of the older lineage are higher
	w.named("x=2")
	w.named("x=33")
	w.named("d")
	w.sub("a", "c", "d")
	w.want("d")
	w.ack()
	w.named("a", "c")
	w.want("a c")
	w.nack()
	w.builder, w.cur = xds.NewBuilder(w.typ), nil
	w.named("a", "c")
	w.named("d=2")
	w.want("d=2")
	w.named("a=2")
	w.pass(ackTimeout)
	w.want("a=2 c")
	w.send(request{ack: 3}) // d
	if has, owes, _, _ := stand(w); has >= 1 && !owes.Of(Span{1, 1}) {
		t.Errorf("has %d of what is counted anew, of which a and c are on their way", has)
	}
}

// A removal that is refused, of which nothing is said again, is not had with what follows.
func TestP15_WhatIsRefusedIsNotHadWithWhatFollows(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
	w.wild("z")
	w.wild("-z")
	w.wild("f")
	w.sub("*")
	w.want("f")
	w.builder, w.cur = xds.NewBuilder(w.typ), nil
	w.wild("a")
	w.pass(ackTimeout)
	w.want("a -f")
	w.wild("a=2")
	w.pass(ackTimeout)
	w.want("a=2")
	w.send(request{ack: 1})
	w.send(request{nack: 2})
	w.send(request{ack: 3})
	if has, owes, _, _ := stand(w); has >= 1 && !owes.Of(Span{1, 1}) {
		t.Errorf("has %d but for %v: that f went it refused", has, owes)
	}
}

// A removal that was refused, and is said again, is not had with another response.
func TestP15_ARefusedRemovalIsNotHad(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
	w.wild("a", "f")
	w.sub("*")
	w.want("a f")
	w.ack()
	w.wild("-f")
	v := w.cur.Gen
	w.wild("a=2")
	w.want("a=2 -f")
	w.wild("a=33")
	w.pass(ackTimeout)
	w.want("a=33")
	w.send(request{nack: 2})
	w.send(request{ack: 3})
	has, arrears, _, _ := stand(w)
	if has >= v && !arrears.Of(Span{v, v}) {
		t.Errorf("version %d is had", v)
	}
	w.next()
}

// The same of what is there, and said again while another is on its way.
func TestP15_WhatIsRefusedOfTwoVersionsIsOfBoth(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			w := newWorld(t, xds.EndpointType, v)
			all := []string{"a", "b", "c"}
			w.named(all...)
			w.sub(all...)
			w.next()
			w.ack(all...)
			w.named("b=2")
			version := w.cur.Gen
			w.named("a=2")
			w.want("a=2 b=2") // both versions in one response
			w.nack(all...)
			w.named("c=2")
			w.want("c=2")
			other := len(w.nonces)
			w.named("a=33")
			w.pass(ackTimeout)
			w.want("a=33 b=2")
			w.send(request{names: w.list(all), ack: other})
			has, arrears, _, _ := stand(w)
			if has >= version && !arrears.Of(Span{version, version}) {
				t.Errorf("version %d is had: b=2 was refused, and what says it again is not answered", version)
			}
		})
	}
}

// Who polls, has a version that is nothing to it, and goes on having it when something
// newer is refused or not taken yet; as who is on a stream does.
func TestP71_WhatIsNothingToWhoPollsItHas(t *testing.T) {
	r := newREST(t, nil)
	g := r.house.group("edge")
	g.publish(update(t, xds.EndpointType, "a", "b"))
	c := r.web("http1")
	m := r.response(r.ask(c, xds.EndpointType, "", "a"))
	held := r.begin(testContext(t), c, xds.EndpointType, m.VersionInfo, "a")
	r.waiting(1)
	g.publish(update(t, xds.EndpointType, "b=2"))
	want := r.gen()
	if s := r.stands(); s.Has != want {
		t.Fatalf("has %d, want %d", s.Has, want)
	}
	g.publish(update(t, xds.EndpointType, "a=2"))
	m = r.response(<-held)
	if s := r.stands(); s.Has < want {
		t.Errorf("had %d, and has %d once something newer is given (%s)", want, s.Has, s.State)
	}
	refused := r.refuse(c, xds.EndpointType, m.VersionInfo, "a")
	r.is(Refused)
	if s := r.stands(); s.Has < want {
		t.Errorf("had %d, and has %d once it refused something newer (refused %v since %d): it counts as refusing %d", want, s.Has, s.Refused, s.Declined.From, want)
	}
	g.publish(update(t, xds.EndpointType, "a=33"))
	<-refused
}
