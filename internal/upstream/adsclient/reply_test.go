package adsclient

import (
	"testing"
	"time"

	"xdsrelay/internal/xds"
)

// Without a delay, origins that answer a NACK with the same response at once would keep both sides
// busy forever.
func TestP18_RepeatedNACKsAreDamped(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newProtocolFixture(t, v)
		r.want(named(rds, "a"), named(eds, "x"))
		r.sent(ask(v, "RDS", "a"), ask(v, "EDS", "x"))
		nack := map[xds.Variant]string{xds.SotW: "RDS [a] nonce ", xds.Delta: "RDS nonce "}[v]
		bad := func() { r.respond(resp{Type: rds, Resources: clusters("a", "a")}) }
		bad()
		r.sent(nack + "1 NACK") // the first at once
		bad()
		r.sent()
		r.now = r.now.Add(time.Second - 1)
		r.sent()
		r.now = r.now.Add(1)
		r.sent(nack + "2 NACK")
		bad()
		if at := r.conversation.WakeAt(); !at.Equal(r.now.Add(2 * time.Second)) {
			t.Errorf("the third is held for %v, want 2s", at.Sub(r.now))
		}
		r.want(named(rds, "a"), named(eds, "x", "y")) // other types go on
		if req := r.next(); req == nil || req.Type != eds {
			t.Errorf("request %+v", req)
		}
		r.now = r.now.Add(2*time.Second - 1)
		r.sent()
		r.now = r.now.Add(1)
		r.sent(nack + "3 NACK")
		for range 10 { // the waits have a bound
			bad()
			r.now = r.now.Add(30 * time.Second)
			if req := r.next(); req == nil || req.NACK == "" {
				t.Fatalf("after the longest wait: %+v", req)
			}
		}
		bad()
		r.respond(resp{Type: rds, Version: "1", Resources: clusters("a")}) // nothing waits any more
		if v == xds.Delta {
			r.sent("RDS nonce 14 NACK", "RDS nonce 15")
		} else {
			r.sent("RDS [a] version 1 nonce 14 NACK", "RDS [a] version 1 nonce 15")
		}
		if at := r.conversation.WakeAt(); !at.IsZero() {
			t.Error("something is held back")
		}
		bad()
		if req := r.next(); req == nil || req.NACK == "" {
			t.Errorf("the first after a good response: %+v", req)
		}
	})
}

// In SotW the origin would take a change for the ACK. So it goes after the NACK, and the NACK after
// the shortest wait. In delta the change does not wait.
func TestP18_InterestChangesWhileANACKWaits(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newProtocolFixture(t, v)
		r.want(named(rds, "a"))
		r.next()
		for range 4 {
			r.now = r.now.Add(time.Minute)
			r.next()
			r.respond(resp{Type: rds, Resources: clusters("a", "a")})
		}
		r.now = r.now.Add(time.Second - 1)
		r.sent()
		r.want(named(rds, "a", "b"))
		if v == xds.Delta {
			r.sent("RDS +[b]")
			r.now = r.now.Add(3 * time.Second)
			r.sent()
			r.now = r.now.Add(1)
			r.sent("RDS nonce 4 NACK")
			return
		}
		r.sent()
		if at := r.conversation.WakeAt(); !at.Equal(r.now.Add(1)) {
			t.Errorf("held for %v more", at.Sub(r.now))
		}
		r.now = r.now.Add(1)
		r.sent("RDS [a] nonce 4 NACK", "RDS [a b] nonce 4")
	})
}
