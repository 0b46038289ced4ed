package orchestrator

import (
	"testing"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// resumes has the client request these names with state.
func (c *testClient) resumes(names ...string) {
	c.Request(c.Intern(&snapshot.Subscription{Names: xds.NewNameSet(names...), Resumes: true}))
}

const rdsType = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"

// Subscribers with routes wait until the wildcard of clusters is complete, and are woken then. It
// does not matter whether the clients of clusters read.
func TestP67_RoutesWaitForTheWildcard(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		clusters := w.join("web", cds)
		clusters.SetRoutesWait(snapshot.WildcardWait)
		clusters.Request(clusters.Intern(&snapshot.Subscription{Wildcard: true, Resumes: true}))
		routes, fresh, elsewhere := w.join("web", rdsType), w.join("web", rdsType), w.join("other", rdsType)
		routes.resumes("r")
		fresh.want("r")
		f := w.feed("web")
		f.reached()
		equal(t, "wait", routes.RoutesWait(), snapshot.WildcardWait)
		equal(t, "wait under another key", elsewhere.RoutesWait(), 0)
		f.part(t, cds, "a")
		clusters.woken()
		routes.woken()
		fresh.woken()
		pass(completeAfter - time.Millisecond)
		equal(t, "routes are woken early", routes.woken(), 0)
		equal(t, "wait", routes.RoutesWait(), snapshot.WildcardWait)
		pass(time.Millisecond)
		equal(t, "the client of clusters is woken", clusters.woken(), 1)
		equal(t, "routes are woken", routes.woken(), 1)
		equal(t, "routes without state are woken", fresh.woken(), 0)
		equal(t, "wait", routes.RoutesWait(), 0)
		w.join("web", cds).SetRoutesWait(snapshot.WildcardWait) // until it is sent the complete answer
		equal(t, "wait for a later client", routes.RoutesWait(), 0)
		clusters.SetRoutesWait(0)
		pass(time.Second)
		equal(t, "routes are woken again", routes.woken(), 0)
	})
}

// Clusters requested by name count for 5 s at most, also if their client does not read. A client
// that leaves counts no more.
func TestP67_RoutesWaitForNames(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		clusters, routes := w.join("web", cds), w.join("web", rdsType)
		routes.resumes("r")
		pass(time.Millisecond)
		routes.woken()
		clusters.SetRoutesWait(snapshot.NamesWait)
		equal(t, "wait", routes.RoutesWait(), snapshot.NamesWait)
		clusters.leave()
		equal(t, "woken", routes.woken(), 1)
		equal(t, "wait after it left", routes.RoutesWait(), 0)

		clusters, other := w.join("web", cds), w.join("web", cds)
		clusters.SetRoutesWait(snapshot.NamesWait)
		other.SetRoutesWait(snapshot.NamesWait)
		pass(4 * time.Second)
		equal(t, "wait", routes.RoutesWait(), snapshot.NamesWait)
		other.SetRoutesWait(0)
		pass(time.Millisecond)
		equal(t, "woken while one waits", routes.woken(), 0)
		clusters.SetRoutesWait(0)
		equal(t, "woken", routes.woken(), 1)
		clusters.SetRoutesWait(snapshot.NamesWait)
		pass(5 * time.Second)
		equal(t, "wait after 5 s", routes.RoutesWait(), 0)
	})
}
