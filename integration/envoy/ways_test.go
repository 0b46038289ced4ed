package envoy

import (
	"slices"
	"testing"

	"xdsrelay/internal/xdstest"
)

// An Envoy gets resources of all types by each way, from SotW and delta origins
// with both kinds of caches. Requests through it reach the backends that the
// configuration names, also after a change of each type. It holds what the
// relay holds, rejects nothing, and nothing stays warming.
func TestWays(t *testing.T) {
	t.Parallel()
	for _, cache := range xdstest.Caches {
		t.Run(cache, func(t *testing.T) {
			each(t, allWays, func(t *testing.T, w way, variant string) {
				if cache == xdstest.Linear && !slices.ContainsFunc(adsWays, func(a way) bool { return a.name == w.name }) {
					long(t)
				}
				s := newScene(t, w, everythingOptions(w, cache, variant))
				e := playEverything(t, s)
				e.mustBeClean()
				e.mustHoldWhatTheRelayHolds(s.relay, "edge")
			})
		})
	}
}

// everythingOptions let an Envoy have secrets: over mTLS because of its
// identity, otherwise because the relay's configuration allows it.
func everythingOptions(w way, cache, variant string) sceneOptions {
	config := xdstest.Config{"downstream.long_poll": "1s"} // a poll's subscription lasts twice as long
	if !w.mtls {
		config["downstream.secrets"] = "allow"
	}
	return sceneOptions{origin: xdstest.OriginOptions{Cache: cache}, variant: variant, config: config}
}

// playEverything brings an Envoy from a configuration of all types to another.
func playEverything(t *testing.T, s *scene) *envoy {
	source := s.way.source
	x := newEverything(t, source)
	s.origin.Put("edge", x.resources...)
	e := s.envoy("envoy-1", func(b bootstrap) { withRuntime(t, b, source) })

	e.answers(ask{listener: "in"}, "green") // by the header of the filter
	e.answers(ask{listener: "in", path: "/runtime"}, "blue")
	e.answers(ask{listener: "scoped", header: [2]string{"x-scope", "blue"}}, "blue")
	e.answers(ask{listener: "scoped", header: [2]string{"x-scope", "green"}}, "green")
	e.answers(ask{listener: "tls", trust: x.ca}, "secure")
	e.answers(ask{listener: "plain"}, "blue")

	s.origin.Put("edge", xdstest.HTTPListener("plain", xdstest.Manager("moving", source)))
	e.answers(ask{listener: "plain"}, "green")
	s.origin.Put("edge", clusterOfService("moving", "moving-2", source))
	e.answers(ask{listener: "plain"}, "blue")
	s.origin.Put("edge", addHeader("off"))
	e.answers(ask{listener: "in"}, "blue")
	s.origin.Put("edge", runtimeResource(100))
	e.answers(ask{listener: "in", path: "/runtime"}, "green")
	s.origin.Put("edge", scope("blue", "all-green"))
	e.answers(ask{listener: "scoped", header: [2]string{"x-scope", "blue"}}, "green")
	x.rotate(t, s.origin)
	e.answers(ask{listener: "tls", trust: x.ca}, "secure")
	s.origin.Put("edge", endpoints("blue", xdstest.StartHTTPBackend(t, "moved")))
	e.answers(ask{listener: "in"}, "moved")
	s.origin.Put("edge", routes("secure", "green"))
	e.answers(ask{listener: "tls", trust: x.ca}, "green")
	return e
}
