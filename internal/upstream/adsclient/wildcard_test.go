package adsclient

import (
	"testing"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// A new stream is needed because the origin would leave out what it has already sent on this one.
func TestP64_ResubscribedWildcardTakesANewStream(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		for what, again := range map[string]snapshot.TypeInterest{"names": named(cds, "x"), "the wildcard": all(cds)} {
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
		r := newProtocolFixture(t, v) // nothing at all is wanted: no subscription stays open for long
		r.want(named(eds, "a"), all(cds))
		r.next()
		r.next()
		r.want(named(eds, "a"))
		if r.want() {
			t.Error("the stream stays open for a wildcard that is not wanted")
		}
	})
}

// A response that comes before the stream knows that the wildcard was subscribed anew does not answer
// the new subscription.
func TestP67_ResponseToTheSubscriptionBefore(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newProtocolFixture(t, v)
		r.want(named(eds, "a"), all(cds))
		r.next()
		r.next()
		r.respond(resp{Type: cds, Version: "1", Resources: clusters("x")})
		r.holds(cds, "x")
		r.set(named(eds, "a"))
		r.set(named(eds, "a"), all(cds))
		r.respond(resp{Type: cds, Version: "2", Resources: clusters("x", "y")})
		r.holds(cds)
		if r.passInterest() {
			t.Error("the stream goes on")
		}
		r.reopen()
		r.next()
		r.next()
		r.respond(resp{Type: cds, Version: "2", Resources: clusters("x", "y")})
		r.holds(cds, "x", "y")
	})
}
