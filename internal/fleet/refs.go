package fleet

import (
	"fmt"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/xds"
)

// refs are the names that a resource refers to. They are immutable: clients with the same body
// share them.
type refs struct {
	routes   []string // of a Listener: route configurations by RDS
	clusters []string // of a Listener's inline routes, of a RouteConfiguration, of an aggregate Cluster
	endpoint string   // of a Cluster of type EDS: its load assignment
}

// References returns the routes by RDS and the load assignments that a Listener, RouteConfiguration or
// Cluster refers to.
func References(t xds.TypeURL, body []byte) (routes, endpoints []string, err error) {
	r, err := decoders[t](body)
	if err != nil {
		return nil, nil, err
	}
	if r.endpoint != "" {
		endpoints = []string{r.endpoint}
	}
	return r.routes, endpoints, nil
}

// decoders has the types with references that are followed.
var decoders = map[xds.TypeURL]func(body []byte) (*refs, error){
	xds.ListenerType: listenerRefs,
	xds.RouteType:    routeRefs,
	xds.ClusterType:  clusterRefs,
}

// refCache caches the references of bodies, so that 2,000 clients with one listener decode it once.
// The zero value is empty.
type refCache struct {
	mu sync.Mutex
	m  map[Hash]*refs
}

// maxRefs bounds the cache, which is cleared when it is full.
const maxRefs = 1 << 17

func (c *refCache) get(t xds.TypeURL, h Hash, body []byte) (*refs, error) {
	c.mu.Lock()
	r := c.m[h]
	c.mu.Unlock()
	if r != nil {
		return r, nil
	}
	r, err := decoders[t](body)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if c.m == nil || len(c.m) >= maxRefs {
		c.m = make(map[Hash]*refs)
	}
	c.m[h] = r
	c.mu.Unlock()
	return r, nil
}

func listenerRefs(body []byte) (*refs, error) {
	var l listenerv3.Listener
	if err := proto.Unmarshal(body, &l); err != nil {
		return nil, fmt.Errorf("listener: %w", err)
	}
	r := new(refs)
	if a := l.GetApiListener().GetApiListener(); a != nil {
		if err := r.addManager(a); err != nil {
			return nil, fmt.Errorf("listener %q: api_listener: %w", l.GetName(), err)
		}
	}
	chains := l.GetFilterChains()
	if d := l.GetDefaultFilterChain(); d != nil {
		chains = append(chains, d)
	}
	for _, chain := range chains {
		for _, f := range chain.GetFilters() {
			if err := r.addManager(f.GetTypedConfig()); err != nil {
				return nil, fmt.Errorf("listener %q: filter %q: %w", l.GetName(), f.GetName(), err)
			}
		}
	}
	return r, nil
}

// addManager adds the references of a filter, if it is an HTTP connection manager.
func (r *refs) addManager(a *anypb.Any) error {
	var m hcmv3.HttpConnectionManager
	if a == nil || !a.MessageIs(&m) {
		return nil
	}
	if err := a.UnmarshalTo(&m); err != nil {
		return fmt.Errorf("http connection manager: %w", err)
	}
	if name := m.GetRds().GetRouteConfigName(); name != "" {
		r.routes = append(r.routes, name)
	}
	if inline := m.GetRouteConfig(); inline != nil {
		r.addRoutes(inline)
	}
	return nil
}

func routeRefs(body []byte) (*refs, error) {
	var rc routev3.RouteConfiguration
	if err := proto.Unmarshal(body, &rc); err != nil {
		return nil, fmt.Errorf("route configuration: %w", err)
	}
	r := new(refs)
	r.addRoutes(&rc)
	return r, nil
}

func (r *refs) addRoutes(rc *routev3.RouteConfiguration) {
	for _, vh := range rc.GetVirtualHosts() {
		for _, route := range vh.GetRoutes() {
			action := route.GetRoute()
			if name := action.GetCluster(); name != "" {
				r.clusters = append(r.clusters, name)
			}
			for _, w := range action.GetWeightedClusters().GetClusters() {
				if w.GetName() != "" {
					r.clusters = append(r.clusters, w.GetName())
				}
			}
		}
	}
}

func clusterRefs(body []byte) (*refs, error) {
	var c clusterv3.Cluster
	if err := proto.Unmarshal(body, &c); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	r := new(refs)
	custom := c.GetClusterType()
	switch {
	case custom != nil:
		var a aggregatev3.ClusterConfig
		if !custom.GetTypedConfig().MessageIs(&a) {
			break
		}
		if err := custom.GetTypedConfig().UnmarshalTo(&a); err != nil {
			return nil, fmt.Errorf("cluster %q: aggregate: %w", c.GetName(), err)
		}
		r.clusters = a.GetClusters()
	case c.GetType() == clusterv3.Cluster_EDS:
		r.endpoint = c.GetEdsClusterConfig().GetServiceName()
		if r.endpoint == "" {
			r.endpoint = c.GetName()
		}
	}
	return r, nil
}
