package integration

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// fourMiB is the default message limit of a gRPC server. The origins here do not change it.
const fourMiB = 4 << 20

// P59: names and versions exceed an origin's limit, in one type by name and in one by the wildcard,
// at the start and after a reconnect.
func TestP59_RequestsOverFourMiB(t *testing.T) {
	t.Parallel()
	const n = 60000
	o := origin(t, xdstest.Linear)
	pad := strings.Repeat("x", 70)
	var names []string
	var assignments, clusters []types.Resource
	for i := range n {
		names = append(names, fmt.Sprintf("%05d-%s", i, pad))
		assignments = append(assignments, &endpointv3.ClusterLoadAssignment{ClusterName: names[i]})
	}
	for _, name := range names[:n/2] {
		clusters = append(clusters, xdstest.Cluster(name, 1))
	}
	o.Put("edge", assignments...)
	o.Put("edge", clusters...)
	// On a busy machine the origin's answers take long. That must not count as absence (P57).
	r := serve(t, o.Address, xdstest.Config{"upstream.variant": "delta"})
	var sent atomic.Int64
	c := client(t, r.Address, fleet.ClientConfig{Node: node("n", "edge"), Variant: fleet.Delta, Behaviour: fleet.Raw, DiscardBodies: true,
		Subscribe:  []fleet.Subscription{{Type: resource.EndpointType, Names: names}, {Type: resource.ClusterType}},
		OnResponse: func(_ *fleet.Client, r fleet.Response) { sent.Add(int64(r.Resources + r.Removed)) }})
	holds := func(typ string, n int) func(*fleet.Client) bool {
		return func(c *fleet.Client) bool { return c.Len(xds.TypeURL(typ)) == n }
	}
	waitFor(t, c, "what the origin has", all(holds(resource.EndpointType, n), holds(resource.ClusterType, n/2)))

	o.Stop()
	o.Remove("edge", resource.EndpointType, names[0])
	o.Remove("edge", resource.ClusterType, names[0])
	o.Put("edge", xdstest.Endpoints(names[n-1], 1))
	o.Put("edge", xdstest.Cluster(names[n/2-1], 2))
	changed := hash(c, resource.EndpointType, names[n-1])
	o.Start()
	waitFor(t, c, "what changed meanwhile", all(holds(resource.EndpointType, n-1), holds(resource.ClusterType, n/2-1),
		func(c *fleet.Client) bool { return hash(c, resource.EndpointType, names[n-1]) != changed }))

	if _, ever := o.Streams(); ever != 2 {
		t.Errorf("%d streams: the origin did not accept the requests", ever)
	}
	first := make(map[string]int)
	for _, q := range o.Requests(func(q xdstest.Request) bool { return true }) {
		if q.Size > fourMiB {
			t.Errorf("a request of %d bytes", q.Size)
		}
		if q.Versions > 0 {
			first[q.Type]++
		}
	}
	if first[resource.EndpointType] != 1 || first[resource.ClusterType] != 1 {
		t.Errorf("versions in %v requests", first)
	}
	if left := r.Metric("upstream_versions_left_out_total"); left == 0 || left >= n {
		t.Errorf("%v versions left out", left)
	}
	// Resources without a version were received again, but not passed on. Load assignments may
	// follow their clusters, the first time and after changes (P37).
	if got := sent.Load(); got > n+n/2+n/2+5 {
		t.Errorf("the client received %d resources", got)
	}
}

func hash(c *fleet.Client, typ string, name string) any {
	r, _ := c.Get(xds.TypeURL(typ), name)
	return r.Hash
}
