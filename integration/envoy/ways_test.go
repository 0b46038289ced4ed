package envoy

import (
	"testing"

	"xdsrelay/internal/xdstest"
)

// An Envoy gets listeners, routes, clusters and endpoints by each way, from
// SotW and delta origins. A request through it reaches the backend that the
// configuration names.
func TestWays(t *testing.T) {
	each(t, ways, func(t *testing.T, w way, variant string) {
		s := newScene(t, w, sceneOptions{variant: variant})
		s.origin.Put("edge", web(w.source, xdstest.StartHTTPBackend(t, "blue"))...)
		e := s.envoy("envoy-1", nil)
		e.reaches("in", "", "/", "blue")
		s.origin.Put("edge", endpoints("web", xdstest.StartHTTPBackend(t, "green")))
		e.reaches("in", "", "/", "green")
		e.mustBeClean()
	})
}
