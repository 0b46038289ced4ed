package fleet

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	"go.uber.org/goleak"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var variants = []Variant{SotW, Delta}

// run runs a client until the test ends.
func run(t *testing.T, cfg ClientConfig) *Client {
	t.Helper()
	if cfg.Node == nil {
		cfg.Node = &corev3.Node{Id: "n", Cluster: "c"}
	}
	cfg.Backoff = Backoff{Base: time.Millisecond, Max: 10 * time.Millisecond}
	c, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	xdstest.Run(t, func(ctx context.Context) error {
		if err := c.Run(ctx); err != nil && !cfg.NoReconnect {
			return err
		}
		return nil
	})
	return c
}

func wait(t *testing.T, c *Client, what string, cond func(c *Client) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := c.Wait(ctx, cond); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func noViolations(t *testing.T, c *Client) {
	t.Helper()
	if v := c.Violations(); len(v) > 0 {
		t.Errorf("violations: %q", v)
	}
}

func holds(t *testing.T, c *Client, typ xds.TypeURL, want ...string) {
	t.Helper()
	var got []string
	for name := range c.Resources(typ) {
		got = append(got, name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s held: %q, want %q", label(typ), got, want)
	}
}

// Resources.

func eds(name, service string) *clusterv3.Cluster {
	c := xdstest.Cluster(name, 0)
	c.EdsClusterConfig.ServiceName = service
	return c
}

func static(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}}
}

func aggregate(name string, members ...string) *clusterv3.Cluster {
	return &clusterv3.Cluster{Name: name, ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{
		ClusterType: &clusterv3.Cluster_CustomClusterType{Name: "envoy.clusters.aggregate",
			TypedConfig: xdstest.Pack(&aggregatev3.ClusterConfig{Clusters: members})}}}
}

func load(name string, port uint32) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Policy: &endpointv3.ClusterLoadAssignment_Policy{
		DropOverloads: []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{{Category: fmt.Sprint(port)}}}}
}

func filter(rds string) *listenerv3.FilterChain { return xdstest.Listener("", rds, 0).FilterChains[0] }

func listener(name string, rds ...string) *listenerv3.Listener {
	l := &listenerv3.Listener{Name: name}
	for _, r := range rds {
		l.FilterChains = append(l.FilterChains, filter(r))
	}
	return l
}

func weighted(clusters ...string) *routev3.Route {
	w := new(routev3.WeightedCluster)
	for _, c := range clusters {
		w.Clusters = append(w.Clusters, &routev3.WeightedCluster_ClusterWeight{Name: c})
	}
	return &routev3.Route{Action: &routev3.Route_Route{Route: &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_WeightedClusters{WeightedClusters: w}}}}
}

func route(name string, routes ...*routev3.Route) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{Name: "v", Domains: []string{"*"}, Routes: routes}}}
}
