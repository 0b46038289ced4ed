package integration

import (
	"fmt"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// eachOrigin runs a test for both upstream variants with both kinds of cache.
func eachOrigin(t *testing.T, test func(t *testing.T, upstream, kind string)) {
	for _, up := range upstreams {
		for _, kind := range xdstest.Caches {
			t.Run(up+"/"+kind, func(t *testing.T) {
				t.Parallel()
				test(t, up, kind)
			})
		}
	}
}

// An origin's resources and changes reach Envoys of both variants. P60: all four combinations give
// the same result. P50: each key has one stream.
func TestP60_FlowInAllCombinations(t *testing.T) {
	t.Parallel()
	eachOrigin(t, func(t *testing.T, upstream, kind string) {
		o := origin(t, kind)
		for _, key := range []string{"edge", "core"} {
			o.Put(key, xdstest.Web(1)...)
		}
		r := serve(t, o.Address, xdstest.Config{"upstream.variant": upstream})
		edge := envoys(t, r.Address, "edge")
		core := envoys(t, r.Address, "core")
		everyone := append(edge, core...)
		waitAll(t, everyone, "what the origin has", hasAll(xdstest.Web(1)...))

		o.Put("edge", xdstest.Web(2)...)
		waitAll(t, edge, "a change", hasAll(xdstest.Web(2)...))

		api := xdstest.Cluster("api", 1)
		o.Put("edge", api, xdstest.Endpoints("api", 9000))
		waitAll(t, edge, "an addition", hasAll(api, xdstest.Endpoints("api", 9000)))

		o.Remove("edge", resource.ClusterType, "api")
		waitAll(t, edge, "a removal", hasNot(resource.ClusterType, "api"))
		waitAll(t, edge, "what the removed one referred to", hasNot(resource.EndpointType, "api"))
		waitAll(t, edge, "the rest", hasAll(xdstest.Web(2)...))

		waitAll(t, core, "another key", hasAll(xdstest.Web(1)...))
		for _, c := range core {
			if n := c.TypeCounters(resource.ClusterType).Responses; n != 1 {
				t.Errorf("%s had %d responses of clusters for the one state that its key had", c.ID(), n)
			}
		}
		if open, ever := o.Streams(); open != 2 || ever != 2 {
			t.Errorf("the origin has %d streams and had %d, want 2 for 2 keys", open, ever)
		}
		for _, k := range r.keys() {
			if !k.Upstream.Connected || k.Members == 0 {
				t.Errorf("/keys: %+v", k)
			}
		}
		if n := len(r.clients()); n != 4 {
			t.Errorf("/clients has %d, want 4", n)
		}
		if n := r.Metric("downstream_streams", "variant", "delta"); n != 2 {
			t.Errorf("metric: %v delta streams, want 2", n)
		}

		outer := serve(t, r.Address, xdstest.Config{"upstream.variant": upstream})
		edge = append(edge, envoys(t, outer.Address, "edge")...)
		o.Put("edge", xdstest.Web(3)...)
		waitAll(t, edge, "a change, also behind a relay in front of the relay", hasAll(xdstest.Web(3)...))
		o.Remove("edge", resource.ListenerType, "in")
		waitAll(t, edge, "a removal, likewise", hasNot(resource.ListenerType, "in"))
	})
}

// gRPC clients subscribe by name, and unsubscribe as references change. P51: they receive what they
// subscribe to and no more.
func TestP51_NamesFollowReferences(t *testing.T) {
	t.Parallel()
	eachOrigin(t, func(t *testing.T, upstream, kind string) {
		o := origin(t, kind)
		o.Put("grpc", xdstest.APIListener("svc", "svc"), xdstest.Routes("svc", "blue", 1), xdstest.Cluster("blue", 1), xdstest.Endpoints("blue", 1),
			xdstest.Cluster("green", 1), xdstest.Endpoints("green", 2), xdstest.APIListener("other", "other"))
		r := serve(t, o.Address, xdstest.Config{"upstream.variant": upstream})
		var clients []*fleet.Client
		for _, v := range variants {
			clients = append(clients, client(t, r.Address, fleet.ClientConfig{Node: node("g-"+v.String(), "grpc"),
				Variant: v, Behaviour: fleet.GRPC, Listener: "svc"}))
		}
		waitAll(t, clients, "what the listener names", hasAll(xdstest.Cluster("blue", 1), xdstest.Endpoints("blue", 1)))

		o.Put("grpc", xdstest.Routes("svc", "green", 2))
		waitAll(t, clients, "what the new routes name", all(hasAll(xdstest.Cluster("green", 1), xdstest.Endpoints("green", 2)),
			hasNot(resource.ClusterType, "blue")))
		for _, c := range clients {
			if n := c.Len(resource.ListenerType); n != 1 {
				t.Errorf("%s holds %d listeners, and subscribed to 1", c, n)
			}
		}
		// P52: blue is no longer wanted, and is unsubscribed at the origin after linger.
		xdstest.Eventually(t, "the end of unwanted names", xdstest.Holds(func() bool { return !r.wants("grpc", "CDS", 2) }))
	})
}

// wants reports whether a key has at least this many names of a type.
func (r *relay) wants(key, short string, names int) bool {
	for _, k := range r.keys() {
		for _, typ := range k.Types {
			if k.Key == key && typ.Short == short && typ.Names >= names {
				return true
			}
		}
	}
	return false
}

// An origin that allows 10 streams on a connection serves 50 keys.
func TestOriginWithFewStreamsPerConnection(t *testing.T) {
	t.Parallel()
	const keys, perConn = 50, 10
	for _, upstream := range upstreams {
		t.Run(upstream, func(t *testing.T) {
			t.Parallel()
			o := origin(t, xdstest.Linear, grpc.MaxConcurrentStreams(perConn))
			r := serve(t, o.Address, xdstest.Config{"upstream.variant": upstream, "upstream.streams_per_connection": perConn})
			var clients []*fleet.Client
			name := func(i int) string { return fmt.Sprint("key-", i) }
			for i := range keys {
				o.Put(name(i), xdstest.Cluster(name(i), i))
				clients = append(clients, client(t, r.Address, fleet.ClientConfig{Node: node(fmt.Sprint("n-", i), name(i)),
					Variant: variants[i%2], Behaviour: fleet.Raw, Subscribe: []fleet.Subscription{{Type: resource.ClusterType}}}))
			}
			for i, c := range clients {
				waitFor(t, c, "its key's cluster", has(xdstest.Cluster(name(i), i)))
				if n := c.Len(resource.ClusterType); n != 1 {
					t.Errorf("%s holds %d clusters", c, n)
				}
			}
			if open, ever := o.Streams(); open != keys || ever != keys {
				t.Errorf("the origin has %d streams and had %d, want %d", open, ever, keys)
			}
			if open, _ := o.Connections(); open != keys/perConn {
				t.Errorf("the origin has %d connections, want %d", open, keys/perConn)
			}
			// All of them receive updates.
			for i, c := range clients {
				changed := xdstest.Cluster(name(i), 1000+i)
				o.Put(name(i), changed)
				waitFor(t, c, "a change", has(changed))
			}
		})
	}
}
