package integration

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// eachCombination runs a test in all four combinations of the variants.
func eachCombination(t *testing.T, test func(t *testing.T, upstream string, v fleet.Variant)) {
	for _, up := range upstreams {
		for _, v := range variants {
			t.Run(fmt.Sprintf("%s-%s/ads", up, v), func(t *testing.T) { test(t, up, v) })
		}
	}
}

// P56: when the first origin fails, the second serves. When the first is back and has answered
// every type, it serves again. Clients stay connected and receive differences once.
func TestP56_FailOverAndReturn(t *testing.T) {
	t.Parallel()
	eachCombination(t, func(t *testing.T, upstream string, v fleet.Variant) {
		t.Parallel()
		first, second := origin(t, xdstest.Linear), origin(t, xdstest.Snapshot)
		const keys = 5
		for key := range keys {
			for o, only := range map[*xdstest.Origin]string{first: "only-first", second: "only-second"} {
				o.Put(fmt.Sprint("edge-", key), append(xdstest.Web(1), xdstest.Cluster(only, 1), xdstest.Endpoints(only, 1))...)
			}
		}
		r := serve(t, first.Address, xdstest.Config{"upstream.variant": upstream, "upstream.origins": xdstest.Origins(first.Address, second.Address)})
		var clients []*fleet.Client
		var count [keys]struct{ web, routes atomic.Int64 } // how often unchanging resources were sent
		for key := range keys {
			clients = append(clients, client(t, r.Address, fleet.ClientConfig{
				Node: node(fmt.Sprint("n-", key), fmt.Sprint("edge-", key)), Variant: v, Behaviour: fleet.Envoy,
				OnResponse: func(_ *fleet.Client, r fleet.Response) {
					switch r.Type {
					case resource.RouteType, resource.ListenerType:
						count[key].routes.Add(int64(r.Resources))
					case resource.EndpointType:
						count[key].web.Add(int64(r.Resources))
					}
				}}))
		}
		firsts := all(hasAll(append(xdstest.Web(1), xdstest.Cluster("only-first", 1))...), hasNot(resource.ClusterType, "only-second"))
		seconds := all(hasAll(append(xdstest.Web(1), xdstest.Cluster("only-second", 1))...), hasNot(resource.ClusterType, "only-first"))
		waitAll(t, clients, "what the first origin has", firsts)
		var routes, assignments [keys]int64
		for key := range keys {
			routes[key], assignments[key] = count[key].routes.Load(), count[key].web.Load()
		}

		first.Stop()
		waitAll(t, clients, "what the second origin has", seconds)
		// A new key is served at once.
		second.Put("late", xdstest.Web(1)...)
		late := client(t, r.Address, fleet.ClientConfig{Node: node("late", "late"), Variant: v, Behaviour: fleet.Envoy, NoReconnect: true})
		waitFor(t, late, "what the second origin has for it", hasAll(xdstest.Web(1)...))

		first.Put("late", xdstest.Web(1)...)
		first.Start()
		waitAll(t, clients, "what the first origin has", firsts)
		xdstest.Eventually(t, "every key at the first origin", xdstest.Holds(func() bool {
			open, _ := first.Streams()
			left, _ := second.Streams()
			return open == keys+1 && left == 0
		}))
		for key, c := range clients {
			if n := c.Counters().Streams; n != 1 {
				t.Errorf("%s needed %d streams", c, n)
			}
			if n := count[key].routes.Load() - routes[key]; n != 0 {
				t.Errorf("%s was sent %d routes and listeners again", c, n)
			}
			// Load assignments of the clusters that were added and removed are sent (P37, and
			// requests of Envoy).
			if n := count[key].web.Load() - assignments[key]; v == fleet.Delta && n > 2 {
				t.Errorf("%s was sent %d load assignments", c, n)
			}
		}
		for text, n := range map[string]int{"level=WARN": 1, "origin is away": 1, "origin is back": 1} {
			if got := strings.Count(r.Log(), text); got != n {
				t.Errorf("%q is told %d times", text, got)
			}
		}
		r.WaitMetric(keys, "upstream_reconnects_total", "reason", "switched")
		r.WaitMetric(keys+1, "upstream_reconnects_total", "reason", "returned")
	})
}

// P53: the first client of a relay whose first origin is away is served by the second. It is not
// refused in between.
func TestP53_FirstOriginIsAway(t *testing.T) {
	t.Parallel()
	eachCombination(t, func(t *testing.T, upstream string, v fleet.Variant) {
		t.Parallel()
		second := origin(t, xdstest.Linear)
		second.Put("edge", xdstest.Web(1)...)
		r := serve(t, "", xdstest.Config{"upstream.variant": upstream, "upstream.origins": xdstest.Origins(xdstest.FreeAddress(t), second.Address)})
		c := client(t, r.Address, fleet.ClientConfig{Node: node("n", "edge"), Variant: v, Behaviour: fleet.Envoy, NoReconnect: true})
		waitFor(t, c, "what the second origin has", hasAll(xdstest.Web(1)...))
	})
}
