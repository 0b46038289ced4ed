package integration

import (
	"strings"
	"testing"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
)

// P66: a relay that restarts beside an origin that takes streams and answers nothing serves
// what is stored after first_answer_timeout, marked as such. The origin's answer replaces it on
// the same streams.
func TestP66_StoredIsServedBesideASilentOrigin(t *testing.T) {
	eachOrigin(t, func(t *testing.T, upstream, kind string) {
		dir := t.TempDir()
		o := newOrigin(t, kind)
		gone := cluster("gone", 1)
		o.put("edge", append(web(1), gone, endpoints("gone", 1))...)
		conf := settings{"upstream.variant": upstream, "upstream.first_answer_timeout": "300ms", "store": map[string]any{"path": dir, "interval": "20ms"}}
		first := serve(t, o.addr, conf)
		waitAll(t, envoys(t, first.addr, "edge"), "what the origin has", hasAll(append(web(1), gone)...))
		first.written(t, dir, 4)
		first.kill()

		silent := newFake(t)
		r := serve(t, silent.addr, conf)
		clients := envoys(t, r.addr, "edge")
		waitAll(t, clients, "what is stored", hasAll(append(web(1), gone)...))
		r.waitMetric(t, 4, "stale_types")
		if id := identifier(t, r, fleet.SotW, "edge"); !strings.HasSuffix(id, " (last known good)") {
			t.Errorf("identifier %q", id)
		}
		v := fleet.SotW
		if upstream == "delta" {
			v = fleet.Delta
		}
		answer := response(v, xds.ClusterType, "2", entryOf(cluster("web", 2)))
		silent.send(t, answer)
		waitAll(t, clients, "the origin's answer", hasAll(cluster("web", 2)))
		if v == fleet.SotW {
			waitAll(t, clients, "the deletion", hasNot(xds.ClusterType, "gone"))
		}
		for _, c := range clients {
			if n := c.Counters().Streams; n != 1 {
				t.Errorf("%s needed %d streams", c, n)
			}
		}
		if log := r.log.String(); !strings.Contains(log, "served from the last known good: the origin says nothing") || strings.Contains(log, "clients are refused") {
			t.Error(log)
		}
	})
}
