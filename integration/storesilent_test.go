package integration

import (
	"strings"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// P66: a relay that restarts beside an origin that takes streams and answers nothing serves
// what is stored after first_answer_timeout, marked as such. The origin's answer replaces it on
// the same streams.
func TestP66_StoredIsServedBesideASilentOrigin(t *testing.T) {
	eachOrigin(t, func(t *testing.T, upstream, kind string) {
		dir := t.TempDir()
		o := origin(t, kind)
		gone := xdstest.Cluster("gone", 1)
		o.Put("edge", append(xdstest.Web(1), gone, xdstest.Endpoints("gone", 1))...)
		conf := xdstest.Config{"upstream.variant": upstream, "upstream.first_answer_timeout": "300ms", "store": map[string]any{"path": dir, "interval": "20ms"}}
		first := serve(t, o.Address, conf)
		waitAll(t, envoys(t, first.Address, "edge"), "what the origin has", hasAll(append(xdstest.Web(1), gone)...))
		first.written(t, dir, 4)
		first.Kill()

		silent := xdstest.StartScriptedOrigin(t)
		r := serve(t, silent.Address, conf)
		clients := envoys(t, r.Address, "edge")
		waitAll(t, clients, "what is stored", hasAll(append(xdstest.Web(1), gone)...))
		r.WaitMetric(4, "stale_types")
		if id := identifier(t, r, fleet.SotW, "edge"); !strings.HasSuffix(id, " (last known good)") {
			t.Errorf("identifier %q", id)
		}
		silent.Respond(resource.ClusterType, "2", xdstest.Cluster("web", 2))
		waitAll(t, clients, "the origin's answer", hasAll(xdstest.Cluster("web", 2)))
		if upstream == "sotw" {
			waitAll(t, clients, "the deletion", hasNot(resource.ClusterType, "gone"))
		}
		for _, c := range clients {
			if n := c.Counters().Streams; n != 1 {
				t.Errorf("%s needed %d streams", c, n)
			}
		}
		if log := r.Log(); !strings.Contains(log, "served from the last known good: the origin says nothing") || strings.Contains(log, "clients are refused") {
			t.Error(log)
		}
	})
}
