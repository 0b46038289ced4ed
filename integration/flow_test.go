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
