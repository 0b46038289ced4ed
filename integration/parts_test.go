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
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/xds"

	internalxds "xdsrelay/internal/xds"
)

// go-control-plane in ordered ADS mode answers names only when all that a node
// has is asked for: what the relay asks for is the union of its clients'.
func TestP50_OrderedADSOrigin(t *testing.T) {
	for _, upstream := range upstreams {
		t.Run(upstream, func(t *testing.T) {
			t.Parallel()
			o := newOrderedOrigin(t)
			o.put("edge", listener("l", "r", 1), routes("r", "c", 1), cluster("c", 1), endpoints("c", 1))
			r := serve(t, o.addr, settings{"upstream.variant": upstream})
			clients := envoys(t, r.addr, "edge")
			waitAll(t, clients, "all there is", hasAll(listener("l", "r", 1), routes("r", "c", 1), cluster("c", 1), endpoints("c", 1)))

			// All at once: the route moves to another cluster, and the first goes.
			o.change("edge", nil, map[internalxds.TypeURL][]string{internalxds.ClusterType: {"c"}, internalxds.EndpointType: {"c"}})
			o.put("edge", routes("r", "d", 2), cluster("d", 1), endpoints("d", 2))
			waitAll(t, clients, "the move", all(hasAll(routes("r", "d", 2), cluster("d", 1), endpoints("d", 2)), hasNot(internalxds.ClusterType, "c")))
			if nacks := r.metric(t, "downstream_nacks_total"); nacks != 0 {
				t.Errorf("%v responses were refused", nacks)
			}
		})
	}
}

// go-control-plane's own SotW client, through the relay.
func TestControlPlaneClient(t *testing.T) {
	eachOrigin(t, func(t *testing.T, upstream, kind string) {
		o := newOrigin(t, kind)
		o.put("edge", cluster("a", 1))
		r := serve(t, o.addr, settings{"upstream.variant": upstream})
		conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c := sotwclient.NewADSClient(ctx, &corev3.Node{Id: "n", Cluster: "edge"}, string(internalxds.ClusterType))
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
		fetch(cluster("a", 1))
		if err := c.Ack(); err != nil {
			t.Fatal(err)
		}
		o.put("edge", cluster("b", 1))
		fetch(cluster("a", 1), cluster("b", 1))
		// Refused: not sent again by itself (P15), but all of it once it changes.
		if err := c.Nack("not yet"); err != nil {
			t.Fatal(err)
		}
		until(t, "the refusal", holds(func() bool { return r.metric(t, "downstream_nacks_total") == 1 }))
		o.put("edge", cluster("b", 2))
		fetch(cluster("a", 1), cluster("b", 2))
		if err := c.Ack(); err != nil {
			t.Fatal(err)
		}
	})
}

// serverListener is the Listener by which an xDS-enabled gRPC server at a port
// serves. n makes it differ.
func serverListener(port int, n string) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name:       "server?xds.resource.listening_address=" + (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}).String(),
		StatPrefix: n,
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)}}}},
		DefaultFilterChain: &listenerv3.FilterChain{Name: "all", Filters: []*listenerv3.Filter{{Name: "hcm",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(&hcmv3.HttpConnectionManager{
				StatPrefix: "server",
				RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
					Name: "inbound", VirtualHosts: []*routev3.VirtualHost{{Name: "all", Domains: []string{"*"},
						Routes: []*routev3.Route{{
							Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
							Action: &routev3.Route_NonForwardingAction{NonForwardingAction: &routev3.NonForwardingAction{}}}}}}}},
				HttpFilters: []*hcmv3.HttpFilter{{Name: "router",
					ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&routerv3.Router{})}}},
			})}}}},
	}
}

// A process that is both: grpc-go's xDS-enabled server and its xDS client, of
// one node, each with a stream of its own under the same key.
func TestGRPCServerAndClientOfOneNode(t *testing.T) {
	eachOrigin(t, func(t *testing.T, upstream, kind string) {
		o := newOrigin(t, kind)
		r := serve(t, o.addr, settings{"upstream.variant": upstream})

		l := listen(t)
		port := l.Addr().(*net.TCPAddr).Port
		modes := make(chan connectivity.ServingMode, 16)
		g, err := xds.NewGRPCServer(
			xds.BootstrapContentsForTesting(bootstrapOf(t, r.addr)),
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

		o.put("grpc", append(serviceAt("greeter", port), serverListener(port, "1"))...)
		c := call(t, r.addr, "greeter")
		c.reaches("served")
		o.put("grpc", serverListener(port, "2"))
		until(t, "two clients of one node", holds(func() bool {
			n := 0
			for _, cl := range r.clients() {
				if cl.Node == "grpc-1" {
					n++
				}
			}
			return n == 2
		}))
		if open, _ := o.count(); open != 1 {
			t.Errorf("the origin has %d streams", open)
		}
		c.goesOn()
		if nacks := r.metric(t, "downstream_nacks_total"); nacks != 0 {
			t.Errorf("gRPC refused %v responses", nacks)
		}
	})
}
