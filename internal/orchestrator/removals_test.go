package orchestrator

import (
	"testing"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// removing runs f with a key whose only client subscribes to clusters, acknowledged a and b, and
// has routes on its stream.
func removing(t *testing.T, f func(w *registryFixture, c *testClient, origin *feed)) {
	t.Helper()
	reconnected(t, func(w *registryFixture, c *testClient, origin *feed) {
		c.acks(cds)
		c.woken()
		f(w, c, origin)
	})
}

// reconnected is removing before the client has acknowledged anything.
func reconnected(t *testing.T, f func(w *registryFixture, c *testClient, origin *feed)) {
	t.Helper()
	goesOn(t)
	bubble(t, func(o *Options) { o.RemovalDelay = 5 * time.Second }, func(w *registryFixture) {
		c := w.join("edge", cds).want("*")
		c.alsoRoutes()
		c.woken()
		origin := w.feed("edge")
		u := snapshot.Update{Type: cds, Origin: "origin", Version: "v1", Wildcard: true, Received: time.Now()}
		for _, name := range []string{"a", "b"} {
			r := *resource(t, cds, name, "1")
			r.OriginVersion = "1"
			u.Changed = append(u.Changed, &r)
		}
		origin.hand(t, u)
		f(w, c, origin)
	})
}

// A deletion takes effect removal_delay after it was first seen. Other changes meanwhile do not
// wait, and a repetition does not restart the wait. The version is always the newest (P61).
func TestP36_DeletionWaits(t *testing.T) {
	removing(t, func(w *registryFixture, c *testClient, origin *feed) {
		has := func(name, content, version string) {
			t.Helper()
			equal(t, name, c.sees(subscription("*"), name), content)
			equal(t, "version", c.State().Snapshot(cds).Version, version)
		}
		hand := func(version string, changed []*xds.Resource, removed ...string) {
			t.Helper()
			origin.hand(t, snapshot.Update{Type: cds, Origin: "origin", Version: version, Wildcard: true, Received: time.Now(), Changed: changed, Removed: removed})
		}
		hand("v2", []*xds.Resource{resource(t, cds, "c", "1")}, "b")
		has("b", "1", "v2")
		has("c", "1", "v2")
		held := origin.sink.Newest(cds).Part(snapshot.ByWildcard)
		equal(t, "origin version that a new stream names of b", held.Resource("b").OriginVersion, "")
		equal(t, "that of a", held.Resource("a").OriginVersion, "1")
		pass(3 * time.Second)
		hand("v3", nil, "b") // again, as a SotW origin repeats it
		pass(2*time.Second - 1)
		has("b", "1", "v3")
		c.woken()
		pass(1)
		has("b", "-", "v3")
		equal(t, "wakes", c.woken(), 1)
		hand("v4", nil, "a")
		pass(4 * time.Second)
		hand("v5", []*xds.Resource{resource(t, cds, "a", "1")})
		pass(10 * time.Second)
		has("a", "1", "v5")
	})
}

// The deletion of a resource that no client has acknowledged does not wait. That also holds if it
// was changed since, and while another deletion waits.
func TestP36_RollBackDoesNotWait(t *testing.T) {
	removing(t, func(w *registryFixture, c *testClient, origin *feed) {
		origin.update(t, cds, true, "bad=1", "b")
		origin.update(t, cds, true, "bad=2")
		origin.update(t, cds, true, "bad")
		equal(t, "bad", c.sees(subscription("*"), "bad"), "-")
		equal(t, "b", c.sees(subscription("*"), "b"), "1")
		origin.update(t, cds, true, "good=1")
		c.acks(cds)
		origin.update(t, cds, true, "good")
		equal(t, "good", c.sees(subscription("*"), "good"), "1")
		pass(5 * time.Second)
		equal(t, "good", c.sees(subscription("*"), "good"), "-")
		w.check()
	})
}

// After a restart of the relay, a client may use resources that it has not acknowledged yet on its
// new stream. So all deletions wait until there is an acknowledgement.
func TestP36_WaitsBeforeTheFirstAck(t *testing.T) {
	reconnected(t, func(w *registryFixture, c *testClient, origin *feed) {
		origin.update(t, cds, true, "b")
		equal(t, "b", c.sees(subscription("*"), "b"), "1")
		c.acks(cds)
		origin.update(t, cds, true, "a")
		equal(t, "a", c.sees(subscription("*"), "a"), "1")
		pass(5 * time.Second)
		equal(t, "b", c.sees(subscription("*"), "b"), "-")
		equal(t, "a", c.sees(subscription("*"), "a"), "-")
	})
}

// A client acknowledged the wildcard's copy. The name's own copy came later and changed nothing for
// the client, so it is no new resource: its deletion waits.
func TestP36_BothHoldAName(t *testing.T) {
	removing(t, func(w *registryFixture, c *testClient, origin *feed) {
		named := w.join("edge", cds).want("a")
		pass(time.Second)
		second := w.second("edge")
		second.update(t, cds, false, "a=1")
		c.want()
		pass(time.Minute)
		second.update(t, cds, false, "a")
		equal(t, "a", named.sees(subscription("a"), "a"), "1")
		pass(5 * time.Second)
		equal(t, "a", named.sees(subscription("a"), "a"), "-")
	})
}

// Deletions wait only while a stream of clusters also has listeners or routes. The delay is the one
// configured now.
func TestP36_DeletionDoesNotWait(t *testing.T) {
	removing(t, func(w *registryFixture, c *testClient, origin *feed) {
		other := w.join("edge", cds).want("*")
		origin.update(t, cds, true, "a")
		equal(t, "a", other.sees(subscription("*"), "a"), "1")
		c.leave()
		equal(t, "a, with no stream left that has routes", other.sees(subscription("*"), "a"), "-")
		origin.update(t, cds, true, "b")
		equal(t, "b", other.sees(subscription("*"), "b"), "-")
	})
	removing(t, func(w *registryFixture, c *testClient, origin *feed) {
		origin.update(t, cds, true, "a")
		equal(t, "a", c.sees(subscription("*"), "a"), "1")
		now := *w.reg.settings()
		now.RemovalDelay = 0
		w.reg.Reconfigure(now)
		equal(t, "a, after removal_delay became 0", c.sees(subscription("*"), "a"), "-")
	})
}

// A NOT_FOUND is published once the deletion takes effect. A name that is no longer wanted does not
// become absent later (P65).
func TestP36_NamesThatWait(t *testing.T) {
	goesOn(t)
	bubble(t, func(o *Options) { o.RemovalDelay, o.Linger = 5*time.Second, time.Second }, func(w *registryFixture) {
		c := w.join("edge", eds).want("x", "y")
		c.alsoRoutes()
		c.woken()
		origin := w.feed("edge")
		origin.update(t, eds, false, "x=1", "y=1")
		c.acks(eds)
		err := &xds.ResourceError{Name: "x"}
		origin.hand(t, snapshot.Update{Type: eds, Origin: "origin", Received: time.Now(), Removed: []string{"x"}, Errors: []*xds.ResourceError{err}})
		sub := subscription("x", "y")
		equal(t, "x", c.sees(sub, "x"), "1")
		equal(t, "error of x", c.State().Snapshot(eds).Error(sub, "x"), nil)
		pass(5 * time.Second)
		equal(t, "x", c.sees(sub, "x"), "-")
		equal(t, "error of x", c.State().Snapshot(eds).Error(sub, "x"), err)
		origin.update(t, eds, false, "y")
		c.want("x")
		pass(2 * time.Second)
		c.want("x", "y")
		pass(5 * time.Second)
		equal(t, "y", c.sees(sub, "y"), "?")
	})
}
