package envoy

import (
	"fmt"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"

	"xdsrelay/internal/xdstest"
)

const runtimeTTL = 2 * time.Second

// runtimeScene is an Envoy whose runtime layer has a TTL and sends all requests
// to green. Without the layer they go to blue.
func runtimeScene(t *testing.T, w way, opts sceneOptions) (*scene, *envoy) {
	t.Helper()
	opts.origin.Heartbeat = runtimeTTL / 10
	s := newScene(t, w, opts)
	resources := []types.Resource{
		cluster("blue", w.source), endpoints("blue", xdstest.StartHTTPBackend(t, "blue")),
		cluster("green", w.source), endpoints("green", xdstest.StartHTTPBackend(t, "green")),
		xdstest.HTTPListener("in", xdstest.Manager("in", w.source)), routeConfig("in", runtimeRoutes("/")...)}
	if o, is := s.origin.Services.(*onDemandOrigin); is {
		o.put(append(resources, runtimeResource(100))...)
	} else {
		s.origin.Put("edge", resources...)
		s.origin.PutTTL("edge", runtimeResource(100), runtimeTTL)
	}
	e := s.envoy("envoy-1", func(b bootstrap) { withRuntime(t, b, w.source) })
	e.reaches("in", "", "/", "green")
	return s, e
}

// layerStays sends requests for d and fails if the layer goes meanwhile.
func (e *envoy) layerStays(d time.Duration) {
	e.t.Helper()
	for began := time.Now(); time.Since(began) < d; xdstest.Pause(e.t, 50*time.Millisecond) {
		if got, err := e.request("in", "", "/"); err != nil || got != "green" {
			e.t.Fatalf("after %v: answered by %q, error %v", time.Since(began), got, err)
		}
	}
}

// A runtime layer with a TTL stays while the origin sends heartbeats, and goes
// once the origin was away for the TTL. The delta origin is not go-control-plane,
// which sends no TTL in delta.
func TestRuntimeTTL(t *testing.T) {
	t.Parallel()
	each(t, []way{adsSotW, adsDelta, typesSotW, typesDelta, adsMTLS}, func(t *testing.T, w way, variant string) {
		if w.name != adsSotW.name && w.name != adsDelta.name || w.delta == (variant == "delta") {
			long(t) // `make test` plays the two in which the relay translates
		}
		opts := sceneOptions{variant: variant}
		if variant == "delta" {
			opts.origin = onDemandScene.origin
		}
		runtimeExpires(t, w, opts)
	})
}

// The same without a relay, in delta.
func TestRuntimeTTLDirectDelta(t *testing.T) {
	long(t)
	t.Parallel()
	runtimeExpires(t, adsDelta, sceneOptions{origin: onDemandScene.origin, direct: true})
}

func runtimeExpires(t *testing.T, w way, opts sceneOptions) {
	s, e := runtimeScene(t, w, opts)
	e.layerStays(runtimeTTL * 3 / 2)
	s.origin.Stop()
	stopped := time.Now()
	e.reaches("in", "", "/", "blue")
	if took := time.Since(stopped); took < runtimeTTL/2 {
		t.Errorf("the layer went %v after the origin", took)
	}
	e.mustBeClean()
}

// In delta, go-control-plane sends no TTL. A layer then stays, behind the relay
// as directly.
func TestRuntimeWithoutTTLInDelta(t *testing.T) {
	long(t)
	t.Parallel()
	for _, opts := range []sceneOptions{{variant: "delta"}, {direct: true}} {
		t.Run(fmt.Sprintf("direct=%v", opts.direct), func(t *testing.T) {
			t.Parallel()
			s, e := runtimeScene(t, adsDelta, opts)
			s.origin.Stop()
			e.layerStays(runtimeTTL * 3 / 2)
		})
	}
}

// A limit of Envoy 1.40: in SotW, heartbeats without a body do not renew a TTL.
// go-control-plane sends such heartbeats, so the layer goes although the origin
// is there. Behind the relay it stays (TestRuntimeTTL): to clients with the
// feature xds.config.resource-in-sotw alone, heartbeats have the body.
func TestRuntimeTTLDirectSotW(t *testing.T) {
	long(t)
	t.Parallel()
	_, e := runtimeScene(t, adsSotW, sceneOptions{direct: true})
	e.reaches("in", "", "/", "blue")
}
