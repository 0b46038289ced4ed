package integration

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// max_connection_age: grpc closes older connections, each at its own time. Clients reconnect, lose
// nothing, and do not receive again what they have.
func TestOldConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	const n = 20
	o := origin(t, xdstest.Linear)
	o.Put("edge", xdstest.Web(1)...)
	r := serve(t, o.Address, xdstest.Config{"downstream.max_connection_age": "1500ms"})
	var mu sync.Mutex
	opened, lived := make(map[*fleet.Client]time.Time), make(map[*fleet.Client]time.Duration)
	var clients []*fleet.Client
	for i := range n {
		clients = append(clients, client(t, r.Address, fleet.ClientConfig{Node: node(fmt.Sprint("n-", i), "edge"), Variant: variants[i%2],
			Behaviour: fleet.Envoy, OnStream: func(c *fleet.Client, err error) {
				mu.Lock()
				defer mu.Unlock()
				switch _, once := lived[c]; {
				case once:
				case err == nil:
					opened[c] = time.Now()
				default:
					lived[c] = time.Since(opened[c])
					if status.Code(errors.Unwrap(err)) != codes.Unavailable {
						t.Errorf("%s: ended with %v", c.ID(), err)
					}
				}
			}}))
	}
	waitAll(t, clients, "what the origin has", hasAll(xdstest.Web(1)...))
	waitAll(t, clients[:1], "the end of a stream", func(c *fleet.Client) bool { return c.Counters().Streams > 1 })
	o.Put("edge", xdstest.Web(2)...) // while other connections are yet to close, or reconnect
	waitAll(t, clients, "what changed", func(c *fleet.Client) bool { return c.Counters().Streams > 1 && hasAll(xdstest.Web(2)...)(c) })
	mu.Lock()
	defer mu.Unlock()
	shortest, longest := time.Hour, time.Duration(0)
	for _, d := range lived {
		shortest, longest = min(shortest, d), max(longest, d)
	}
	if len(lived) != n || longest-shortest < 60*time.Millisecond {
		t.Errorf("%d streams ended, after %v to %v, and should over 300ms", len(lived), shortest, longest)
	}
	for _, c := range clients {
		for _, typ := range []string{resource.ClusterType, resource.ListenerType, resource.RouteType, resource.EndpointType} {
			// The load assignment of a changed cluster is sent again (P37).
			if k := c.TypeCounters(xds.TypeURL(typ)); k.Removed != 0 || c.Variant() == fleet.Delta && typ != resource.EndpointType && k.Resends != 0 {
				t.Errorf("%s: of %s %d were removed, %d sent again", c, typ, k.Removed, k.Resends)
			}
		}
	}
}
