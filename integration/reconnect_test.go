package integration

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// wantsEndpoints is a client of one load assignment.
func wantsEndpoints(t *testing.T, r *relay, id string, v fleet.Variant, name string) *fleet.Client {
	t.Helper()
	return client(t, r.Address, fleet.ClientConfig{Node: node(id, "edge"), Variant: v, Behaviour: fleet.Raw,
		Subscribe: []fleet.Subscription{{Type: xds.EndpointType, Names: []string{name}}}})
}

// P55: an origin that ends each stream after a while works, although nothing changed since the
// stream before. The key stays at it, and does not back off.
func TestP55_UpToDateReconnects(t *testing.T) {
	for _, upstream := range upstreams {
		for _, cache := range xdstest.Caches {
			t.Run(upstream+"/"+cache, func(t *testing.T) {
				t.Parallel()
				first := origin(t, cache, grpc.KeepaliveParams(keepalive.ServerParameters{
					MaxConnectionAge: 500 * time.Millisecond, MaxConnectionAgeGrace: 500 * time.Millisecond,
				}))
				second := origin(t, cache)
				first.Put("edge", xdstest.Endpoints("a", 1))
				second.Put("edge", xdstest.Endpoints("a", 2))
				r := serve(t, "", xdstest.Config{"upstream.variant": upstream, "upstream.origins": xdstest.Origins(first.Address, second.Address)})
				c := wantsEndpoints(t, r, "one", fleet.Delta, "a")
				waitFor(t, c, "what the first origin has", has(xdstest.Endpoints("a", 1)))
				xdstest.Eventually(t, "the fifth stream", func() error {
					if _, ever := first.Streams(); ever < 5 {
						return fmt.Errorf("%d streams", ever)
					}
					return nil
				})
				if _, ever := second.Streams(); ever > 0 {
					t.Errorf("the second origin had %d streams", ever)
				}
				if n := r.Metric("upstream_reconnects_total", "reason", "no_response"); n > 0 {
					t.Errorf("%v streams had no response", n)
				}
				if n := c.Counters().Responses; n != 1 {
					t.Errorf("the client received %d responses", n)
				}
			})
		}
	}
}

// P55: an origin comes back with other content under the same version number. New and old clients
// get the new content at once.
func TestP55_TheSameVersionAgain(t *testing.T) {
	for _, upstream := range upstreams {
		for _, cache := range xdstest.Caches {
			t.Run(upstream+"/"+cache, func(t *testing.T) {
				t.Parallel()
				o := origin(t, cache)
				o.Put("edge", xdstest.Endpoints("a", 1))
				r := serve(t, o.Address, xdstest.Config{"upstream.variant": upstream})
				early := wantsEndpoints(t, r, "early", fleet.SotW, "a")
				waitFor(t, early, "what the origin has", has(xdstest.Endpoints("a", 1)))
				version := early.Version(xds.EndpointType)
				o.Stop()
				o.Put("edge", xdstest.Endpoints("a", 2))
				o.Start()
				late := wantsEndpoints(t, r, "late", fleet.SotW, "a")
				waitAll(t, []*fleet.Client{early, late}, "what the origin has by now", has(xdstest.Endpoints("a", 2)))
				if got := late.Version(xds.EndpointType); upstream == "sotw" && got != version {
					t.Errorf("the origin's version is %q, want %q again", got, version)
				}
			})
		}
	}
}

// P55: names that are added later are answered.
func TestP55_NamesAddedLater(t *testing.T) {
	for _, upstream := range upstreams {
		for _, cache := range xdstest.Caches {
			t.Run(upstream+"/"+cache, func(t *testing.T) {
				t.Parallel()
				o := origin(t, cache)
				r := serve(t, o.Address, xdstest.Config{"upstream.variant": upstream})
				for i := range 5 {
					o.Put("edge", xdstest.Endpoints(fmt.Sprint("e-", i), 1+i))
				}
				for i := range 5 {
					c := wantsEndpoints(t, r, fmt.Sprint("n-", i), fleet.Delta, fmt.Sprint("e-", i))
					waitFor(t, c, "its load assignment", has(xdstest.Endpoints(fmt.Sprint("e-", i), 1+i)))
				}
			})
		}
	}
}
