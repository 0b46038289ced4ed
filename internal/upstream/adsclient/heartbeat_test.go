package adsclient

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// expires is when the resource held under name expires, as time since the fixture began.
func (r *protocolFixture) expires(typ xds.TypeURL, name string) time.Duration {
	r.t.Helper()
	held := r.sink.Newest(typ).Resource(name)
	if held == nil {
		r.t.Fatalf("%s is not held", name)
	}
	if held.TTL() == 0 {
		return 0
	}
	for d := time.Duration(0); d <= time.Hour; d += time.Second {
		if held.Expired(time.Unix(1000, 0).Add(d)) {
			return d
		}
	}
	r.t.Fatalf("%s does not expire", name)
	return 0
}

// A heartbeat renews nothing if its version is not the held one, or if the resource is not held or
// not subscribed.
func TestP62_StaleHeartbeats(t *testing.T) {
	const ttl = 30 * time.Second
	for _, c := range []struct {
		what         string
		v            xds.Variant
		version      string // of the response
		beat         res
		renewed      int
		stale        int
		notRequested int
	}{
		{"its version", xds.Delta, "9", res{Name: "a", Version: "1"}, 1, 0, 0},
		{"another version", xds.Delta, "5", res{Name: "a", Version: "2"}, 0, 1, 0},
		{"no version", xds.Delta, "5", res{Name: "a"}, 0, 1, 0},
		{"absent", xds.Delta, "5", res{Name: "b", Version: "1"}, 0, 1, 0},
		{"not requested", xds.Delta, "5", res{Name: "c", Version: "1"}, 0, 0, 1},
		{"the version_info", xds.SotW, "5", res{Name: "a"}, 1, 0, 0},
		{"its own version", xds.SotW, "5", res{Name: "a", Version: "1"}, 1, 0, 0},
		{"its own version under another version_info", xds.SotW, "9", res{Name: "a", Version: "1"}, 1, 0, 0},
		{"a newer version_info", xds.SotW, "9", res{Name: "a"}, 1, 0, 0},
		{"another version of its own", xds.SotW, "5", res{Name: "a", Version: "2"}, 0, 1, 0},
		{"not held", xds.SotW, "5", res{Name: "b"}, 0, 1, 0},
		{"not requested", xds.SotW, "5", res{Name: "c"}, 0, 0, 1},
	} {
		t.Run(c.v.String()+"/"+c.what, func(t *testing.T) {
			r := newProtocolFixture(t, c.v)
			r.want(named(eds, "a", "b"))
			r.flush()
			r.respond(resp{Type: eds, Version: "5", Resources: []res{{Name: "a", Version: "1", TTL: ttl}}})
			r.now = r.now.Add(10 * time.Second)
			c.beat.Heartbeat, c.beat.TTL = true, ttl
			_, n := r.respond(resp{Type: eds, Version: c.version, Resources: []res{c.beat}})
			if n.Renewed != c.renewed || n.Stale != c.stale || n.NotRequested != c.notRequested {
				t.Errorf("%+v", n)
			}
			want := ttl
			if c.renewed > 0 {
				want += 10 * time.Second
			}
			if got := r.expires(eds, "a"); got != want {
				t.Errorf("it expires after %v, want %v", got, want)
			}
		})
	}
	// A heartbeat beside other resources is treated in the same way.
	r := newProtocolFixture(t, xds.SotW)
	r.want(all(cds))
	r.flush()
	r.respond(resp{Type: cds, Version: "1", Resources: []res{{Name: "a", TTL: ttl}, {Name: "b"}}})
	r.now = r.now.Add(10 * time.Second)
	if _, n := r.respond(resp{Type: cds, Version: "2", Resources: []res{{Name: "a", TTL: ttl, Heartbeat: true}, {Name: "b", Content: "2"}}}); n.Renewed != 1 {
		t.Errorf("%+v", n)
	}
	// A resource without a body and TTL is no heartbeat.
	if _, n := r.respond(resp{Type: cds, Version: "2", Resources: []res{{Name: "a", Heartbeat: true}}}); n.Renewed+n.Stale != 0 || n.bodyless != 1 {
		t.Errorf("%+v", n)
	}
}

// After a NACK a newer version may be the NACKed one. Its heartbeat renews nothing, and its ACK
// carries the version that is still held.
func TestP62_HeartbeatAfterANACK(t *testing.T) {
	const ttl = 30 * time.Second
	r := newProtocolFixture(t, xds.SotW)
	r.want(all(cds))
	r.sent("CDS []")
	r.respond(resp{Type: cds, Version: "1", Resources: []res{{Name: "a", TTL: ttl}}})
	r.sent("CDS [] version 1 nonce 1")
	r.respond(resp{Type: cds, Version: "2", Resources: []res{{Name: "a"}, {Name: "a"}}})
	r.sent("CDS [] version 1 nonce 2 NACK")
	beat := []res{{Name: "a", TTL: ttl, Heartbeat: true}}
	r.now = r.now.Add(time.Second)
	if _, n := r.respond(resp{Type: cds, Version: "2", Resources: beat}); n.Renewed != 0 || n.Stale != 1 {
		t.Errorf("of the NACKed version: %+v", n)
	}
	r.sent("CDS [] version 1 nonce 3")
	if v := r.sink.Newest(cds).Version; v != "1" {
		t.Errorf("version %s is shown", v)
	}
	if _, n := r.respond(resp{Type: cds, Version: "1", Resources: beat}); n.Renewed != 1 {
		t.Errorf("of the version held: %+v", n)
	}
	if _, n := r.respond(resp{Type: cds, Version: "2", Resources: beat}); n.Renewed != 0 {
		t.Errorf("of the NACKed version, again: %+v", n)
	}
	r.respond(resp{Type: cds, Version: "3", Resources: []res{{Name: "a", Content: "3", TTL: ttl}}})
	if _, n := r.respond(resp{Type: cds, Version: "4", Resources: beat}); n.Renewed != 1 {
		t.Errorf("once another one is accepted: %+v", n)
	}
}

