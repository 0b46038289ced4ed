package session

import (
	"testing"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// A resource that a client asked for by an alias expires, and is renewed, like one asked for
// by name (P62).
func TestP62_ByAnAlias(t *testing.T) {
	w := newSessionFixture(t, xds.VHostType, xds.Delta)
	w.timely()
	w.Apply(snapshot.Update{Origin: "o", Changed: []*xds.Resource{w.With("a", "", ttl, "x")}})
	w.sub("x")
	w.accepts("a")
	w.Pass(time.Second)
	w.Heartbeat(false, "a")
	w.accepts("~a")
	w.Pass(ttl)
	w.lapse()
	w.want("")
	w.Apply(snapshot.Update{Origin: "o", Changed: []*xds.Resource{w.With("a", "", ttl, "x")}})
	w.want("a")
}

// A client was too slow to be sent how short a resource's last TTL was. It is sent a removal:
// by the TTL that it has, it would keep the resource for longer, or for ever (P62).
func TestP62_ShortTTLNotSentInTime(t *testing.T) {
	for _, longer := range []time.Duration{0, time.Hour} {
		eachAnswer(t, xds.ClusterType, func(w *sessionFixture, wild bool) {
			w.timely()
			w.Apply(snapshot.Update{Origin: "o", Wildcard: wild, Changed: []*xds.Resource{w.With("a", "", longer), w.Resource("b")}})
			w.ask(wild, "a", "b")
			w.want("a b")
			w.Living(wild, time.Second, "a")
			w.Pass(time.Second)
			w.lapse()
			w.ack()
			w.accepts(w.either("b", "-a"))
			w.want("")
			w.Living(wild, time.Second, "a")
			w.want(w.either("a b", "a"))
			// A client that counts no TTL keeps it.
			w.joins()
			w.Apply(snapshot.Update{Origin: "o", Wildcard: wild, Changed: []*xds.Resource{w.With("a", "", longer)}})
			w.ask(wild, "a", "b")
			w.want("a b")
			w.Living(wild, time.Second, "a")
			w.Pass(time.Second)
			w.lapse()
			w.ack()
			w.want("")
		})
	}
	// SotW cannot express a removal of other types (P31).
	w := newSessionFixture(t, xds.EndpointType, xds.SotW)
	w.timely()
	w.named("a")
	w.sub("a")
	w.want("a")
	w.Living(false, time.Second, "a")
	w.Pass(time.Second)
	w.lapse()
	w.ack()
	w.want("")
}

// A resource that went and came back between two responses did not change (P33), but its TTL
// begins anew.
func TestP62_RemovedAndRestoredIsAHeartbeat(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.timely()
		w.Living(false, ttl, "a")
		w.sub("a")
		w.accepts("a")
		w.Pass(10 * time.Second)
		w.named("-a")
		w.Living(false, ttl, "a")
		w.accepts("~a")
		w.want("")
		// So it is beside a newly subscribed name.
		w.named("-a", "b")
		w.Living(false, ttl, "a")
		w.more("b")
		w.want(w.either("a b", "b ~a"))
	})
}
