package upstream

import (
	"testing"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// A wildcard that nobody wants any more is of no concern to the other types:
// the stream goes on, and what still comes is dropped.
func TestP64_AWildcardThatEndsLeavesTheStreamOpen(t *testing.T) {
	r := newProtocolFixture(t, xds.SotW)
	r.want(named(eds, "a"), all(cds), all(rds))
	r.sent("EDS [a] node", "CDS []", "RDS [*]")
	r.respond(resp{Type: cds, Version: "1", Resources: clusters("x")})
	r.respond(resp{Type: rds, Version: "1", Resources: clusters("x")})
	r.sent("CDS [] version 1 nonce 1", "RDS [*] version 1 nonce 2")
	if !r.want(named(eds, "a")) {
		t.Fatal("the stream ends with two of its wildcards")
	}
	r.sent() // they stay asked, as they were asked
	_, n := r.respond(resp{Type: cds, Version: "2", Resources: clusters("x", "y")})
	if n.unasked != 2 {
		t.Errorf("%d unasked, want 2", n.unasked)
	}
	r.holds(cds)
	r.respond(resp{Type: rds, Version: "2", Resources: clusters("x", "x")})
	r.sent("CDS [] version 2 nonce 3", "RDS [*] version 1 nonce 4 NACK")

	d := newProtocolFixture(t, xds.Delta)
	d.want(named(eds, "a"), all(cds))
	d.sent("EDS +[a] node", "CDS +[*]")
	d.respond(resp{Type: cds, Resources: clusters("x")})
	if !d.want(named(eds, "a")) {
		t.Fatal("the stream ends with one of its wildcards")
	}
	d.respond(resp{Type: cds, Resources: clusters("y")}) // crossed the request
	d.sent("CDS nonce 1", "CDS nonce 2", "CDS -[*]")
	d.holds(cds)
	d.sent()
}

// What the origin remembers of the stream would be left out of the answer.
func TestP64_AWildcardThatEndedTakesANewStreamOnceTheTypeIsWantedAgain(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		for what, again := range map[string]xds.TypeInterest{"names": named(cds, "x"), "the wildcard": all(cds)} {
			r := newProtocolFixture(t, v)
			r.want(named(eds, "a"), all(cds))
			r.next()
			r.next()
			r.want(named(eds, "a"))
			r.next()
			if !r.want(named(eds, "a", "b")) {
				t.Error("another type takes a new stream")
			}
			if r.want(named(eds, "a"), again) {
				t.Errorf("%s on the same stream", what)
			}
		}
		r := newProtocolFixture(t, v) // nothing at all is wanted: nothing is left asked for long
		r.want(named(eds, "a"), all(cds))
		r.next()
		r.next()
		r.want(named(eds, "a"))
		if r.want() {
			t.Error("the stream stays for a wildcard that nobody wants")
		}
	})
}

// One type's wildcard comes and goes, the others are served on the same stream.
func TestP64_AWildcardEndsAtAControlPlane(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		o := xdstest.StartOrigin(t, xdstest.OriginOptions{Cache: xdstest.Linear})
		o.Put(noCluster, xdstest.Cluster("x", 1), xdstest.Endpoints("a", 1))
		r := startRelay(t, Options{Variant: v}, o.Address)
		stream, sink := r.stream(named(eds, "a"), all(cds))
		sink.UntilNames(t, cds, "x")
		sink.UntilNames(t, eds, "a")
		o.Put(noCluster, xdstest.Endpoints("b", 1))
		stream.SetInterest(sink.Want(named(eds, "a", "b")))
		sink.UntilNames(t, eds, "a", "b")
		o.Put(noCluster, xdstest.Cluster("y", 1))
		opened := func() (n int) {
			for _, st := range sink.statuses {
				if st.Connected {
					n++
				}
			}
			return n
		}
		sink.Until(t, "one stream", func() bool { return opened() == 1 })
		stream.SetInterest(sink.Want(named(eds, "a", "b"), all(cds)))
		sink.Until(t, "a second stream", func() bool { return opened() == 2 })
		sink.UntilNames(t, cds, "x", "y")
		sink.UntilNames(t, eds, "a", "b")
		sink.Until(t, "no third one", func() bool { return opened() == 2 })
	})
}
