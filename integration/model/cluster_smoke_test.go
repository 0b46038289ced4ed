package model

import (
	"fmt"
	"testing"
	"time"

	"xdsrelay/internal/xds"
)

// Each event of CLUSTER.md, one by one: at rest each key has one stream at the origin, and every client
// has what the origin has.
func TestCluster_Events(t *testing.T) {
	const key, compat = "a", "c1"
	owner := func(w *clusterFixture) *relay { return w.owner(key, compat) }
	for _, e := range []struct {
		name  string
		event func(w *clusterFixture)
	}{
		{"owner killed", func(w *clusterFixture) { w.killed(owner(w), 30*time.Second) }},
		{"owner restarts", func(w *clusterFixture) { w.restarted(owner(w)) }},
		{"owner drained", func(w *clusterFixture) { w.drained(owner(w)) }},
		{"other killed", func(w *clusterFixture) { w.killed(w.others(owner(w))[0], 30*time.Second) }},
		{"gossip cut", func(w *clusterFixture) { r := owner(w); w.cutOff(r, w.others(r), false, true, true, 2*time.Minute) }},
		{"connections cut", func(w *clusterFixture) { r := owner(w); w.cutOff(r, w.others(r), true, false, true, 2*time.Minute) }},
		{"split", func(w *clusterFixture) { r := owner(w); w.cutOff(r, w.others(r), true, true, true, 2*time.Minute) }},
		{"one way from the owner", func(w *clusterFixture) { r := owner(w); w.cutOff(r, w.others(r), true, true, false, time.Minute) }},
		{"one way to the owner", func(w *clusterFixture) {
			r := owner(w)
			for _, o := range w.others(r) {
				w.cutOff(o, []*relay{r}, true, true, false, time.Minute)
			}
		}},
		{"pause", func(w *clusterFixture) { r := owner(w); w.cutOff(r, w.others(r), true, true, true, 20*time.Second) }},
		{"owner loses the origin", func(w *clusterFixture) { w.withoutOrigin([]*relay{owner(w)}, 2*time.Minute) }},
		{"all lose the origin", func(w *clusterFixture) { w.withoutOrigin(w.running(), 2*time.Minute) }},
		{"the origin refuses", func(w *clusterFixture) { w.refused(2 * time.Minute) }},
		{"the origin restarts", func(w *clusterFixture) { w.o.cut() }},
		{"another relay", func(w *clusterFixture) { w.start("relay-x", compat) }},
		{"another compat", func(w *clusterFixture) { r := owner(w); w.kill(r); w.start(r.name, "c2") }},
		{"all restart", func(w *clusterFixture) {
			for _, r := range w.running() {
				w.restarted(r)
			}
		}},
	} {
		for name, v := range variants {
			t.Run(fmt.Sprint(e.name, "/", name), func(t *testing.T) {
				t.Parallel()
				inCluster(t, v, 3, 1, func(w *clusterFixture) {
					w.rest("start")
					for i := range 9 {
						key := []string{"a", "b", "c"}[i%3]
						w.join(key, []xds.Variant{xds.Delta, xds.SotW}[i/3%2], subscriptions(key, i))
					}
					w.rest("clients")
					w.event(func() { e.event(w) })
					w.rest(e.name)
					w.busy(10 * time.Second)
					w.rest("changes")
				})
			})
		}
	}
}

// subscriptions of the i-th client: of key a the wildcard, of b names, of c both.
func subscriptions(key string, i int) map[xds.TypeURL]*watched {
	out := make(map[xds.TypeURL]*watched)
	for _, typ := range types {
		t := &watched{names: []string{"a", "b", "p"}}
		if key == "a" || key == "c" && (typ == cds || i%2 == 0) {
			t = &watched{wild: true}
		}
		out[typ] = t
	}
	return out
}
