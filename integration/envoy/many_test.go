package envoy

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"

	"xdsrelay/internal/xdstest"
)

// manyClusters is how many EDS clusters TestManyEndpoints has. Envoy takes
// several milliseconds for each.
func manyClusters() int {
	if os.Getenv("ENVOY_LONG") != "" {
		return 3000
	}
	return 1000
}

// An Envoy with thousands of EDS clusters gets the endpoints of all of them, and none
// warms for ever. These cases run one after the other, because each one keeps a
// core busy for seconds.
func TestManyEndpoints(t *testing.T) {
	t.Parallel()
	eachInTurn(t, adsWays, func(t *testing.T, w way, variant string) {
		if w.delta != (variant == "delta") {
			long(t)
		}
		opts := sceneOptions{variant: variant}
		explained := repeats(w, opts, `cluster_manager\.cds|listener_manager\.lds|http\.test\.rds\.in|cluster\.many-\d+`)
		explained = append(explained, difference{item: `stat cluster\.many-\d+\.init_fetch_timeout`, random: true, fewer: true,
			reason: "on a busy machine the origin's endpoints of thousands of clusters may take longer than 15 s"})
		if !w.delta {
			explained = append(explained, difference{item: `stat cluster_manager\.cluster_updated`, random: true,
				reason: "Envoy counts repeated endpoints if they come after a while"})
		}
		compare(t, w, opts, manyEndpoints, explained...)
	})
}

func manyEndpoints(t *testing.T, s *scene) *envoy {
	blue, green := xdstest.StartHTTPBackend(t, "blue"), xdstest.StartHTTPBackend(t, "green")
	clusters := manyClusters()
	name := func(i int) string { return fmt.Sprintf("many-%04d", i) }
	all := []types.Resource{xdstest.HTTPListener("in", xdstest.Manager("in", s.way.source)), byHeader("in")}
	for i := range clusters {
		all = append(all, cluster(name(i), s.way.source), endpoints(name(i), blue))
	}
	s.origin.Put("edge", all...)
	e := s.envoy("envoy-1", nil)
	e.listens("in")
	e.waitStat("cluster_manager.active_clusters", clusters+1) // and "relay"
	xdstest.Eventually(t, "endpoints of all clusters", func() error {
		got, err := e.config()
		if err != nil {
			return err
		}
		if n := len(got[eds]); n != clusters {
			return fmt.Errorf("%d of %d", n, clusters)
		}
		for name, m := range got[eds] {
			if p := ports(m.(*endpointv3.ClusterLoadAssignment)); len(p) != 1 || p[0] != uint32(blue.Port) {
				return errors.New("endpoints of " + name + " are missing")
			}
		}
		return nil
	})
	e.waitWarming()

	s.origin.Put("edge", endpoints(name(7), green), endpoints(name(clusters-1), green))
	for i, want := range map[int]*xdstest.HTTPBackend{0: blue, 7: green, 8: blue, clusters - 1: green} {
		xdstest.Eventually(t, "the endpoints of "+name(i), func() error {
			_, got, err := e.status("in", "", "/", http.Header{"X-Cluster": {name(i)}})
			if err == nil && got != want.Name {
				err = fmt.Errorf("answered by %s, want %s", got, want.Name)
			}
			return err
		})
	}
	return e
}
