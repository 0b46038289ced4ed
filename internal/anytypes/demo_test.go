package anytypes_test

import (
	"path/filepath"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// demo is one of demos, decoded.
type demo struct {
	listeners   map[string]*listenerv3.Listener
	routes      map[string]*routev3.RouteConfiguration
	clusters    map[string]*clusterv3.Cluster
	assignments map[string]*endpointv3.ClusterLoadAssignment
}

func readDemo(t *testing.T, dir string) demo {
	t.Helper()
	d := demo{
		listeners:   make(map[string]*listenerv3.Listener),
		routes:      make(map[string]*routev3.RouteConfiguration),
		clusters:    make(map[string]*clusterv3.Cluster),
		assignments: make(map[string]*endpointv3.ClusterLoadAssignment),
	}
	for file, response := range demoResponses(t, dir) {
		if response.VersionInfo == "" || len(response.Resources) == 0 {
			t.Errorf("%s: no version_info or no resources", file)
		}
		for _, r := range response.Resources {
			if r.TypeUrl != response.TypeUrl {
				t.Errorf("%s: a resource of type %s in a response of %s", file, r.TypeUrl, response.TypeUrl)
			}
			m, err := r.UnmarshalNew()
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			switch m := m.(type) {
			case *listenerv3.Listener:
				put(t, d.listeners, m.Name, m)
			case *routev3.RouteConfiguration:
				put(t, d.routes, m.Name, m)
			case *clusterv3.Cluster:
				put(t, d.clusters, m.Name, m)
			case *endpointv3.ClusterLoadAssignment:
				put(t, d.assignments, m.ClusterName, m)
			default:
				t.Errorf("%s: a %T, which no client of the demo asks for", file, m)
			}
		}
	}
	return d
}

func put[T any](t *testing.T, into map[string]T, name string, m T) {
	t.Helper()
	if _, twice := into[name]; twice || name == "" {
		t.Errorf("the name %q is missing or there twice", name)
	}
	into[name] = m
}

// Every resource of the demo satisfies the constraints of Envoy's API, also in its extensions.
func TestDemoIsValid(t *testing.T) {
	for _, dir := range demos {
		for file, response := range demoResponses(t, dir) {
			validate(t, file, response)
		}
	}
}

// Every resource that the demo refers to exists, comes over ADS, and every one is referred to: a
// client that follows references gets all.
func TestDemoReferencesResolve(t *testing.T) {
	for _, dir := range demos {
		t.Run(filepath.Base(dir), func(t *testing.T) { referencesResolve(t, readDemo(t, dir)) })
	}
}

func referencesResolve(t *testing.T, d demo) {
	t.Helper()
	overADS := func(place string, c *corev3.ConfigSource) {
		t.Helper()
		if c.GetAds() == nil || c.ResourceApiVersion != corev3.ApiVersion_V3 {
			t.Errorf("%s: does not come over ADS v3", place)
		}
	}
	used := make(map[string]bool)
	use := func(place, kind, name string, there bool) {
		t.Helper()
		if used[kind+name] = true; !there {
			t.Errorf("%s: %s %q is not there", place, kind, name)
		}
	}
	for name, l := range d.listeners {
		for _, m := range managers(t, l) {
			rds := m.GetRds()
			overADS("listener "+name, rds.GetConfigSource())
			use("listener "+name, "route", rds.GetRouteConfigName(), d.routes[rds.GetRouteConfigName()] != nil)
			if n := len(m.HttpFilters); n == 0 || m.HttpFilters[n-1].Name != "envoy.filters.http.router" {
				t.Errorf("listener %s: its last filter is not the router", name)
			}
		}
	}
	for name, r := range d.routes {
		for _, vh := range r.VirtualHosts {
			for _, route := range vh.Routes {
				targets := []string{route.GetRoute().GetCluster()}
				for _, w := range route.GetRoute().GetWeightedClusters().GetClusters() {
					targets = append(targets, w.Name)
				}
				for _, c := range targets {
					if c != "" {
						use("route "+name, "cluster", c, d.clusters[c] != nil)
					}
				}
			}
		}
	}
	for name, c := range d.clusters {
		overADS("cluster "+name, c.GetEdsClusterConfig().GetEdsConfig())
		service := c.GetEdsClusterConfig().GetServiceName()
		if service == "" {
			service = name
		}
		use("cluster "+name, "load assignment", service, d.assignments[service] != nil)
	}
	for name := range d.routes {
		use("the demo", "route", name, used["route"+name])
	}
	for name := range d.clusters {
		use("the demo", "cluster", name, used["cluster"+name])
	}
	for name, a := range d.assignments {
		use("the demo", "load assignment", name, used["load assignment"+name])
		for _, l := range a.Endpoints {
			// gRPC ignores a locality without weight.
			if l.Locality == nil || l.LoadBalancingWeight.GetValue() == 0 || len(l.LbEndpoints) == 0 {
				t.Errorf("load assignment %s: a locality without name, weight or endpoints", name)
			}
		}
	}
}

// managers returns the HTTP connection managers of l.
func managers(t *testing.T, l *listenerv3.Listener) []*hcmv3.HttpConnectionManager {
	t.Helper()
	var out []*hcmv3.HttpConnectionManager
	decode := func(a *anypb.Any) {
		m := new(hcmv3.HttpConnectionManager)
		if err := anypb.UnmarshalTo(a, m, proto.UnmarshalOptions{}); err != nil {
			t.Fatalf("listener %s: %v", l.Name, err)
		}
		out = append(out, m)
	}
	if l.ApiListener != nil {
		decode(l.ApiListener.ApiListener)
	}
	for _, chain := range l.FilterChains {
		for _, f := range chain.Filters {
			decode(f.GetTypedConfig())
		}
	}
	return out
}