// The next stream requests an expired resource like one that is not held. It still lists the name,
// so that clients that hold the resource learn of its removal.
func TestP62_ReconnectAfterExpiry(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newProtocolFixture(t, v)
		r.want(all(cds), named(eds, "a", "b"))
		r.flush()
		r.respond(resp{Type: cds, Version: "1", Resources: []res{{Name: "w", Version: "1", TTL: time.Second}, {Name: "x", Version: "1"}}})
		r.respond(resp{Type: eds, Version: "1", Resources: []res{{Name: "a", Version: "1", TTL: time.Second}, {Name: "b", Version: "1"}}})
		r.flush()
		for _, typ := range []xds.TypeURL{cds, eds} {
			if n := r.sink.Builder(typ).Expire(r.now.Add(time.Minute)); n != 1 {
				t.Fatalf("%d expired", n)
			}
			r.sink.Publish(typ)
		}
		r.is(eds, snapshot.Expired, "a")
		r.connect()
		if v == xds.Delta {
			r.sent("CDS w= x=", "EDS +[a b] a= b=")
		} else {
			r.sent("CDS []", "EDS [a b]")
		}
		// Silence does not make it absent, because it was received once.
		r.pass(time.Hour)
		r.is(eds, snapshot.Expired, "a")
		if v == xds.SotW {
			r.respond(resp{Type: cds, Version: "2", Resources: []res{{Name: "x"}}})
			if got := r.last().Removed; !slices.Equal(got, []string{"w"}) {
				t.Errorf("removed %v", got)
			}
		}
	})
}

// resource_errors are accepted for subscribed names. NOT_FOUND means absence. Any other code is an
// answer that no timer changes.
func TestP39_ResourceErrors(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newProtocolFixture(t, v)
		r.want(named(eds, "a", "b", "c", "d"))
		r.flush()
		r.respond(resp{Type: eds, Version: "1", Resources: []res{{Name: "a", Version: "1"}}})
		r.respond(resp{Type: eds, Version: "2", Errors: map[string]codes.Code{
			"a": codes.Unavailable, "b": codes.NotFound, "c": codes.PermissionDenied, "notRequested": codes.Internal}})
		r.is(eds, snapshot.Present, "a")
		r.is(eds, snapshot.Absent, "b")
		r.is(eds, snapshot.Pending, "c")
		snap := r.sink.Newest(eds)
		asker := &snapshot.Subscription{Names: xds.NewNameSet("a", "b", "c")}
		for name, want := range map[string]codes.Code{"a": codes.Unavailable, "b": codes.NotFound, "c": codes.PermissionDenied} {
			if e := snap.Error(asker, name); e == nil || e.Code != want {
				t.Errorf("%s: %+v, want %v", name, e, want)
			}
		}
		if snap.ErrorCount() != 3 {
			t.Errorf("%d errors", snap.ErrorCount())
		}
		r.pass(15 * time.Second)
		r.is(eds, snapshot.Pending, "c")
		r.is(eds, snapshot.Pending, "d") // P57
		if snap := r.sink.Newest(eds); snap.AbsentNames() != 1 {
			t.Errorf("%d absences stated, want 1", snap.AbsentNames())
		}
		// An error beside its resource removes nothing.
		r.respond(resp{Type: eds, Version: "3", Resources: []res{{Name: "d", Version: "1"}}, Errors: map[string]codes.Code{"d": codes.NotFound}})
		r.is(eds, snapshot.Present, "d")
		if got := r.last().Removed; len(got) > 0 {
			t.Errorf("removed %v", got)
		}
	})
}

// A full-state SotW response removes what it leaves out, except a resource for which it has an
// error.
func TestP39_ErrorInPlaceOfTheResource(t *testing.T) {
	r := newProtocolFixture(t, xds.SotW)
	r.want(all(cds))
	r.flush()
	r.respond(resp{Type: cds, Version: "1", Resources: clusters("a", "b", "c")})
	r.respond(resp{Type: cds, Version: "2", Errors: map[string]codes.Code{"a": codes.Internal, "b": codes.NotFound}})
	r.holds(cds, "a")
	if got := r.last().Removed; !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("removed %v", got)
	}
	// An error for the wildcard itself neither removes nor adds anything.
	r.respond(resp{Type: cds, Version: "3", Resources: clusters("a"), Errors: map[string]codes.Code{"*": codes.NotFound}})
	r.holds(cds, "a")
	if e := r.sink.Newest(cds).Error(&snapshot.Subscription{Wildcard: true}, "*"); e == nil {
		t.Error("it is not kept")
	}
}
