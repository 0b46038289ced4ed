package orchestrator

import (
	"testing"
	"time"

	"xdsrelay/internal/xds/snapshot"
)

const rdsType = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"

// Members with routes wait while clusters of the key are withheld, and are woken when that ends: when
// the last client was sent its clusters, or a second after the wildcard's answer was complete.
func TestP67_RoutesWaitForTheWildcard(t *testing.T) {
	for _, sent := range []bool{true, false} {
		bubble(t, nil, func(w *registryFixture) {
			clusters := w.join("web", cds)
			clusters.Withhold(snapshot.WithheldForWildcard)
			clusters.Subscribe(clusters.Intern(&snapshot.Subscription{Wildcard: true, Resumed: true}))
			other := w.join("web", cds)
			other.Withhold(snapshot.WithheldForWildcard)
			routes, elsewhere := w.join("web", rdsType), w.join("other", rdsType)
			f := w.feed("web")
			f.reached()
			equal(t, "withheld", routes.Withheld(), snapshot.WithheldForWildcard)
			equal(t, "withheld under another key", elsewhere.Withheld(), snapshot.NotWithheld)
			f.part(t, cds, "a")
			clusters.woken()
			routes.woken()
			pass(completeAfter)
			equal(t, "the client of clusters is woken", clusters.woken(), 1)
			equal(t, "routes are woken before clusters are sent", routes.woken(), 0)
			clusters.Withhold(snapshot.NotWithheld)
			equal(t, "routes are woken before the last client is sent clusters", routes.woken(), 0)
			if sent {
				other.leave() // it waits no longer either
			} else {
				pass(sendTime - time.Millisecond)
				equal(t, "withheld for a client that does not read", routes.Withheld(), snapshot.WithheldForWildcard)
				pass(time.Millisecond)
			}
			equal(t, "routes are woken", routes.woken(), 1)
			equal(t, "withheld", routes.Withheld(), snapshot.NotWithheld)
			late := w.join("web", cds)
			late.Withhold(snapshot.WithheldForWildcard) // until it is sent the complete answer
			if sent {
				pass(sendTime)
			}
			equal(t, "withheld again", routes.Withheld(), snapshot.NotWithheld)
		})
	}
}

// Clusters requested by name count for 5 s at most, also if their client does not read. A client that
// leaves counts no more.
func TestP67_RoutesWaitForNames(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		clusters, routes := w.join("web", cds), w.join("web", rdsType)
		clusters.Withhold(snapshot.WithheldForNames)
		equal(t, "withheld", routes.Withheld(), snapshot.WithheldForNames)
		clusters.leave()
		equal(t, "woken", routes.woken(), 1)
		equal(t, "withheld after it left", routes.Withheld(), snapshot.NotWithheld)

		clusters = w.join("web", cds)
		clusters.Withhold(snapshot.WithheldForNames)
		pass(4 * time.Second)
		equal(t, "withheld", routes.Withheld(), snapshot.WithheldForNames)
		routes.woken()
		clusters.Withhold(snapshot.NotWithheld)
		equal(t, "woken", routes.woken(), 1)
		clusters.Withhold(snapshot.WithheldForNames)
		pass(5 * time.Second)
		equal(t, "withheld after 5 s", routes.Withheld(), snapshot.NotWithheld)
	})
}

// A member that left is not woken, nor kept.
func TestP67_AMemberLeavesWhileItWaits(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		clusters, routes := w.join("web", cds), w.join("web", rdsType)
		clusters.Withhold(snapshot.WithheldForNames)
		routes.want("r")
		pass(time.Millisecond)
		routes.Withheld()
		g := routes.of().group
		routes.leave()
		g.withheld.mu.Lock()
		equal(t, "waiting", len(g.withheld.waiting), 0)
		g.withheld.mu.Unlock()
		clusters.Withhold(snapshot.NotWithheld)
		pass(time.Second)
	})
}
