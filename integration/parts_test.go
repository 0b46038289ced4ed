package integration

import (
	"context"
	"net"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	sotwclient "github.com/envoyproxy/go-control-plane/pkg/client/sotw/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/xds"

	"xdsrelay/internal/xdstest"
)

// In ordered ADS mode go-control-plane answers names only when all of a node's names are
// subscribed. The relay subscribes to the union of its clients' names.
func TestP50_OrderedADSOrigin(t *testing.T) {
	t.Parallel()
	for _, upstream := range upstreams {
		t.Run(upstream, func(t *testing.T) {
			t.Parallel()
			o := xdstest.StartOrigin(t, xdstest.OriginOptions{Ordered: true})
			o.Put("edge", xdstest.Listener("l", "r", 1), xdstest.Routes("r", "c", 1), xdstest.Cluster("c", 1), xdstest.Endpoints("c", 1))
			r := serve(t, o.Address, xdstest.Config{"upstream.variant": upstream})
			clients := envoys(t, r.Address, "edge")
			waitAll(t, clients, "all there is", hasAll(xdstest.Listener("l", "r", 1), xdstest.Routes("r", "c", 1), xdstest.Cluster("c", 1), xdstest.Endpoints("c", 1)))

			// One change: the route moves to another cluster, and the first is removed.
			o.Change("edge", nil, map[string][]string{resource.ClusterType: {"c"}, resource.EndpointType: {"c"}})
			o.Put("edge", xdstest.Routes("r", "d", 2), xdstest.Cluster("d", 1), xdstest.Endpoints("d", 2))
			waitAll(t, clients, "the move", all(hasAll(xdstest.Routes("r", "d", 2), xdstest.Cluster("d", 1), xdstest.Endpoints("d", 2)), hasNot(resource.ClusterType, "c")))
			if nacks := r.Metric("downstream_nacks_total"); nacks != 0 {
				t.Errorf("%v responses were rejected", nacks)
			}
		})
	}
}

// go-control-plane's own SotW client, through the relay.
func TestControlPlaneClient(t *testing.T) {
	t.Parallel()
	eachOrigin(t, func(t *testing.T, upstream, kind string) {
		o := origin(t, kind)
		o.Put("edge", xdstest.Cluster("a", 1))
		r := serve(t, o.Address, xdstest.Config{"upstream.variant": upstream})
		conn, err := grpc.NewClient(r.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}()
		ctx, cancel := context.WithTimeout(context.Background(), xdstest.Patience)
		defer cancel()
		c := sotwclient.NewADSClient(ctx, &corev3.Node{Id: "n", Cluster: "edge"}, string(resource.ClusterType))
		if err := c.InitConnect(conn); err != nil {
			t.Fatal(err)
		}
		fetch := func(want ...*clusterv3.Cluster) {
			t.Helper()
			got, err := c.Fetch()
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Resources) != len(want) {
				t.Fatalf("fetched %v, want %v", got.Resources, want)
			}
			for i, w := range want {
				if string(got.Resources[i].Value) != string(marshal(w)) {
					t.Errorf("resource %d is %v, want %v", i, got.Resources[i], w)
				}
			}
		}
		fetch(xdstest.Cluster("a", 1))
		if err := c.Ack(); err != nil {
			t.Fatal(err)
		}
		o.Put("edge", xdstest.Cluster("b", 1))
		fetch(xdstest.Cluster("a", 1), xdstest.Cluster("b", 1))
		// The rejected response is not sent again by itself (P15), but as a whole once it changes.
		if err := c.Nack("not yet"); err != nil {
			t.Fatal(err)
		}
		xdstest.Eventually(t, "the NACK", xdstest.Holds(func() bool { return r.Metric("downstream_nacks_total") == 1 }))
		o.Put("edge", xdstest.Cluster("b", 2))
		fetch(xdstest.Cluster("a", 1), xdstest.Cluster("b", 2))
		if err := c.Ack(); err != nil {
			t.Fatal(err)
		}
	})
}

// serverListener is the Listener of an xDS-enabled gRPC server at a port. n makes it differ.
func serverListener(port int, n string) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name:       "server?xds.resource.listening_address=" + (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}).String(),
		StatPrefix: n,
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)}}}},
		DefaultFilterChain: &listenerv3.FilterChain{Name: "all", Filters: []*listenerv3.Filter{{Name: "hcm",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: xdstest.Pack(&hcmv3.HttpConnectionManager{
				StatPrefix: "server",
				RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
					Name: "inbound", VirtualHosts: []*routev3.VirtualHost{{Name: "all", Domains: []string{"*"},
						Routes: []*routev3.Route{{
							Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
							Action: &routev3.Route_NonForwardingAction{NonForwardingAction: &routev3.NonForwardingAction{}}}}}}}},
				HttpFilters: []*hcmv3.HttpFilter{{Name: "router",
					ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: xdstest.Pack(&routerv3.Router{})}}},
			})}}}},
	}
}

// A process may be an xDS-enabled gRPC server and an xDS client, with one node. Each has its own
// stream under the same key.
func TestGRPCServerAndClientOfOneNode(t *testing.T) {
	t.Parallel()
	eachOrigin(t, func(t *testing.T, upstream, kind string) {
		o := origin(t, kind)
		r := serve(t, o.Address, xdstest.Config{"upstream.variant": upstream})

		l := xdstest.Listen(t)
		port := l.Addr().(*net.TCPAddr).Port
		modes := make(chan connectivity.ServingMode, 16)
		g, err := xds.NewGRPCServer(
			xds.BootstrapContentsForTesting(bootstrapOf(t, r.Address)),
			xds.ServingModeCallback(func(_ net.Addr, a xds.ServingModeChangeArgs) { modes <- a.Mode }),
			grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
				if err := grpc.SetHeader(ctx, metadata.Pairs("backend", "served")); err != nil {
					return nil, err
				}
				return next(ctx, req)
			}))
		if err != nil {
			t.Fatal(err)
		}
		grpc_health_v1.RegisterHealthServer(g, health.NewServer())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = g.Serve(l) // ended by Stop
		}()
		t.Cleanup(func() { g.Stop(); <-done })

		o.Put("grpc", append(serviceAt("greeter", port), serverListener(port, "1"))...)
		c := call(t, r.Address, "greeter")
		c.reaches("served")
		o.Put("grpc", serverListener(port, "2"))
		xdstest.Eventually(t, "two clients of one node", xdstest.Holds(func() bool {
			n := 0
			for _, cl := range r.clients() {
				if cl.Node == "grpc-1" {
					n++
				}
			}
			return n == 2
		}))
		if open, _ := o.Streams(); open != 1 {
			t.Errorf("the origin has %d streams", open)
		}
		c.goesOn()
		if nacks := r.Metric("downstream_nacks_total"); nacks != 0 {
			t.Errorf("gRPC rejected %v responses", nacks)
		}
	})
}
