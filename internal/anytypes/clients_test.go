package anytypes_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/proto"

	"xdsrelay/config"
)

// relayPort is the default port of downstream.address.
const relayPort = 15010

// Before an Envoy starts without its resources, the relay serves what is stored or refuses the stream.
func TestP53_EnvoysWaitLongerThanTheRelay(t *testing.T) {
	relay := config.Default().Upstream.FirstAnswerTimeout
	for _, file := range []string{"envoy-sotw.yaml", "envoy-delta.yaml", "envoy-mtls.yaml", "envoy-replicas.yaml", "envoy-types.yaml", "envoy-rest.yaml"} {
		b := new(bootstrapv3.Bootstrap)
		readFile(t, "../../config/clients/"+file, b)
		for _, c := range []*corev3.ConfigSource{b.DynamicResources.GetCdsConfig(), b.DynamicResources.GetLdsConfig()} {
			// A few seconds are for the stream to another relay.
			if got := c.GetInitialFetchTimeout().AsDuration(); got < relay+3*time.Second {
				t.Errorf("%s: initial_fetch_timeout is %s; the relay needs %s", file, got, relay)
			}
		}
	}
}

// The Envoy samples are valid bootstraps, use the relay's default port, and have what a fleet
// needs: keepalives on both layers, and a connection for each stream.
func TestEnvoyBootstraps(t *testing.T) {
	for file, variant := range map[string]corev3.ApiConfigSource_ApiType{
		"envoy-sotw.yaml":     corev3.ApiConfigSource_GRPC,
		"envoy-delta.yaml":    corev3.ApiConfigSource_DELTA_GRPC,
		"envoy-mtls.yaml":     corev3.ApiConfigSource_DELTA_GRPC,
		"envoy-replicas.yaml": corev3.ApiConfigSource_DELTA_GRPC,
	} {
		t.Run(file, func(t *testing.T) {
			b := new(bootstrapv3.Bootstrap)
			readFile(t, "../../config/clients/"+file, b)
			validate(t, file, b)

			if b.Node.GetId() == "" || b.Node.GetCluster() == "" {
				t.Error("the node has no id or no cluster")
			}
			ads := b.DynamicResources.GetAdsConfig()
			if ads.GetApiType() != variant || ads.GetTransportApiVersion() != corev3.ApiVersion_V3 {
				t.Errorf("ADS is %v %v", ads.GetApiType(), ads.GetTransportApiVersion())
			}
			if b.DynamicResources.GetCdsConfig().GetAds() == nil || b.DynamicResources.GetLdsConfig().GetAds() == nil {
				t.Error("clusters or listeners do not come over ADS")
			}
			clusters := b.StaticResources.GetClusters()
			if len(clusters) != 1 || len(ads.GetGrpcServices()) != 1 ||
				ads.GrpcServices[0].GetEnvoyGrpc().GetClusterName() != clusters[0].Name {
				t.Fatal("ADS does not name the one static cluster")
			}
			relay := clusters[0]
			at := relay.LoadAssignment.Endpoints[0].LbEndpoints[0].GetEndpoint().Address.GetSocketAddress()
			host := "127.0.0.1"
			if relay.GetType() == clusterv3.Cluster_STRICT_DNS {
				host = "relay.xds.svc.cluster.local"
			}
			if at.Address != host || at.GetPortValue() != relayPort {
				t.Errorf("the relay is looked for at %s:%d", at.Address, at.GetPortValue())
			}
			if relay.GetUpstreamConnectionOptions().GetTcpKeepalive() == nil {
				t.Error("no TCP keepalive")
			}
			options := new(httpv3.HttpProtocolOptions)
			if err := relay.TypedExtensionProtocolOptions["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"].UnmarshalTo(options); err != nil {
				t.Fatal(err)
			}
			if got := options.GetCommonHttpProtocolOptions().GetMaxRequestsPerConnection().GetValue(); got != 1 {
				t.Errorf("max_requests_per_connection is %d", got)
			}
			ping := options.GetExplicitHttpConfig().GetHttp2ProtocolOptions().GetConnectionKeepalive()
			if every := ping.GetInterval().AsDuration(); every < 10*time.Second || ping.GetTimeout() == nil {
				t.Errorf("pings every %v, timeout %v; the relay refuses more than one in 10s", every, ping.GetTimeout())
			}
		})
	}
}

