package orchestrator

import (
	"testing"
	"time"
)

// A deletion waits while a stream of clusters also has listeners or routes, for the delay that is
// configured now. content.TestP36_Removals has more.
func TestP36_DeletionWaitsForRoutes(t *testing.T) {
	goesOn(t)
	for what, c := range map[string]struct {
		then func(w *registryFixture, routes *testClient)
		wait time.Duration
	}{
		"takes effect in time":              {func(*registryFixture, *testClient) {}, 5 * time.Second},
		"no stream is left that has routes": {func(_ *registryFixture, routes *testClient) { routes.leave() }, 0},
		"removal_delay becomes 0": {func(w *registryFixture, _ *testClient) {
			w.reconfigured(func(s *Settings) { s.RemovalDelay = 0 })
		}, 0},
	} {
		bubble(t, func(o *Options) { o.RemovalDelay = 5 * time.Second }, func(w *registryFixture) {
			routes, other := w.join("edge", cds).want("*"), w.join("edge", cds).want("*")
			routes.alsoRoutes()
			origin := w.feed("edge")
			for _, name := range []string{"a", "b"} {
				origin.update(t, cds, true, name+"=1")
				routes.acks(cds)
			}
			origin.update(t, cds, true, "a")
			equal(t, what+": a at first", other.sees(subscription("*"), "a"), "1")
			other.woken()
			c.then(w, routes)
			if c.wait > 0 {
				pass(c.wait - 1)
				equal(t, what+": woken early", other.woken(), 0)
				pass(1)
			}
			equal(t, what+": woken", other.woken(), 1)
			equal(t, what+": a", other.sees(subscription("*"), "a"), "-")
		})
	}
}
