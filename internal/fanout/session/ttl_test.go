package session

import (
	"fmt"
	"testing"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

const ttl = 30 * time.Second

// A client without the features is sent neither TTLs nor heartbeats, and in SotW no Resource
// wrappers. A TTL that appears or disappears is no change for it (P62).
func TestP62_ClientsWithoutTheFeatures(t *testing.T) {
	for _, features := range [][]string{nil, {xds.FeatureTTL}, {xds.FeatureSupportsResourceInSotW, xds.FeatureResourceInSotW}} {
		for _, url := range []xds.TypeURL{xds.EndpointType, xds.ClusterType} {
			each(t, url, func(w *sessionFixture) {
				if w.takes(features...); w.s.form.WithTTL {
					return // of the other variant
				}
				wild := url == xds.ClusterType
				w.Living(wild, ttl, "a")
				w.ask(wild, "a")
				w.want("a")
				want := sent{"a", w.Cur.Resource("a").Version.String(), 0, true, true}
				if w.s.form.Variant == xds.SotW {
					want = sent{body: true}
				}
				w.wantWire(want)
				w.ack()
				w.Pass(10 * time.Second)
				w.Heartbeat(wild, "a")
				w.want("")
				w.Apply(snapshot.Update{Origin: "o", Wildcard: wild, Changed: []*xds.Resource{w.With("a", "", 0)}})
				w.want("")
				w.Living(wild, ttl, "a")
				w.want("")
			})
		}
	}
}

// A TTL that appears or disappears is a change. Another value of it is a heartbeat (P33).
func TestP33_ChangesOfATTL(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.timely()
		w.named("a")
		w.sub("a")
		w.accepts("a")
		w.Living(false, ttl, "a")
		w.accepts("a")
		w.Living(false, 2*ttl, "a")
		w.want("~a")
		if _, got := w.wire(); got[0].ttl != 2*ttl {
			t.Errorf("%+v", got)
		}
		w.ack()
		w.named("a")
		w.want("a")
		w.wantWire(sent{"a", got(w), 0, true, true})
	})
}

// got is the version of the only resource in the last response.
func got(w *sessionFixture) string {
	_, s := w.wire()
	return s[0].version
}

// A late client gets the remaining TTL, rounded up to the origin's own steps, and the whole
// TTL right after a heartbeat (P62).
func TestP62_LateJoinersGetTheRemainingTTL(t *testing.T) {
	eachAnswer(t, xds.EndpointType, func(w *sessionFixture, wild bool) {
		w.Living(wild, ttl, "a")
		join := func(want time.Duration) {
			t.Helper()
			w.joins(xds.FeatureTTL, xds.FeatureSupportsResourceInSotW)
			w.ask(wild, "a")
			w.want("a")
			if _, got := w.wire(); got[0].ttl != want || !got[0].body {
				t.Errorf("%+v, want %v", got[0], want)
			}
		}
		join(ttl)
		w.Pass(999 * time.Millisecond)
		join(ttl)
		w.Pass(9*time.Second + 500*time.Millisecond)
		join(20 * time.Second)
		w.Heartbeat(wild, "a")
		join(ttl)
		w.Pass(ttl - time.Millisecond)
		join(time.Second)
		w.Pass(time.Second) // the group has not dropped it yet
		w.joins(xds.FeatureTTL, xds.FeatureSupportsResourceInSotW)
		w.ask(wild, "a")
		if got := w.next(); got != "" && got != "(empty)" {
			t.Errorf("it has expired, and is sent as %q", got)
		}
		w.lapse()
		w.joins()
		w.ask(wild, "a")
		if got := w.next(); got != "" && got != "(empty)" {
			t.Errorf("it is not held, and is sent as %q", got)
		}
	})
}

// Clients that join in the same second share a body. Clients that take no TTLs share it for as
// long as nothing changes (P62).
func TestP62_BodiesAreShared(t *testing.T) {
	eachAnswer(t, xds.EndpointType, func(w *sessionFixture, wild bool) {
		var specs []string
		for i := range 50 {
			specs = append(specs, fmt.Sprintf("r-%02d", i))
		}
		for i, s := range specs { // each came at another time
			w.Pass(10 * time.Millisecond)
			w.Living(wild, ttl+time.Duration(i)*time.Millisecond, s)
		}
		join := func(features ...string) *frame {
			w.joins(features...)
			w.ask(wild, specs...)
			if w.next() == "" {
				t.Fatal("nothing is sent")
			}
			return w.frame
		}
		w.Now = w.Now.Truncate(time.Second).Add(time.Second)
		first, plain := join(xds.FeatureTTL, xds.FeatureSupportsResourceInSotW), join()
		w.Pass(999 * time.Millisecond)
		for range 100 {
			if join(xds.FeatureTTL, xds.FeatureSupportsResourceInSotW) != first {
				t.Fatal("not shared within a second")
			}
		}
		w.Pass(10 * time.Second)
		if join(xds.FeatureTTL, xds.FeatureSupportsResourceInSotW) == first {
			t.Error("the TTL does not go down")
		}
		if join() != plain {
			t.Error("a client that takes no TTL gets another body")
		}
	})
}

// Heartbeats that come while an ACK is pending become one, with the newest TTL (P62).
func TestP62_HeartbeatsAreMerged(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.timely()
		w.Living(false, ttl, "a", "b")
		w.sub("a", "b")
		w.want("a b")
		for range 3 {
			w.Pass(time.Second)
			w.Heartbeat(false, "a")
			w.want("")
		}
		if !w.s.pendingACKs.changeWaits {
			t.Error("the answer would not wake the session")
		}
		w.Pass(time.Second)
		w.Heartbeat(false, "b")
		from := w.s.delivered.snapshot
		if out := w.ack(); !out.Wake {
			t.Error("the answer does not wake the session")
		}
		w.want("~a ~b")
		if _, got := w.wire(); got[0].ttl != 29*time.Second || got[1].ttl != ttl {
			t.Errorf("%+v", got)
		}
		if n := snapshot.Heartbeats(from, w.Cur, w.s.sub.effective); n != 4 {
			t.Errorf("%d heartbeats", n)
		}
		w.ack()
		w.want("")
	})
}

