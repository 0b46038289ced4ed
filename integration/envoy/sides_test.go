package envoy

import (
	"testing"

	"xdsrelay/internal/xdstest"
)

// An Envoy behind the relay ends with the same configuration and the same
// number of updates as one that asks the origin directly.
func TestDirect(t *testing.T) {
	t.Parallel()
	play := func(t *testing.T, s *scene) *envoy {
		s.origin.Put("edge", web(s.way.source, xdstest.StartHTTPBackend(t, "blue"))...)
		e := s.envoy("envoy-1", nil)
		e.reaches("in", "", "/", "blue")
		s.origin.Put("edge", endpoints("web", xdstest.StartHTTPBackend(t, "green")))
		e.reaches("in", "", "/", "green")
		return e
	}
	each(t, ways, func(t *testing.T, w way, variant string) {
		opts := sceneOptions{variant: variant}
		// Only the endpoints change.
		sideBySide(t, w, opts, play, repeats(w, opts, `cluster_manager\.cds|listener_manager\.lds|http\.test\.rds\.in`)...)
	})
}

// The same with resources of all types, with a change of each.
func TestDirectTypes(t *testing.T) {
	long(t)
	t.Parallel()
	for _, cache := range xdstest.Caches {
		t.Run(cache, func(t *testing.T) {
			each(t, allWays, func(t *testing.T, w way, variant string) {
				if w.rest && cache == xdstest.Linear {
					t.Skip("linear caches do not serve REST")
				}
				opts := everythingOptions(w, cache, variant)
				explained := repeats(w, opts, `cluster\.(blue|green|moving|secure)|cluster_manager\.cds|listener_manager\.lds|`+
					`http\.test\.rds\.(all-blue|all-green|in|moving|secure)|http\.test\.scoped_rds\.scopes|`+
					`extension_config_discovery\.http_filter\.lua|runtime|sds\.(backend-ca|server)`)
				if cache == xdstest.Linear && w.delta != (variant == "delta") {
					explained = append(explained, difference{item: "config dynamic_scoped_route_configs scopes",
						reason: "in SotW the linear cache sends only the changed scope; Envoy and the relay delete the others, " +
							"so what is lost depends on the variant that the origin speaks"})
				}
				sideBySide(t, w, opts, playEverything, explained...)
			})
		})
	}
}
