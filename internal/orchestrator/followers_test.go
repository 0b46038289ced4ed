package orchestrator

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// edsCluster makes a cluster that leads to a load assignment: "name>service", or "name" if that has
// the cluster's name.
func edsCluster(t testing.TB, spec string) *xds.Resource {
	t.Helper()
	name, service, _ := strings.Cut(spec, ">")
	a, err := anypb.New(&clusterv3.Cluster{
		Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: service},
	})
	if err != nil {
		t.Fatal(err)
	}
	wire, err := proto.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	r, err := xds.NewResource(xds.TypeOf(cds), name, wire)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// clusters hands over a SotW response: all clusters, and the names of those that are gone.
func (f *feed) clusters(t testing.TB, all string, gone ...string) {
	t.Helper()
	u := snapshot.Update{Type: cds, Origin: "origin", Wildcard: true, Received: time.Now(), Removed: gone}
	for _, spec := range strings.Fields(all) {
		u.Changed = append(u.Changed, edsCluster(t, spec))
	}
	f.hand(t, u)
}

// withFollowers runs f with a key that has clusters and endpoints. c and e are the clusters and the
// endpoints of one client, with these names of endpoints, each with the content 1.
func withFollowers(t *testing.T, sotw bool, clusters, endpoints string, f func(w *registryFixture, c, e *testClient, origin *feed)) {
	t.Helper()
	goesOn(t)
	bubble(t, func(o *Options) { o.RemovalDelay, o.SotWOrigins = 5*time.Second, sotw }, func(w *registryFixture) {
		c, e := w.join("edge", cds).want("*"), w.join("edge", eds).want(strings.Fields(endpoints)...)
		c.alsoRoutes()
		synctest.Wait()
		origin := w.feed("edge")
		origin.reached()
		origin.clusters(t, clusters)
		for _, name := range strings.Fields(endpoints) {
			origin.update(t, eds, false, name+"=1")
		}
		c.acks(cds)
		f(w, c, e, origin)
	})
}

// A SotW origin removes a cluster. The name of its endpoints leaves the subscription at once, while
// clients keep them for removal_delay. Requests omit it while clients want it.
func TestP52_EndpointsOfARemovedCluster(t *testing.T) {
	withFollowers(t, true, "a b s>service", "a b none service", func(w *registryFixture, c, e *testClient, origin *feed) {
		origin.clusters(t, "a b", "s")
		equal(t, "requested", origin.requested(eds), "a b none")
		sub := subscription("service", "b")
		equal(t, "the cluster", c.sees(subscription("*"), "s") != "-", true)
		equal(t, "its endpoints", e.sees(sub, "service"), "1")
		late := w.join("edge", eds).want("service")
		pass(3 * time.Second)
		equal(t, "its endpoints for a new client", late.sees(sub, "service"), "1")
		origin.clusters(t, "a b", "s") // again
		equal(t, "requested", origin.requested(eds), "a b none")
		pass(2 * time.Second)
		equal(t, "the cluster after removal_delay", c.sees(subscription("*"), "s"), "-")
		equal(t, "its endpoints", e.sees(sub, "service"), "?")
		late.leave()
		pass(time.Hour)
		equal(t, "requested", origin.requested(eds), "a b none")

		// A cluster of another name leads to it.
		origin.clusters(t, "a b t>service")
		equal(t, "requested when a cluster returns", origin.requested(eds), "a b none service")
		origin.update(t, eds, false, "service=2")
		equal(t, "its endpoints", e.sees(sub, "service"), "2")

		// The last client that wanted a name lets it go. Nothing is remembered of it.
		origin.clusters(t, "b t>service", "a")
		equal(t, "requested", origin.requested(eds), "b none service")
		e.want("b", "service")
		pass(10 * time.Second)
		w.check()
		e.want("a", "b")
		synctest.Wait()
		equal(t, "requested, without any known cluster", origin.requested(eds), "a b service")
	})
}

// A second stream that would carry only names that requests omit closes (P50).
func TestP52_NoStreamWithoutNames(t *testing.T) {
	withFollowers(t, true, "a", "", func(w *registryFixture, c, e *testClient, origin *feed) {
		w.join("edge", eds).want("*")
		synctest.Wait()
		e.want("a")
		w.second("edge").update(t, eds, false, "a=1")
		streams := func() int { return len(e.of().group.upstreams()) }
		equal(t, "streams", streams(), 2)
		origin.clusters(t, "", "a")
		equal(t, "streams without names", streams(), 1)
		pass(time.Minute)
		w.feed("edge").clusters(t, "a")
		equal(t, "streams", streams(), 2)
		equal(t, "requested", w.second("edge").requested(eds), "a")
	})
}
