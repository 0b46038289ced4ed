package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// from makes a client connect from another address than the others.
func from(address string) []grpc.DialOption {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, target string) (net.Conn, error) { return d.DialContext(ctx, "tcp", target) }),
	}
}

// A client over a limit is refused at once. The status shows whether the client or the relay is at
// the limit, and a counter names the limit. Connected clients are not affected. A peer below its
// own limit is accepted. A refused client is accepted once there is room.
func TestAdmission(t *testing.T) {
	t.Parallel()
	const elsewhere = "127.0.0.2"
	for _, tc := range []struct {
		limit string
		code  codes.Code
		keys  bool // each client has its own key
		peer  bool // the limit is per peer
	}{
		{limit: "streams", code: codes.Unavailable},
		{limit: "streams_per_peer", code: codes.ResourceExhausted, peer: true},
		{limit: "keys", code: codes.Unavailable, keys: true},
		{limit: "keys_per_peer", code: codes.ResourceExhausted, keys: true, peer: true},
	} {
		t.Run(tc.limit, func(t *testing.T) {
			t.Parallel()
			o := origin(t, xdstest.Linear)
			key := func(i int) string {
				if tc.keys {
					return fmt.Sprint("edge-", i)
				}
				return "edge"
			}
			put := func(n int) {
				for i := range 4 {
					o.Put(key(i), xdstest.Web(n)...)
				}
			}
			put(1)
			r := serve(t, o.Address, xdstest.Config{"downstream.limits." + tc.limit: 2})
			var in []*fleet.Client
			for i, v := range variants {
				c := client(t, r.Address, fleet.ClientConfig{Node: node("in-"+v.String(), key(i)), Variant: v, Behaviour: fleet.Envoy})
				waitFor(t, c, "what the origin has", hasAll(xdstest.Web(1)...))
				in = append(in, c)
			}
			_, streams := o.Streams()
			for i, v := range variants {
				before := r.Metric("refused_total", "reason", tc.limit)
				s := xdstest.OpenStream(t, r.Address, methods[v])
				s.Ask(node("one-more", key(2+i)), resource.ClusterType)
				s.WantEnd(tc.code)
				if n := r.Metric("refused_total", "reason", tc.limit); n != before+1 {
					t.Errorf("%s: %v were counted", v, n-before)
				}
			}
			if _, ever := o.Streams(); ever != streams {
				t.Errorf("the origin has %d streams for refused clients", ever-streams)
			}
			put(2)
			waitAll(t, in, "a change", hasAll(xdstest.Web(2)...))
			if tc.peer {
				for i, v := range variants {
					c := client(t, r.Address, fleet.ClientConfig{Node: node("else-"+v.String(), key(2+i)), Variant: v,
						Behaviour: fleet.Envoy, DialOptions: from(elsewhere), NoReconnect: true})
					waitFor(t, c, "what the origin has", hasAll(xdstest.Web(2)...))
				}
			}
			// Another client is refused and retries, until a client has left.
			for i, v := range variants {
				c := client(t, r.Address, fleet.ClientConfig{Node: node("late-"+v.String(), key(2+i)), Variant: v, Behaviour: fleet.Envoy})
				waitFor(t, c, "a refusal", func(c *fleet.Client) bool { return status.Code(errors.Unwrap(c.LastError())) == tc.code })
				in[i].Leave()
				waitFor(t, c, "what the origin has", hasAll(xdstest.Web(2)...))
			}
			oneStream(t, in...)
		})
	}
}

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
