package grpcio

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"

	"xdsrelay/internal/xdstest"
)

// cluster is an EDS cluster with a connect timeout of 2 s.
func cluster(name string) *clusterv3.Cluster { return xdstest.Cluster(name, 1999) }

// endpoints is a load assignment with one backend.
func endpoints(cluster string, backend *xdstest.GRPCBackend) *endpointv3.ClusterLoadAssignment {
	return xdstest.Endpoints(cluster, backend.Port)
}

// service is what gRPC needs to reach a service: a listener and routes of its
// name, which lead to a cluster of that name.
func service(name string, backend *xdstest.GRPCBackend) []types.Resource {
	return []types.Resource{xdstest.APIListener(name, name), xdstest.Routes(name, name, 0), cluster(name), endpoints(name, backend)}
}
