package envoy

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"xdsrelay/internal/xdstest"
)

// cluster is an EDS cluster whose load assignment comes from source.
func cluster(name string, source *corev3.ConfigSource) *clusterv3.Cluster {
	c := xdstest.Cluster(name, 1999) // a connect timeout of 2 s
	c.EdsClusterConfig.EdsConfig = source
	return c
}

// endpoints is a load assignment with these backends.
func endpoints(cluster string, backends ...*xdstest.HTTPBackend) *endpointv3.ClusterLoadAssignment {
	var ports []int
	for _, b := range backends {
		ports = append(ports, b.Port)
	}
	return xdstest.Endpoints(cluster, ports...)
}

// routes send every request to one cluster.
func routes(name, cluster string) *routev3.RouteConfiguration {
	return xdstest.Routes(name, cluster, 0)
}

// web is a listener "in" that sends all requests to a cluster "web" with these
// backends.
func web(source *corev3.ConfigSource, backends ...*xdstest.HTTPBackend) []types.Resource {
	return []types.Resource{
		cluster("web", source), endpoints("web", backends...),
		xdstest.HTTPListener("in", xdstest.Manager("in", source)), routes("in", "web"),
	}
}

// The type URLs, by their usual short names.
const (
	lds  = resource.ListenerType
	rds  = resource.RouteType
	srds = resource.ScopedRouteType
	cds  = resource.ClusterType
	eds  = resource.EndpointType
	sds  = resource.SecretType
	rtds = resource.RuntimeType
	ecds = resource.ExtensionConfigType
)
