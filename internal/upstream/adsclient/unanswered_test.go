package adsclient

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// A list that a response overtook may have been discarded. If a name that it dropped is wanted
// again, the ACK leaves the name out, and the next request has it.
func TestP64_SotWADropThatAResponseOvertook(t *testing.T) {
	start := func(t *testing.T) *protocolFixture {
		r := newProtocolFixture(t, xds.SotW)
		r.want(named(eds, "a", "b"))
		r.sent("EDS [a b]")
		r.respond(resp{Type: eds, Version: "1", Resources: clusters("a", "b")})
		r.sent("EDS [a b] version 1 nonce 1")
		r.want(named(eds, "a"))
		r.sent("EDS [a] version 1 nonce 1")
		return r
	}
	again := []string{"EDS [a] version 2 nonce 2", "EDS [a b] nonce 2"}
	overtake := func(r *protocolFixture) { r.respond(resp{Type: eds, Version: "2", Resources: clusters("a")}) }

	t.Run("wanted before the response", func(t *testing.T) {
		r := start(t)
		r.want(named(eds, "a", "b"))
		r.sent("EDS [a b] nonce 1")
		overtake(r)
		r.sent(again...)
		// The ACK dropped the name, so this response has only to be acknowledged.
		r.respond(resp{Type: eds, Version: "3", Resources: clusters("a")})
		r.sent("EDS [a b] version 3 nonce 3", "EDS [a b] nonce 3") // P55: repeated without a version
		r.respond(resp{Type: eds, Version: "3", Resources: clusters("b")})
		r.sent("EDS [a b] version 3 nonce 4")
		r.holds(eds, "a", "b")
	})
	t.Run("wanted after the response", func(t *testing.T) {
		r := start(t)
		r.respondUnapplied(resp{Type: eds, Version: "2", Resources: clusters("a")}, func() {
			r.want(named(eds, "a", "b"))
			r.sent()
		})
		r.sent(again...)
	})
	t.Run("answered by the response", func(t *testing.T) {
		r := start(t)
		r.want(named(eds, "a", "b"))
		r.sent("EDS [a b] nonce 1")
		r.respond(resp{Type: eds, Version: "2", Resources: clusters("a", "b")})
		r.sent("EDS [a b] version 2 nonce 2")
	})
	t.Run("no longer wanted", func(t *testing.T) {
		r := start(t)
		overtake(r)
		r.sent("EDS [a] version 2 nonce 2")
		r.want(named(eds, "a", "b"))
		r.sent("EDS [a b] nonce 2")
	})
	t.Run("response NACKed", func(t *testing.T) {
		r := start(t)
		r.want(named(eds, "a", "b"))
		r.sent("EDS [a b] nonce 1")
		r.respond(resp{Type: eds, Version: "2", Resources: clusters("a", "a")})
		r.sent("EDS [a b] version 1 nonce 2 NACK", "EDS [a] version 1 nonce 2", "EDS [a b] nonce 2")
	})
	t.Run("response too late to overtake", func(t *testing.T) {
		r := start(t)
		r.want(named(eds, "a", "b"))
		r.sent("EDS [a b] nonce 1")
		r.pass(overtakenWithin)
		r.sent("EDS [a b] version 1 nonce 1") // P55
		overtake(r)
		r.sent("EDS [a b] version 2 nonce 2", "EDS [a b] nonce 2")
	})
	t.Run("before the first response", func(t *testing.T) {
		r := newProtocolFixture(t, xds.SotW)
		r.want(named(eds, "a", "b"))
		r.sent("EDS [a b]")
		r.want(named(eds, "a"))
		r.sent("EDS [a]")
		r.want(named(eds, "a", "b"))
		r.sent("EDS [a b]")
		r.respond(resp{Type: eds, Version: "1", Resources: clusters("a")})
		r.sent("EDS [a] version 1 nonce 1", "EDS [a b] nonce 1")
	})
}

