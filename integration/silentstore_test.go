package integration

import (
	"strings"
	"testing"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
)

// P53: an origin that takes streams and says nothing keeps a relay that has just started
// from serving nobody: what clients took before is served, marked as such, and nobody is
// sent away; once it speaks its word counts.
func TestP53_LastKnownGoodOfASilentOrigin(t *testing.T) {
	eachOrigin(t, func(t *testing.T, upstream, kind string) {
		dir := t.TempDir()
		o := newOrigin(t, kind)
		o.put("edge", web(1)...)
		conf := settings{"upstream.variant": upstream, "upstream.absent_after": "200ms", "store": map[string]any{"path": dir, "interval": "20ms"}}
		first := serve(t, o.addr, conf)
		waitAll(t, envoys(t, first.addr, "edge"), "what the origin has", hasAll(web(1)...))
		first.written(t, dir, 4)
		first.kill()

		silent := newFake(t)
		r := serve(t, silent.addr, conf)
		clients := envoys(t, r.addr, "edge")
		waitAll(t, clients, "what was taken before", hasAll(web(1)...))
		r.waitMetric(t, 4, "stale_types")
		r.waitMetric(t, 1, "upstream_silent_streams", "origin", silent.addr)
		if id := identifier(t, r, fleet.SotW, "edge"); !strings.HasSuffix(id, " (last known good)") {
			t.Errorf("identifier %q", id)
		}
		v := fleet.SotW
		if upstream == "delta" {
			v = fleet.Delta
		}
		silent.send(t, response(v, xds.ClusterType, "2", entryOf(cluster("web", 2))))
		waitAll(t, clients, "the origin's word", hasAll(cluster("web", 2)))
		for _, c := range clients {
			if n := c.Counters().Streams; n != 1 {
				t.Errorf("%s needed %d streams", c, n)
			}
		}
		if log := r.log.String(); strings.Count(log, "the origin says nothing") != 1 || strings.Contains(log, "clients are refused") {
			t.Error(log)
		}
	})
}
