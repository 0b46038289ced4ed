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

// The cluster returns within removal_delay. Its endpoints are requested again, and were never gone.
func TestP52_EndpointsOfAClusterThatReturns(t *testing.T) {
	withFollowers(t, true, "a b", "a b", func(w *registryFixture, c, e *testClient, origin *feed) {
		origin.clusters(t, "b", "a")
		equal(t, "requested", origin.requested(eds), "b")
		pass(3 * time.Second)
		origin.clusters(t, "a b")
		equal(t, "requested", origin.requested(eds), "a b")
		pass(time.Hour)
		equal(t, "endpoints", e.sees(subscription("a"), "a"), "1")

		// Nobody wants the endpoints any more when it returns. They linger.
		origin.clusters(t, "b", "a")
		e.want("b")
		pass(time.Second)
		origin.clusters(t, "a b")
		synctest.Wait()
		equal(t, "requested", origin.requested(eds), "a b")
		equal(t, "kept", origin.sink.Newest(eds).Resource("a") != nil, true)
		pass(10 * time.Second)
		equal(t, "requested after linger", origin.requested(eds), "b")
		equal(t, "kept", origin.sink.Newest(eds).Resource("a") != nil, false)
	})
}

// Another cluster leads to the same endpoints, or the cluster leads to others.
func TestP52_LastClusterOfItsEndpoints(t *testing.T) {
	withFollowers(t, true, "a>x b>x c", "x y", func(w *registryFixture, c, e *testClient, origin *feed) {
		origin.clusters(t, "b>x c", "a")
		equal(t, "requested with one cluster left", origin.requested(eds), "x y")
		origin.clusters(t, "b>y c")
		equal(t, "requested when the last one leads to other endpoints", origin.requested(eds), "y")
		origin.clusters(t, "c", "b")
		equal(t, "requested without clusters", origin.requested(eds), "")
		origin.clusters(t, "b>x c>y")
		equal(t, "requested with new ones", origin.requested(eds), "x y")
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

// The removal takes effect at once if nothing delays it.
func TestP52_EndpointsWithoutRemovalDelay(t *testing.T) {
	withFollowers(t, true, "a b", "a b", func(w *registryFixture, c, e *testClient, origin *feed) {
		c.leave()
		w.join("edge", cds).want("*")
		synctest.Wait()
		origin.clusters(t, "b", "a")
		equal(t, "requested", origin.requested(eds), "b")
		equal(t, "endpoints", e.sees(subscription("a"), "a"), "?")
	})
}

// A name that only lingers is omitted too. It is kept for clients that come within removal_delay.
func TestP52_LingeringEndpointsOfARemovedCluster(t *testing.T) {
	withFollowers(t, true, "a b", "a b", func(w *registryFixture, c, e *testClient, origin *feed) {
		e.want("b")
		synctest.Wait()
		origin.clusters(t, "b", "a")
		equal(t, "requested", origin.requested(eds), "b")
		late := w.join("edge", eds).want("a")
		equal(t, "endpoints", late.sees(subscription("a"), "a"), "1")
		late.leave()
		pass(time.Minute)
		w.check()
		equal(t, "kept", origin.sink.Newest(eds).Resource("a") != nil, false)
	})
}

// A delta origin gets only the names that change.
func TestP52_DeltaRequestsOmitNothing(t *testing.T) {
	withFollowers(t, false, "a b", "a b", func(w *registryFixture, c, e *testClient, origin *feed) {
		origin.clusters(t, "b", "a")
		pass(time.Minute)
		equal(t, "requested", origin.requested(eds), "a b")
	})
}

// Once no client wants the clusters any more, the origin would not report that a cluster returns.
// So its endpoints are requested again if a client wants them.
func TestP52_EndpointsAreRequestedWithoutClusters(t *testing.T) {
	withFollowers(t, true, "a b c", "a b c", func(w *registryFixture, c, e *testClient, origin *feed) {
		e.want("a", "b")
		synctest.Wait()
		origin.clusters(t, "b", "a", "c")
		equal(t, "requested", origin.requested(eds), "b")
		c.want()
		pass(9 * time.Second)
		equal(t, "requested while clusters linger", origin.requested(eds), "b")
		pass(time.Second)
		equal(t, "requested after linger", origin.requested(eds), "a b")
	})
	withFollowers(t, true, "", "a b", func(w *registryFixture, c, e *testClient, origin *feed) {
		c.want("a", "b")
		synctest.Wait()
		second := w.second("edge")
		u := snapshot.Update{Type: cds, Origin: "origin", Changed: []*xds.Resource{edsCluster(t, "a"), edsCluster(t, "b")}}
		second.hand(t, u)
		c.acks(cds)
		second.update(t, cds, false, "a")
		equal(t, "requested", origin.requested(eds), "b")
		c.want("b")
		pass(10 * time.Second)
		equal(t, "requested once the cluster is unsubscribed", origin.requested(eds), "a b")
		second.update(t, cds, false, "b")
		equal(t, "requested", origin.requested(eds), "a")
		c.leave()
		pass(10 * time.Second)
		equal(t, "requested without clients of clusters", origin.requested(eds), "a b")
	})
}