// The sample without ADS is a valid bootstrap, and its cluster "relay" equals that of the ADS
// samples.
func TestEnvoyTypesBootstrap(t *testing.T) {
	const file = "envoy-types.yaml"
	b, ads := new(bootstrapv3.Bootstrap), new(bootstrapv3.Bootstrap)
	readFile(t, "../../config/clients/"+file, b)
	readFile(t, "../../config/clients/envoy-sotw.yaml", ads)
	validate(t, file, b)
	if !proto.Equal(b.GetStaticResources(), ads.GetStaticResources()) {
		t.Error("its static resources are not those of envoy-sotw.yaml")
	}
	for _, source := range []*corev3.ConfigSource{b.GetDynamicResources().GetCdsConfig(), b.GetDynamicResources().GetLdsConfig()} {
		api := source.GetApiConfigSource()
		if api.GetApiType() != corev3.ApiConfigSource_GRPC || api.GetTransportApiVersion() != corev3.ApiVersion_V3 ||
			len(api.GetGrpcServices()) != 1 || api.GrpcServices[0].GetEnvoyGrpc().GetClusterName() != "relay" {
			t.Errorf("%v", api)
		}
	}
}

// The sample for REST is a valid bootstrap. It polls the port that its comment tells the relay to
// open, with a longer timeout than the relay's wait.
func TestEnvoyRESTBootstrap(t *testing.T) {
	const file = "envoy-rest.yaml"
	text, err := os.ReadFile("../../config/clients/" + file)
	if err != nil {
		t.Fatal(err)
	}
	b := new(bootstrapv3.Bootstrap)
	readFile(t, "../../config/clients/"+file, b)
	validate(t, file, b)
	relay := b.GetStaticResources().GetClusters()[0]
	at := relay.GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress()
	if want := fmt.Sprintf("downstream.rest_address: %s:%d\n", at.GetAddress(), at.GetPortValue()); !bytes.Contains(text, []byte(want)) {
		t.Errorf("it does not say %q", want)
	}
	for _, source := range []*corev3.ConfigSource{b.GetDynamicResources().GetCdsConfig(), b.GetDynamicResources().GetLdsConfig()} {
		api := source.GetApiConfigSource()
		if api.GetApiType() != corev3.ApiConfigSource_REST || api.GetTransportApiVersion() != corev3.ApiVersion_V3 ||
			len(api.GetClusterNames()) != 1 || api.ClusterNames[0] != relay.GetName() || api.GetRefreshDelay() == nil {
			t.Errorf("%v", api)
		}
		if wait := api.GetRequestTimeout().AsDuration(); wait <= config.Default().Downstream.LongPoll {
			t.Errorf("it waits for %v, while the relay holds a poll for %v", wait, config.Default().Downstream.LongPoll)
		}
	}
}

// A gRPC process with the sample as its bootstrap resolves and calls the demo's service by
// grpc-go's own xDS client.
func TestGRPCBootstrapResolvesDemo(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	sample, err := os.ReadFile("../../config/clients/grpc.json")
	if err != nil {
		t.Fatal(err)
	}
	const relay = `"127.0.0.1:15010"`
	if bytes.Count(sample, []byte(relay)) != 1 {
		t.Fatalf("the sample does not name the relay at %s", relay)
	}

	backend := grpc.NewServer()
	healthpb.RegisterHealthServer(backend, health.NewServer())
	backendAt := serve(t, backend)

	d := readDemo(t, demos[1])
	// The only change to the demo: the port of the service.
	greeter := d.assignments["greeter"]
	greeter.Endpoints = greeter.Endpoints[:1]
	greeter.Endpoints[0].LbEndpoints = []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
		Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
			SocketAddress: &corev3.SocketAddress{
				Address:       "127.0.0.1",
				PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(backendAt.Port)},
			}}}}}}}
	snapshot, err := cache.NewSnapshot("1", map[resource.Type][]types.Resource{
		resource.ListenerType: {d.listeners["demo.example"]},
		resource.RouteType:    {d.routes["demo.example"]},
		resource.ClusterType:  {d.clusters["greeter"]},
		resource.EndpointType: {greeter},
	})
	if err != nil {
		t.Fatal(err)
	}
	held := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
	if err := held.SetSnapshot(ctx, "grpc-1", snapshot); err != nil {
		t.Fatal(err)
	}
	origin := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(origin, server.NewServer(ctx, held, nil))
	originAt := serve(t, origin)

	resolver, err := xds.NewXDSResolverWithConfigForTesting(
		bytes.Replace(sample, []byte(relay), []byte(`"`+originAt.String()+`"`), 1))
	if err != nil {
		t.Fatalf("grpc.json: %v", err)
	}
	conn, err := grpc.NewClient("xds:///demo.example",
		grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if answer.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("the demo's service is %v", answer.Status)
	}
}

// serve runs s on loopback until the test ends.
func serve(t *testing.T, s *grpc.Server) *net.TCPAddr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().(*net.TCPAddr)
}
