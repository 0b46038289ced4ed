package integration

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
)

// eachCombination runs a test in all four combinations of the variants.
func eachCombination(t *testing.T, test func(t *testing.T, upstream string, v fleet.Variant)) {
	for _, up := range upstreams {
		for _, v := range variants {
			t.Run(fmt.Sprintf("%s-%s/ads", up, v), func(t *testing.T) { test(t, up, v) })
		}
	}
}

// P56: when the first origin dies the second serves, and when the first is back
// and has answered everything it serves again. Clients stay, and are sent what
// differs, once.
func TestP56_FailOverAndReturn(t *testing.T) {
	eachCombination(t, func(t *testing.T, upstream string, v fleet.Variant) {
		t.Parallel()
		first, second := newOrigin(t, linear), newOrigin(t, snapshot)
		const keys = 5
		for key := range keys {
			for o, only := range map[*origin]string{first: "only-first", second: "only-second"} {
				o.put(fmt.Sprint("edge-", key), append(web(1), cluster(only, 1), endpoints(only, 1))...)
			}
		}
		r := serve(t, first.addr, settings{"upstream.variant": upstream, "upstream.origins": origins(first.addr, second.addr)})
		var clients []*fleet.Client
		var count [keys]struct{ web, routes atomic.Int64 } // what was sent of what never changes
		for key := range keys {
			clients = append(clients, client(t, r.addr, fleet.ClientConfig{
				Node: node(fmt.Sprint("n-", key), fmt.Sprint("edge-", key)), Variant: v, Behaviour: fleet.Envoy,
				OnResponse: func(_ *fleet.Client, r fleet.Response) {
					switch r.Type {
					case xds.RouteType, xds.ListenerType:
						count[key].routes.Add(int64(r.Resources))
					case xds.EndpointType:
						count[key].web.Add(int64(r.Resources))
					}
				}}))
		}
		firsts := all(hasAll(append(web(1), cluster("only-first", 1))...), hasNot(xds.ClusterType, "only-second"))
		seconds := all(hasAll(append(web(1), cluster("only-second", 1))...), hasNot(xds.ClusterType, "only-first"))
		waitAll(t, clients, "what the first origin has", firsts)
		var routes, assignments [keys]int64
		for key := range keys {
			routes[key], assignments[key] = count[key].routes.Load(), count[key].web.Load()
		}

		first.stop()
		waitAll(t, clients, "what the second origin has", seconds)
		// A key that nobody used before is served at once.
		second.put("late", web(1)...)
		late := client(t, r.addr, fleet.ClientConfig{Node: node("late", "late"), Variant: v, Behaviour: fleet.Envoy, NoReconnect: true})
		waitFor(t, late, "what the second origin has for it", hasAll(web(1)...))

		first.put("late", web(1)...)
		first.start()
		waitAll(t, clients, "what the first origin has", firsts)
		until(t, "every key at the first origin", holds(func() bool {
			open, _ := first.count()
			left, _ := second.count()
			return open == keys+1 && left == 0
		}))
		for key, c := range clients {
			if n := c.Counters().Streams; n != 1 {
				t.Errorf("%s needed %d streams", c, n)
			}
			if n := count[key].routes.Load() - routes[key]; n != 0 {
				t.Errorf("%s was sent %d routes and listeners again", c, n)
			}
			// Those of the clusters that came and went (P37, and what Envoy asks for).
			if n := count[key].web.Load() - assignments[key]; v == fleet.Delta && n > 2 {
				t.Errorf("%s was sent %d load assignments", c, n)
			}
		}
		for text, n := range map[string]int{"level=WARN": 1, "origin is away": 1, "origin is back": 1} {
			if got := strings.Count(r.log.String(), text); got != n {
				t.Errorf("%q is told %d times", text, got)
			}
		}
		r.waitMetric(t, keys, "upstream_reconnects_total", "reason", "switched")
		r.waitMetric(t, keys+1, "upstream_reconnects_total", "reason", "returned")
	})
}

