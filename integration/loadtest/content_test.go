//go:build linux

package loadtest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// load describes the clients and what they receive. Servers in other processes get it too.
type load struct {
	Clients int
	// Bytes of the response to a change, without framing, accurate to a few percent.
	Bytes int
	// Delta: the clients use delta and have this many Clusters, of which one changes. Otherwise
	// each response has all of them.
	Delta    bool
	Clusters int
	// Slim clusters have a name and nothing else.
	Slim bool
	// Names is how many load assignments each client subscribes to; each of the Clusters has one.
	// With 0, clients subscribe to all clusters. Apart: no two clients share a name, except the one
	// that changes.
	Names int
	Apart bool
	// Asks replaces the names that clients subscribe to. The clients of a key take blocks of Names, and
	// the first client takes this block.
	Asks *int
	// Turns: the clusters change in turn, at a linear cache. Otherwise always the first one changes.
	Turns bool
	// Stamped load assignments change one after the other (see feed).
	Stamped bool
	// From is the number of the first client.
	From int
	// Keys that the clients are spread over, by node.cluster; 0: one. All change at once. Own: each
	// key has resources of its own, different from the others'.
	Keys int
	Own  bool
	// Slow clients are added that stop reading. Then there are this many Changes, at this interval.
	Slow    int
	Changes int
	Every   time.Duration
	// Streams per connection; 0: one.
	Streams int
	// TLS secures the connections. Cert and Key are the files of the server's certificate.
	TLS       bool
	Cert, Key string
}

// connections is their number.
func (l load) connections() int {
	each := max(l.Streams, 1)
	return (l.Clients + each - 1) / each
}

// size is the size of the response of generation n.
func (l load) size(n int) int {
	switch {
	case n > 0 || !l.Delta && l.Names == 0:
		return l.Bytes
	case l.Names > 0:
		return l.Names * l.Bytes
	}
	return l.Clusters * l.Bytes
}

// typ is the type that clients subscribe to.
func (l load) typ() string {
	if l.Names > 0 {
		return endpointType
	}
	return clusterType
}

// names are the names that client i subscribes to; nil: all.
func (l load) names(i int) []string {
	if l.Names == 0 {
		return nil
	}
	out := make([]string, 0, l.Names)
	if l.Asks != nil {
		for n := range l.Names {
			out = append(out, clusterName(*l.Asks+(i/max(l.Keys, 1)*l.Names+n)%(l.Clusters-*l.Asks)))
		}
		return out
	}
	out = append(out, clusterName(0)) // the one that changes
	at := 0
	if l.Apart {
		at = i * (l.Clusters - 1) / l.Clients
	}
	for n := range l.Names - 1 {
		out = append(out, clusterName(1+(at+n)%(l.Clusters-1)))
	}
	return out
}

func clusterName(i int) string { return fmt.Sprintf("cluster-%06d", i) }

// resource is a resource to send.
type resource struct {
	name string
	proto.Message
}

// changed is the cluster that changes in generation n.
func (l load) changed(n int) int {
	if l.Turns {
		return n % l.count()
	}
	return 0
}

// resources are the origin's resources in generation n. From one generation to the next the first
// one changes, and keeps its size.
func (l load) resources(n int) []resource {
	out := make([]resource, l.count())
	for i := range out {
		out[i] = l.resource(i, 0)
	}
	out[0] = l.resource(0, n)
	return out
}

// resource is cluster i in generation n.
func (l load) resource(i, n int) resource {
	if l.Names > 0 {
		return resource{clusterName(i), l.assignment(i, n)}
	}
	return resource{clusterName(i), l.cluster(i, l.count(), n)}
}

// answer is the content of the response of generation n. The first one, with names, is the first
// client's.
func (l load) answer(n int) []resource {
	switch {
	case n > 0 && (l.Delta || l.Names > 0):
		return []resource{l.resource(0, n)}
	case l.Names > 0:
		out := make([]resource, l.Names)
		for i := range out {
			out[i] = l.resource(i, n)
		}
		return out
	}
	return l.resources(n)
}

// endpointBytes is the size of one endpoint of an assignment.
const endpointBytes = 23

// assignment is the load assignment of cluster i in generation n.
func (l load) assignment(i, n int) *endpointv3.ClusterLoadAssignment {
	room := l.Bytes - len(endpointType) - len(clusterName(i)) - 12
	if l.Delta {
		room -= len(endpointType) + len(clusterName(i)) + 20
	}
	las := &endpointv3.LocalityLbEndpoints{}
	for e := range max(1, room/endpointBytes) {
		las.LbEndpoints = append(las.LbEndpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
				SocketAddress: &corev3.SocketAddress{
					Address:       fmt.Sprintf("10.%d.%d.%d", i/256, i%256, e%256),
					PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(8000 + n)},
				},
			}}},
		}})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: clusterName(i), Endpoints: []*endpointv3.LocalityLbEndpoints{las}}
}

// bytesPerCluster is the minimal size of a cluster, if the response is large enough for several: a
// hundred clusters are 100 KB.
const bytesPerCluster = 1000

// slimBytes is the size of a slim cluster in a SotW response.
const slimBytes = 75

const (
	clusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

// count is how many clusters the origin has.
func (l load) count() int {
	if l.Clusters > 0 {
		return l.Clusters
	}
	return max(1, l.Bytes/bytesPerCluster)
}

func (l load) cluster(i, count, n int) *clusterv3.Cluster {
	if l.Slim {
		return &clusterv3.Cluster{Name: clusterName(i), AltStatName: strconv.Itoa(n)}
	}
	c := &clusterv3.Cluster{
		Name:                 clusterName(i),
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
	// The Any around it has the type and two fields. A resource of a response has a tag and a
	// length before it.
	around := len(clusterType) + 12
	// The response has its type too. In delta each resource has its name and version beside it.
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
func (l load) body(t testing.TB, n int) []byte {
	sotw := &discoveryv3.DiscoveryResponse{VersionInfo: fmt.Sprint(n), TypeUrl: l.typ()}
	delta := &discoveryv3.DeltaDiscoveryResponse{SystemVersionInfo: fmt.Sprint(n), TypeUrl: l.typ()}
	for _, c := range l.answer(n) {
		a, err := anypb.New(c.Message)
		if err != nil {
			t.Fatal(err)
		}
		sotw.Resources = append(sotw.Resources, a)
		delta.Resources = append(delta.Resources, &discoveryv3.Resource{Name: c.name, Version: fmt.Sprint(n), Resource: a})
	}
	var r proto.Message = sotw
	if l.Delta {
		r = delta
	}
	b, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// nodeCluster is the node.cluster of all clients if there is one key. They are one key to the
// relay, and one snapshot to go-control-plane.
const nodeCluster = "loadtest"

// nodeCluster is the node.cluster of client i.
func (l load) nodeCluster(i int) string {
	if l.Keys < 1 {
		return nodeCluster
	}
	return fmt.Sprintf("%s-%05d", nodeCluster, i%l.Keys)
}
