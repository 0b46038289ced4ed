package xdstest

import (
	"bytes"
	"fmt"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Pack puts a message into an Any.
func Pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err) // of a message made here
	}
	return a
}

// Wire encodes a message as go-control-plane does.
func Wire(m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err) // of a message made here
	}
	return b
}

var overADS = &corev3.ConfigSource{ResourceApiVersion: corev3.ApiVersion_V3,
	ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}

// Cluster is a cluster whose endpoints come by EDS. Each n gives another content.
func Cluster(name string, n int) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ConnectTimeout:       durationpb.New(time.Duration(n+1) * time.Millisecond),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: overADS},
	}
}

// Endpoints is a load assignment with one loopback endpoint at each of these ports.
func Endpoints(name string, ports ...int) *endpointv3.ClusterLoadAssignment {
	la := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	group := &endpointv3.LocalityLbEndpoints{
		Locality:            &corev3.Locality{Region: "eu", Zone: "eu-1"},
		LoadBalancingWeight: wrapperspb.UInt32(100),
	}
	for _, p := range ports {
		group.LbEndpoints = append(group.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: Loopback(p)}}})
	}
	la.Endpoints = append(la.Endpoints, group)
	return la
}

// Loopback is the address of a port.
func Loopback(port int) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)}}}}
}

// RouterFilter is the last HTTP filter of a Manager.
func RouterFilter() *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: Pack(&routerv3.Router{})}}
}

// Manager is an HTTP connection manager whose routes come by RDS from a source, or over ADS if it
// is nil.
func Manager(routes string, source *corev3.ConfigSource) *hcmv3.HttpConnectionManager {
	if source == nil {
		source = overADS
	}
	return &hcmv3.HttpConnectionManager{
		StatPrefix:     "test",
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: routes, ConfigSource: source}},
		HttpFilters:    []*hcmv3.HttpFilter{RouterFilter()},
	}
}

// HTTPListener is a listener on a port of the kernel's choice.
func HTTPListener(name string, manager *hcmv3.HttpConnectionManager) *listenerv3.Listener {
	return &listenerv3.Listener{Name: name, Address: Loopback(0), FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{Name: "hcm", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: Pack(manager)}}}}}}
}

// Listener is a listener whose routes come by RDS. Each n gives another content.
func Listener(name, routes string, n int) *listenerv3.Listener {
	l := HTTPListener(name, Manager(routes, nil))
	l.StatPrefix = fmt.Sprint(n)
	return l
}

// APIListener is a listener that gRPC clients start from.
func APIListener(name, routes string) *listenerv3.Listener {
	return &listenerv3.Listener{Name: name, ApiListener: &listenerv3.ApiListener{ApiListener: Pack(Manager(routes, nil))}}
}

// RouteTo leads a path prefix to a cluster.
func RouteTo(prefix, cluster string) *routev3.Route {
	return &routev3.Route{
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: prefix}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}},
	}
}

// Routes lead everything to one cluster. Each n gives another content.
func Routes(name, cluster string, n int) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: fmt.Sprint("v", n), Domains: []string{"*"}, Routes: []*routev3.Route{RouteTo("/", cluster)}}}}
}

// ByType makes a resource of a type. Each n gives another content.
var ByType = map[string]func(name string, n int) types.Resource{
	resource.ClusterType:  func(name string, n int) types.Resource { return Cluster(name, n) },
	resource.EndpointType: func(name string, n int) types.Resource { return Endpoints(name, 1+n%65535, 1+n/65535) },
	resource.ListenerType: func(name string, n int) types.Resource { return Listener(name, name, n) },
	resource.RouteType:    func(name string, n int) types.Resource { return Routes(name, name, n) },
}

// Web is what an Envoy and a gRPC client need: listener "in" with routes "in" to cluster "web".
func Web(n int) []types.Resource {
	return []types.Resource{Cluster("web", n), Endpoints("web", 8000+n), Listener("in", "in", n), Routes("in", "web", n)}
}

// NamedAny is an encoded Any of a type. Its body has its name in field 1, and its content in field
// 100.
func NamedAny(url, name, content string) []byte {
	body := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
	body = protowire.AppendString(protowire.AppendTag(body, 100, protowire.BytesType), content)
	wire := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), url)
	return protowire.AppendBytes(protowire.AppendTag(wire, 2, protowire.BytesType), body)
}

// ContentOf returns the content of a NamedAny.
func ContentOf(wire []byte) string {
	tag := protowire.AppendTag(nil, 100, protowire.BytesType)
	content, _ := protowire.ConsumeString(wire[bytes.LastIndex(wire, tag)+len(tag):])
	return content
}
