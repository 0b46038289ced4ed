//go:build linux

package main

import (
	"fmt"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// load is what is sent to whom. It is passed to every process of a run.
type load struct {
	Clients int `json:"clients"`
	// Bytes of the response to a change, without framing, to a few in a hundred.
	Bytes int `json:"bytes"`
	// Delta: the clients are incremental, and have so many Clusters, of which one
	// changes. Else a response holds all.
	Delta    bool `json:"delta,omitempty"`
	Clusters int  `json:"clusters,omitempty"`
	// Slim clusters have a name and nothing else.
	Slim bool `json:"slim,omitempty"`
	// Streams that a connection carries; 0: one.
	Streams int `json:"streams,omitempty"`
	// TLS is what connections are secured with; nil: nothing.
	TLS *secured `json:"tls,omitempty"`
}

// String is a load in words.
func (l load) String() string {
	what := fmt.Sprintf("One SotW CDS response of %d bytes", l.Bytes)
	if l.Delta {
		what = fmt.Sprintf("One of %d clusters, %d bytes in an incremental response,", l.Clusters, l.Bytes)
	}
	over := ""
	if l.TLS != nil {
		over = " over TLS"
	}
	each := "one stream and connection each"
	if l.Streams > 1 {
		each = fmt.Sprintf("%d streams a connection", l.Streams)
	}
	return fmt.Sprintf("%s to %d clients%s, %s", what, l.Clients, over, each)
}

// connections that the clients share.
func (l load) connections() int {
	each := max(l.Streams, 1)
	return (l.Clients + each - 1) / each
}

// size of the response of generation n.
func (l load) size(n int) int {
	if l.Delta && n == 0 {
		return l.Clusters * l.Bytes
	}
	return l.Bytes
}

// bytesPerCluster is what a cluster has at least, if the response is large
// enough for several: a hundred clusters are 100 KB.
const bytesPerCluster = 1000

// slimBytes is what a slim cluster has in a SotW response.
const slimBytes = 75

const (
	clusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

// clusters are those of generation n. From one generation to the next the
// first changes, and keeps its size; a SotW response has all of them.
func (l load) clusters(n int) []*clusterv3.Cluster {
	count := max(1, l.Bytes/bytesPerCluster)
	if l.Clusters > 0 {
		count = l.Clusters
	}
	out := make([]*clusterv3.Cluster, count)
	for i := range out {
		out[i] = l.cluster(i, count, 0)
	}
	out[0] = l.cluster(0, count, n)
	return out
}

func (l load) cluster(i, count, n int) *clusterv3.Cluster {
	if l.Slim {
		return &clusterv3.Cluster{Name: fmt.Sprintf("cluster-%06d", i), AltStatName: strconv.Itoa(n)}
	}
	c := &clusterv3.Cluster{
		Name:                 fmt.Sprintf("cluster-%06d", i),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
			ResourceApiVersion:    corev3.ApiVersion_V3,
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		}},
		ConnectTimeout: durationpb.New(1e9),
		LbPolicy:       clusterv3.Cluster_LEAST_REQUEST,
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
			MaxConnections: wrapperspb.UInt32(1024), MaxRequests: wrapperspb.UInt32(4096),
		}}},
		OutlierDetection: &clusterv3.OutlierDetection{Consecutive_5Xx: wrapperspb.UInt32(5), BaseEjectionTime: durationpb.New(30e9)},
		AltStatName:      fmt.Sprintf("generation-%09d", n),
	}
	// The Any around it has the type and two fields; a resource of a response
	// has a tag and a length before it.
	around := len(clusterType) + 12
	// The response has its type, too; in an incremental one a resource has its
	// name and a version beside it.
	room := (l.Bytes - len(clusterType) - 4) / count
	if l.Delta {
		room = l.Bytes - len(clusterType) - 4 - len(c.Name) - 40
	}
	if pad := room - proto.Size(c) - around; pad > 0 {
		c.AltStatName += strings.Repeat("x", pad)
	}
	return c
}

// body is the response of generation n without its nonce.
func (l load) body(n int) ([]byte, error) {
	if l.Delta {
		return l.deltaBody(n)
	}
	r := &discoveryv3.DiscoveryResponse{VersionInfo: fmt.Sprint(n), TypeUrl: clusterType}
	for _, c := range l.clusters(n) {
		a, err := anypb.New(c)
		if err != nil {
			return nil, err
		}
		r.Resources = append(r.Resources, a)
	}
	return proto.Marshal(r)
}

func (l load) deltaBody(n int) ([]byte, error) {
	r := &discoveryv3.DeltaDiscoveryResponse{SystemVersionInfo: fmt.Sprint(n), TypeUrl: clusterType}
	changed := l.clusters(n)
	if n > 0 {
		changed = changed[:1]
	}
	for _, c := range changed {
		a, err := anypb.New(c)
		if err != nil {
			return nil, err
		}
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: c.Name, Version: fmt.Sprint(n), Resource: a})
	}
	return proto.Marshal(r)
}

// assignments is the SotW response with the load assignments of all clusters, in
// generation n: each has ten endpoints.
func (l load) assignments(n int) ([]byte, error) {
	r := &discoveryv3.DiscoveryResponse{VersionInfo: fmt.Sprint(n), TypeUrl: endpointType}
	for i, c := range l.clusters(n) {
		las := &endpointv3.LocalityLbEndpoints{}
		for e := range 10 {
			las.LbEndpoints = append(las.LbEndpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
				Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
					SocketAddress: &corev3.SocketAddress{
						Address:       fmt.Sprintf("10.%d.%d.%d", i/256, i%256, e),
						PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(8000 + n)},
					},
				}}},
			}})
		}
		a, err := anypb.New(&endpointv3.ClusterLoadAssignment{ClusterName: c.Name, Endpoints: []*endpointv3.LocalityLbEndpoints{las}})
		if err != nil {
			return nil, err
		}
		r.Resources = append(r.Resources, a)
	}
	return proto.Marshal(r)
}

// nodeCluster is the node.cluster of all clients: they are one key to the
// relay, and one snapshot to go-control-plane.
const nodeCluster = "loadtest"