// A missing ACK holds heartbeats back for ack_timeout, as it does changes (P19).
func TestP62_HeartbeatsWaitForAckTimeout(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.timely()
		w.Living(false, time.Minute, "a")
		w.sub("a")
		w.want("a")
		w.Heartbeat(false, "a")
		w.want("")
		w.Pass(ackTimeout)
		w.want(w.either("a", "~a")) // in SotW nothing is acknowledged yet: a heartbeat has no version to use
	})
}

// Beside a change, delta has heartbeats in the same response. SotW has the whole resource
// instead, since the response has another version_info (P62).
func TestP62_BesideAChange(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.timely()
		w.Living(false, ttl, "a", "c")
		w.named("b")
		w.sub("a", "b", "c")
		w.accepts("a b c")
		w.Pass(time.Second)
		w.Heartbeat(false, "a", "c")
		w.Living(false, ttl, "c=2")
		w.named("b=2")
		w.want(w.either("a b=2 c=2", "b=2 c=2 ~a"))
		if v := w.Cur.Version; w.s.form.Variant == xds.SotW {
			w.wantWire(sent{"a", v, ttl, true, true}, sent{"b", v, 0, true, true}, sent{"c", v, ttl, true, true})
		}
		w.ack()
		w.want("")
	})
}

// An expired name has no answer for a client that asks for it. A client that gives it up
// beside the wildcard is answered (P24).
func TestP24_UnsubscribedAfterItExpired(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.timely()
	w.Living(true, ttl, "a")
	w.wild("b")
	w.sub("*")
	w.accepts("a b")
	w.Pass(ttl)
	w.lapse()
	w.sub("a")
	w.want("")
	if len(w.s.forced.names) > 0 {
		t.Error("it stays to be answered")
	}
	w.unsub("a")
	w.accepts("-a")
	w.want("")
}

// A client that rejected a resource does not have it at this version, and is sent no heartbeat.
// A rejected full-state response is not sent again for a heartbeat (P15).
func TestP15_HeartbeatOfANACKedResource(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.timely()
		w.Living(false, ttl, "a", "b")
		w.sub("a", "b")
		w.accepts("a b")
		w.Living(false, ttl, "a=2")
		w.rejects("a=2")
		w.Pass(time.Second)
		w.Heartbeat(false, "a", "b")
		w.accepts("~b")
		w.Living(false, ttl, "a=33")
		w.want("a=33")
	})
	w := newSessionFixture(t, xds.ClusterType, xds.SotW)
	w.timely()
	w.Living(true, ttl, "a")
	w.sub()
	w.rejects("a")
	w.Pass(time.Second)
	w.Heartbeat(true, "a")
	w.want("")
	w.wild("b")
	w.want("a b")
}

// A client that reconnects with the version that is held may have missed heartbeats: it is
// sent one (P27).
func TestP62_HeartbeatAfterReconnect(t *testing.T) {
	w := newSessionFixture(t, xds.RouteType, xds.Delta)
	w.timely()
	w.Living(false, ttl, "a", "b")
	w.Pass(10 * time.Second)
	w.send(request{names: []string{"*"}, initial: map[string]string{}})
	w.s = newSession(w.Type, xds.Delta)
	w.timely()
	w.Living(true, ttl, "a", "b")
	w.wild("c")
	w.Pass(5 * time.Second)
	version := func(n string) string { return w.Cur.Resource(n).Version.String() }
	w.send(request{names: []string{"*"}, initial: map[string]string{"a": version("a"), "b": "other", "c": version("c")}})
	w.want("b ~a")
	if _, got := w.wire(); got[1].ttl != 25*time.Second || got[1].body {
		t.Errorf("%+v", got)
	}
	w.ack()
	w.want("")
}

// A resource expired before the client reconnected, and returns later. It is sent, although
// the client already had that version (P27).
func TestP27_ClientVersionOfAnExpiredResource(t *testing.T) {
	w := newSessionFixture(t, xds.RouteType, xds.Delta)
	w.timely()
	w.Living(true, ttl, "a", "b")
	version := w.Cur.Resource("a").Version.String()
	w.Pass(ttl)
	w.lapse()
	w.send(request{names: []string{"*"}, initial: map[string]string{"a": version, "b": version}})
	w.accepts("(empty)")
	w.Living(true, ttl, "a")
	w.wild("-b")
	w.want("a -b")
}

// After a heartbeat no load assignment follows. It does follow a resource that the client had
// lost by then (P37).
func TestP37_AfterAHeartbeat(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.timely()
	w.Living(true, ttl, "a")
	w.wild("b")
	w.sub("*")
	w.accepts("a b")
	w.Pass(time.Second)
	w.Heartbeat(true, "a")
	w.want("~a")
	if len(w.follow) > 0 {
		t.Errorf("%v follow a heartbeat", w.follow)
	}
	w.wild("b=2") // an ACK is pending, so it waits
	w.Pass(ttl - time.Second)
	w.Heartbeat(true, "a")
	w.Pass(time.Second)
	w.ack()
	w.want("a b=2")
	if fmt.Sprint(w.follow) != "[a b]" {
		t.Errorf("%v follow what the client had lost, and what changed", w.follow)
	}
}

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
