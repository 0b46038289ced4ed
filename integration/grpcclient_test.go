package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
)

// caller calls a service continuously.
type caller struct {
	xdstest.Calls
	t         testing.TB
	forgiving atomic.Bool // it ignores the calls that ownRace explains
}

// bootstrapOf is a bootstrap configuration for gRPC's xDS client with a relay as the control plane.
func bootstrapOf(t testing.TB, relay string) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"xds_servers": []any{map[string]any{"server_uri": relay,
			"channel_creds": []any{map[string]any{"type": "insecure"}}, "server_features": []string{"xds_v3"}}},
		"node":                                   map[string]any{"id": "grpc-1", "cluster": "grpc"},
		"server_listener_resource_name_template": "server?xds.resource.listening_address=%s",
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// xdsResolver resolves xds targets with a relay as the control plane.
func xdsResolver(t testing.TB, relay string) resolver.Builder {
	t.Helper()
	b, err := xds.NewXDSResolverWithConfigForTesting(bootstrapOf(t, relay))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// dialXDS dials xds:///name until the test ends.
func dialXDS(t testing.TB, by resolver.Builder, name string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("xds:///"+name, grpc.WithResolvers(by), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// call dials xds:///name with a relay as the control plane, and calls until the test ends.
func call(t testing.TB, relay, name string) *caller {
	t.Helper()
	conn := dialXDS(t, xdsResolver(t, relay), name)
	c := &caller{t: t}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			c.once(ctx, grpc_health_v1.NewHealthClient(conn))
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		c.Check(t)
	})
	return c
}

func (c *caller) once(ctx context.Context, client grpc_health_v1.HealthClient) {
	rpc, cancel := context.WithTimeout(ctx, xdstest.Patience)
	defer cancel()
	var head metadata.MD
	_, err := client.Check(rpc, &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true), grpc.Header(&head))
	if ctx.Err() != nil || c.forgiving.Load() && ownRace(err) {
		return // the test has ended, or forgives it
	}
	c.Count(strings.Join(head.Get("backend"), " "), err)
}

func (c *caller) reaches(name string) { c.t.Helper(); c.Reach(c.t, name) }

func (c *caller) goesOn() { c.t.Helper(); c.GoOn(c.t) }

// ownRace reports whether an error comes from a race in grpc-go. Its channel takes the config
// selector of new routes before the balancer has their clusters. The old picker fails a call
// between the two with a status, even a call that waits for ready. It also happens to a client of
// the origin itself, so it says nothing about the relay.
func ownRace(err error) bool {
	s := status.Convert(err)
	return s.Code() == codes.Unavailable && strings.HasPrefix(s.Message(), "unknown cluster selected for RPC")
}

// grpc-go's own xDS client finds a service through the relay. It follows a change of endpoints and
// restarts of the origin and the relay, while calls go on. No call fails, except by ownRace.
func TestGRPCClient(t *testing.T) {
	t.Parallel()
	eachOrigin(t, func(t *testing.T, upstream, kind string) {
		blue, green := xdstest.StartGRPCBackend(t, "blue").Port, xdstest.StartGRPCBackend(t, "green").Port
		o := origin(t, kind)
		o.Put("grpc", serviceAt("greeter", blue)...)
		address := xdstest.Config{"upstream.variant": upstream, "downstream.address": xdstest.FreeAddress(t)}
		r := serve(t, o.Address, address)
		c := call(t, r.Address, "greeter")
		c.reaches("blue")

		o.Put("grpc", xdstest.Endpoints("greeter", green))
		c.reaches("green")

		o.Stop()
		c.goesOn()
		o.Put("grpc", xdstest.Endpoints("greeter", blue))
		o.Start()
		c.reaches("blue")

		r.Stop()
		c.goesOn() // with the resources that it has
		r = serve(t, o.Address, address)
		o.Put("grpc", xdstest.Endpoints("greeter", green))
		c.reaches("green")

		// The route changes to another cluster. Only at this change may a call fail, and only by
		// ownRace.
		c.forgiving.Store(true)
		o.Put("grpc", xdstest.Cluster("greeter-2", 1), xdstest.Endpoints("greeter-2", blue), xdstest.Routes("greeter", "greeter-2", 2))
		c.reaches("blue")
		if nacks := r.Metric("downstream_nacks_total"); nacks != 0 {
			t.Errorf("gRPC rejected %v responses", nacks)
		}
		xdstest.Eventually(t, "the client in /clients", xdstest.Holds(func() bool {
			for _, cl := range r.clients() {
				for _, typ := range cl.Types {
					if cl.Node == "grpc-1" && typ.Type == string(resource.EndpointType) && typ.State == "SYNCED" {
						return true
					}
				}
			}
			return false
		}))
	})
}

// A process has 150 xDS targets. grpc-go opens a connection to the relay for each. So all targets
// answer, whatever streams_per_connection is.
func TestGRPCClientManyTargets(t *testing.T) {
	t.Parallel()
	const targets = 150
	o := origin(t, xdstest.Snapshot)
	resources := serviceAt("target", xdstest.StartGRPCBackend(t, "blue").Port)
	for i := range targets {
		name := fmt.Sprintf("target-%d", i)
		resources = append(resources, xdstest.APIListener(name, name), xdstest.Routes(name, "target", 1))
	}
	o.Put("grpc", resources...)
	r := serve(t, o.Address, xdstest.Config{"downstream.limits.streams_per_connection": 1})
	by := xdsResolver(t, r.Address)
	ctx, cancel := context.WithTimeout(t.Context(), xdstest.Patience)
	defer cancel()
	var calls sync.WaitGroup
	for i := range targets {
		client := grpc_health_v1.NewHealthClient(dialXDS(t, by, fmt.Sprintf("target-%d", i)))
		calls.Go(func() {
			if _, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true)); err != nil {
				t.Errorf("target-%d: %v", i, err)
			}
		})
	}
	calls.Wait()
	if streams := r.Metric("downstream_streams"); streams != targets {
		t.Errorf("%v streams, want one for each of %d targets", streams, targets)
	}
	if refused := r.Metric("refused_total"); refused != 0 {
		t.Errorf("the relay refused %v streams", refused)
	}
}

// serviceAt returns the resources that gRPC needs to reach a service at a port.
func serviceAt(name string, port int) []types.Resource {
	return []types.Resource{xdstest.APIListener(name, name), xdstest.Routes(name, name, 1), xdstest.Cluster(name, 1), xdstest.Endpoints(name, port)}
}
