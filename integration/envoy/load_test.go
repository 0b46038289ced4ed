package envoy

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/protobuf/types/known/durationpb"

	"xdsrelay/internal/xdstest"
)

// Changes of the configuration while requests go through an Envoy all the
// time. No request may fail.

// ordered is an origin that sends what a change needs before the change:
// clusters before the routes to them.
var ordered = xdstest.OriginOptions{Ordered: true}

// keepsOldClusters is a relay that publishes deletions of clusters late enough
// for an Envoy on a loaded machine.
var keepsOldClusters = xdstest.Config{"downstream.removal_delay": "1s"}

// underTraffic plays a scene behind the relay, over both kinds of ADS and for
// both upstream variants. The long tests compare it with a direct connection;
// explain returns the differences expected for a way.
func underTraffic(t *testing.T, config xdstest.Config, play func(t *testing.T, s *scene) *envoy, explain func(w way, opts sceneOptions) []difference) {
	each(t, adsWays, func(t *testing.T, w way, variant string) {
		opts := sceneOptions{variant: variant, config: config, origin: ordered}
		compare(t, w, opts, play, explain(w, opts)...)
	})
}

// repeated explains the differences that a SotW origin makes by repeating types.
func repeated(other string) func(w way, opts sceneOptions) []difference {
	return func(w way, opts sceneOptions) []difference { return repeats(w, opts, other) }
}

// compare plays a scene behind the relay. The long tests play it directly too
// and compare both.
func compare(t *testing.T, w way, opts sceneOptions, play func(t *testing.T, s *scene) *envoy, explained ...difference) {
	t.Helper()
	clean := func(t *testing.T, s *scene) *envoy {
		e := play(t, s)
		e.mustBeClean()
		return e
	}
	if os.Getenv("ENVOY_LONG") == "" {
		clean(t, newScene(t, w, opts))
		return
	}
	sideBySide(t, w, opts, clean, explained...)
}

// mayFail ends the traffic of a scene. Requests may have failed if the Envoy
// asks the origin directly, where nothing makes before it breaks.
func (tr *traffic) mayFail(s *scene) {
	if s.relay != nil {
		return
	}
	tr.end()
	if failed := tr.TakeFailed(); len(failed) > 0 {
		s.t.Logf("direct: %d requests failed, the first: %v", len(failed), failed[0])
	}
}

// staticCluster has its endpoints in itself, and so need not warm.
func staticCluster(name string, backends ...*xdstest.HTTPBackend) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ConnectTimeout:       durationpb.New(2 * time.Second),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		LoadAssignment:       endpoints(name, backends...),
	}
}

// Endpoints are swapped under traffic.
func TestEndpointSwap(t *testing.T) {
	t.Parallel()
	underTraffic(t, nil, swapEndpoints, repeated(`cluster_manager\.cds|listener_manager\.lds|http\.test\.rds\.in`))
}

func swapEndpoints(t *testing.T, s *scene) *envoy {
	blue, green := xdstest.StartHTTPBackend(t, "blue"), xdstest.StartHTTPBackend(t, "green")
	s.origin.Put("edge", web(s.way.source, blue)...)
	e := s.envoy("envoy-1", nil)
	e.reaches("in", "", "/", "blue")
	tr := startTraffic(e, "in")
	for range 5 {
		for _, b := range []*xdstest.HTTPBackend{green, blue} {
			s.origin.Put("edge", endpoints("web", b))
			tr.reaches(b.Name)
			tr.goesOn()
		}
	}
	return e
}

// The origin adds a cluster and waits until Envoy has it. Then it moves the
// route there and deletes the old cluster in one snapshot.
func TestRouteMoves(t *testing.T) {
	t.Parallel()
	underTraffic(t, keepsOldClusters, moveRoute, repeated(`cluster\.web-1|listener_manager\.lds|http\.test\.rds\.in`))
}

func moveRoute(t *testing.T, s *scene) *envoy {
	return moveRoutes(t, s, func(next string, old []string, b *xdstest.HTTPBackend, e *envoy) {
		c := cluster(next, s.way.source)
		s.origin.Put("edge", c, endpoints(next, b))
		e.waitCluster(c)
		s.origin.Change("edge", []types.Resource{routes("in", next)}, map[string][]string{cds: old, eds: old})
	})
}

// The origin adds a cluster, moves the route there and deletes the old cluster,
// all in one snapshot. The clusters are static. An EDS cluster warms until its
// endpoints have come, and Envoy takes the route before that; it does so also
// without a relay.
func TestRouteMovesAtOnce(t *testing.T) {
	t.Parallel()
	underTraffic(t, keepsOldClusters, moveRouteAtOnce, func(w way, opts sceneOptions) []difference {
		return append(repeats(w, opts, `listener_manager\.lds`), difference{
			item: `stat cluster_manager\.cds\.(update_attempt|update_success)`, more: true,
			reason: "the relay deletes the old cluster later, in a response of its own"})
	})
}

func moveRouteAtOnce(t *testing.T, s *scene) *envoy {
	return moveRoutes(t, s, func(next string, old []string, b *xdstest.HTTPBackend, _ *envoy) {
		s.origin.Change("edge", []types.Resource{staticCluster(next, b), routes("in", next)},
			map[string][]string{cds: old, eds: old})
	})
}

