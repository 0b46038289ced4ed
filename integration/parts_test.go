package integration

import (
	"context"
	"net"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/xds"

	"xdsrelay/internal/xdstest"
)

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