// overdue checks when a name is overdue; 0: none is.
func (r *protocolFixture) overdue(in time.Duration) {
	r.t.Helper()
	at, want := r.conversation.OverdueAt(), time.Time{}
	if in > 0 {
		want = r.now.Add(in)
	}
	if !at.Equal(want) {
		r.t.Fatalf("overdue at %v, want in %v", at, in)
	}
}

// A name that was answered on this stream, dropped and requested again is overdue after 5 s without
// an answer. A name that the stream has never answered is not.
func TestP64_ResubscribedNameIsOverdue(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newProtocolFixture(t, v)
		sub := func(names ...string) {
			r.want(named(eds, names...))
			r.flush()
		}
		answer := func(p resp) {
			p.Type, p.Version = eds, "1"
			r.respond(p)
			r.flush()
		}
		sub("a", "b", "never")
		answer(resp{Resources: clusters("a", "b")})
		sub("a")
		r.overdue(0)
		r.pass(time.Hour)
		sub("a", "b", "never")
		r.overdue(overdueAfter)
		r.pass(time.Second)
		answer(resp{Resources: clusters("a")})
		r.overdue(overdueAfter - time.Second)
		answer(resp{Resources: clusters("b")})
		r.overdue(0)
		if v == xds.Delta {
			r.respond(resp{Type: eds, Removed: []string{"a"}}) // absent, which is an answer
		} else {
			r.respond(resp{Type: eds, Version: "1", Errors: map[string]codes.Code{"a": codes.NotFound}})
		}
		r.flush()
		sub("b")
		sub("a", "b")
		r.overdue(overdueAfter)

		// It is unsubscribed once more before the answer, and was still answered earlier.
		r.pass(time.Second)
		sub("b")
		r.overdue(0)
		sub("a", "b")
		r.overdue(overdueAfter)

		// A new stream has answered nothing.
		r.connect()
		r.flush()
		r.overdue(0)
	})
}

// In delta, a name whose version the first request listed counts as answered. The origin need not
// answer it.
func TestP64_DeltaListedIsAnswered(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	r.want(named(eds, "a", "b"))
	r.flush()
	r.respond(resp{Type: eds, Resources: clusters("a", "b")})
	r.connect()
	r.flush()
	r.want(named(eds, "a"))
	r.flush()
	r.want(named(eds, "a", "b"))
	r.flush()
	r.overdue(overdueAfter)
}

// What a stream remembers of dropped names is bounded.
func TestP64_DroppedNamesAreBounded(t *testing.T) {
	var u unanswered
	for i := range maxDropped + 10 {
		name := fmt.Sprint("n", i)
		u.subscribed([]string{name}, time.Time{})
		u.answered(&xds.Response{Removed: []string{name}})
		u.unsubscribed([]string{name})
	}
	if len(u.dropped) != maxDropped || u.pending.Len() > 0 || len(u.overdueAt) > 0 {
		t.Errorf("%d dropped, %d pending, %d again", len(u.dropped), u.pending.Len(), len(u.overdueAt))
	}
	u.unsubscribed([]string{"last"})
	u.subscribed([]string{"last"}, time.Time{})
	if len(u.overdueAt) != 1 {
		t.Error("the name that was dropped last is not remembered")
	}
}

// A delta origin is asked once more for a name that does not exist, without unsubscribing it. A
// SotW origin sees the name in each request.
func TestP25_RequestedOnceMore(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newProtocolFixture(t, v)
		want := named(cds, "a", "b", "c")
		r.want(want)
		r.flush()
		r.respond(resp{Type: cds, Version: "1", Resources: clusters("a", "b", "c")})
		r.flush()
		r.respond(resp{Type: cds, Version: "2", Resources: clusters("a"), Removed: []string{"b", "c"}})
		r.flush()
		r.is(cds, snapshot.Absent, "b", "c")
		want.Again = []string{"a", "b", "x"}
		r.want(want)
		if v == xds.Delta {
			r.sent("CDS +[b]") // a is held, and x is not subscribed
		} else {
			r.sent()
		}
		r.want(named(cds, "a", "b", "c"))
		r.sent()
	})
}