// P53: who comes first to a relay whose first origin is not there is served by
// the second, and not sent away in between.
func TestP53_TheFirstOriginIsNotThere(t *testing.T) {
	eachCombination(t, func(t *testing.T, upstream string, v fleet.Variant) {
		t.Parallel()
		second := newOrigin(t, linear)
		second.put("edge", web(1)...)
		r := serve(t, "", settings{"upstream.variant": upstream, "upstream.origins": origins(port(t), second.addr)})
		c := client(t, r.addr, fleet.ClientConfig{Node: node("n", "edge"), Variant: v, Behaviour: fleet.Envoy, NoReconnect: true})
		waitFor(t, c, "what the second origin has", hasAll(web(1)...))
	})
}

// P56: a type's removals apply once the origin that takes over has answered that
// type.
func TestP56_RemovalsWaitForTheAnswer(t *testing.T) {
	eachCombination(t, func(t *testing.T, upstream string, v fleet.Variant) {
		t.Parallel()
		first, second := newOrigin(t, linear), newFake(t)
		first.put("edge", cluster("a", 1), cluster("b", 1), routes("r", "a", 1))
		r := serve(t, "", settings{"upstream.variant": upstream, "upstream.origins": origins(first.addr, second.addr)})
		c := client(t, r.addr, fleet.ClientConfig{Node: node("n", "edge"), Variant: v, Behaviour: fleet.Raw,
			Subscribe: []fleet.Subscription{{Type: xds.ClusterType}, {Type: xds.RouteType, Names: []string{"r"}}}})
		waitFor(t, c, "what the first origin has", hasAll(cluster("a", 1), cluster("b", 1), routes("r", "a", 1)))
		first.stop()
		up := fleet.SotW
		if upstream == "delta" {
			up = fleet.Delta
		}
		second.waitRequest(t, "the question for routes", func(q request) bool { return q.Type == xds.RouteType })
		second.send(t, response(up, xds.RouteType, "1", entryOf(routes("r", "a", 2))))
		waitFor(t, c, "the second origin's routes", has(routes("r", "a", 2)))
		if !hasAll(cluster("a", 1), cluster("b", 1))(c) {
			t.Error("clusters went before the second origin spoke of any")
		}
		second.send(t, response(up, xds.ClusterType, "2", entryOf(cluster("a", 2))))
		waitFor(t, c, "the second origin's cluster", has(cluster("a", 2)))
		if upstream == "sotw" { // in incremental it has to be said
			waitFor(t, c, "the removal", hasNot(xds.ClusterType, "b"))
		}
	})
}

// P56: a directory may be the origin to turn to.
func TestP56_ADirectoryToTurnTo(t *testing.T) {
	eachCombination(t, func(t *testing.T, upstream string, v fleet.Variant) {
		t.Parallel()
		first := newOrigin(t, linear)
		first.put("edge", cluster("a", 1), cluster("b", 1))
		dir := t.TempDir()
		text := fmt.Sprintf(`{"version_info": "f", "resources": [{"@type": %q, "name": "file"}]}`, xds.ClusterType)
		if err := os.WriteFile(dir+"/clusters.json", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := serve(t, "", settings{"upstream.variant": upstream, "upstream.origins": origins(first.addr, "file:"+dir)})
		c := client(t, r.addr, fleet.ClientConfig{Node: node("n", "edge"), Variant: v, Behaviour: fleet.Raw,
			Subscribe: []fleet.Subscription{{Type: xds.ClusterType}}})
		names := func(names ...string) func(c *fleet.Client) bool {
			return func(c *fleet.Client) bool {
				held := c.Held(xds.ClusterType)
				for _, n := range names {
					if _, ok := held[n]; !ok {
						return false
					}
				}
				return len(held) == len(names)
			}
		}
		waitFor(t, c, "what the first origin has", names("a", "b"))
		first.stop()
		waitFor(t, c, "what the files say", names("file"))
		first.remove("edge", xds.ClusterType, "b")
		first.start()
		waitFor(t, c, "what the first origin has by now", names("a"))
		if n := c.Counters().Streams; n != 1 {
			t.Errorf("%s needed %d streams", c, n)
		}
	})
}
