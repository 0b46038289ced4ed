package orchestrator

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/xds"
)

// edsCluster makes a cluster that leads to the endpoints of its name.
func edsCluster(t testing.TB, name string) *xds.Resource {
	t.Helper()
	a, err := anypb.New(&clusterv3.Cluster{Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}})
	if err != nil {
		t.Fatal(err)
	}
	return cut(t, cds, &discoveryv3.Resource{Name: name, Resource: a}).Take(xds.TypeOf(cds), nil)
}

// Requests omit the endpoints of a removed cluster. A second stream that would carry only such names
// closes (P50). content.TestP52_OmittedNames has more.
func TestP52_NoStreamWithoutNames(t *testing.T) {
	goesOn(t)
	bubble(t, func(o *Options) { o.RemovalDelay, o.SotWOrigins = 5*time.Second, true }, func(w *registryFixture) {
		c := w.join("edge", cds).want("*")
		c.alsoRoutes()
		w.join("edge", eds).want("*")
		f := w.feed("edge")
		f.bring(t, cds, true, edsCluster(t, "a"))
		c.acks(cds)
		e := w.join("edge", eds).want("a")
		w.second("edge").update(t, eds, false, "a=1")
		f.update(t, cds, true, "a")
		equal(t, "streams without names", len(e.of().group.upstreams()), 1)
		equal(t, "the endpoints", e.sees(subscription("a"), "a"), "1")
		pass(time.Minute)
		equal(t, "the endpoints once the removal takes effect", e.sees(subscription("a"), "a"), "?")
		f.bring(t, cds, true, edsCluster(t, "a"))
		equal(t, "requested", w.second("edge").requested(eds), "a")
	})
}