// moveRoutes moves all requests from cluster to cluster.
func moveRoutes(t *testing.T, s *scene, move func(next string, old []string, b *xdstest.HTTPBackend, e *envoy)) *envoy {
	backends := []*xdstest.HTTPBackend{xdstest.StartHTTPBackend(t, "blue"), xdstest.StartHTTPBackend(t, "green")}
	s.origin.Put("edge", web(s.way.source, backends[0])...)
	e := s.envoy("envoy-1", nil)
	e.reaches("in", "", "/", "blue")
	tr := startTraffic(e, "in")
	old := "web"
	for i := range 2 {
		next, b := fmt.Sprint("web-", i), backends[(i+1)%2]
		move(next, []string{old}, b, e)
		tr.reaches(b.Name)
		e.waitGone(old)
		tr.goesOn()
		old = next
	}
	tr.mayFail(s)
	return e
}

// A changed EDS cluster warms until it gets its unchanged endpoints again.
// While another cluster warms, for which the origin has no endpoints, Envoy
// withholds the ACK of its clusters; a further cluster with a route arrives
// all the same. Behind the relay no cluster waits until Envoy's
// init_fetch_timeout of 15 s ends its warming.
func TestWarmingClusters(t *testing.T) {
	t.Parallel()
	underTraffic(t, keepsOldClusters, warmClusters, func(w way, opts sceneOptions) []difference {
		explained := append(repeats(w, opts, `cluster_manager\.cds|listener_manager\.lds|http\.test\.rds\.in|cluster\.(further|web)`),
			difference{item: `stat cluster\.slow\.(init_fetch_timeout|update_attempt)`, fewer: true,
				reason: "the relay sends further clusters while one warms; go-control-plane does not, so that Envoy waits for 15 s"},
			difference{item: `text cluster_manager\.cds\.version_text|version dynamic_active_clusters further`, random: true,
				reason: "directly the further cluster waits, and comes with the version of a later snapshot"},
			difference{item: `stat cluster_manager\.cluster_updated`, random: true, fewer: true,
				reason: "Envoy counts endpoints for clusters that have stopped to wait for them"})
		if w.delta {
			const reason = "the relay sends a changed cluster its endpoints again, under the version of the time; " +
				"go-control-plane does not, so that Envoy waits for 15 s"
			explained = append(explained,
				difference{item: `stat cluster\.web\.init_fetch_timeout`, fewer: true, reason: reason},
				difference{item: `stat cluster\.web\.update_(attempt|success)`, more: true, reason: reason},
				difference{item: `text cluster\.web\.version_text`, random: true, reason: reason})
		}
		return explained
	})
}

func warmClusters(t *testing.T, s *scene) *envoy {
	blue, green := xdstest.StartHTTPBackend(t, "blue"), xdstest.StartHTTPBackend(t, "green")
	s.origin.Put("edge", web(s.way.source, blue)...)
	e := s.envoy("envoy-1", nil)
	e.reaches("in", "", "/", "blue")
	tr := startTraffic(e, "in")
	for i := range 2 {
		c := cluster("web", s.way.source)
		c.ConnectTimeout = durationpb.New(time.Duration(3+i) * time.Second)
		s.origin.Put("edge", c)
		e.waitCluster(c)
		tr.goesOn()
	}

	s.origin.Put("edge", cluster("slow", s.way.source))
	e.waitWarming("cluster slow")
	in := routes("in", "web")
	host := in.GetVirtualHosts()[0]
	host.Routes = []*routev3.Route{xdstest.RouteTo("/further", "further"), xdstest.RouteTo("/", "web")}
	s.origin.Put("edge", cluster("further", s.way.source), endpoints("further", green))
	s.waitHeld(cds, "further")
	s.origin.Put("edge", in)
	e.reaches("in", "", "/further", "green")
	if s.relay != nil {
		e.waitWarming("cluster slow") // directly, Envoy gives up waiting for it before it gets a further cluster
	}

	s.origin.Put("edge", endpoints("slow", green))
	e.waitCluster(cluster("slow", s.way.source))
	tr.goesOn()
	if s.relay != nil {
		const stat = "cluster.%s.init_fetch_timeout"
		want := map[string]int{fmt.Sprintf(stat, "web"): 0, fmt.Sprintf(stat, "further"): 0, fmt.Sprintf(stat, "slow"): 0}
		if got, err := e.stats(`^cluster\.(web|further|slow)\.init_fetch_timeout$`); err != nil || !maps.Equal(got, want) {
			t.Errorf("clusters that warmed until the timeout: %v, error %v; want none", got, err)
		}
	}
	return e
}

// waitWarming waits until this Envoy warms exactly these.
func (e *envoy) waitWarming(want ...string) {
	e.t.Helper()
	xdstest.Eventually(e.t, e.node, func() error {
		got, err := e.warming()
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("warming: %q, want %q", got, want)
		}
		return err
	})
}

// waitHeld waits until the relay, if there is one, holds a resource.
func (s *scene) waitHeld(url, name string) {
	s.t.Helper()
	if s.relay == nil {
		return
	}
	xdstest.Eventually(s.t, "the relay", func() error {
		if out, code := s.relay.Run("dump", "--key", "edge", "--type", url, "--name", name); code != 0 || !strings.Contains(out, name) {
			return fmt.Errorf("dump of %s: exit code %d: %s", name, code, out)
		}
		return nil
	})
}
