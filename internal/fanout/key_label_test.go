package fanout

import (
	"fmt"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// With the key label, what is counted for clients is counted under their key, for streams and for
// polls, and nothing under an empty key. The series of a key exist while its group has a
// subscriber.
func TestCountsHaveTheirKey(t *testing.T) {
	labelled := func(o *Options) {
		m := xdstest.Must(telemetry.New(telemetry.Options{KeyLabel: true}))(t)
		o.Metrics = m
	}
	t.Run("streams", func(t *testing.T) {
		r := newServerFixture(t, labelled)
		r.metrics = r.srv.metrics
		edge, core := r.groups.Group("edge"), r.groups.Group("core")
		edge.Publish(update(t, xds.ClusterType, "a"))
		core.Publish(update(t, xds.ClusterType, "b"))
		c := r.delta(nil)
		c.ask(xds.ClusterType, "*")
		c.want("a ")
		o := r.delta(nil)
		of := node("o")
		of.Cluster = "core"
		o.must(&discoveryv3.DeltaDiscoveryRequest{Node: of, TypeUrl: string(xds.ClusterType), ResourceNamesSubscribe: []string{"*"}})
		o.want("b ")
		edge.Publish(update(t, xds.ClusterType, "a=2"))
		c.want("a ")
		for _, line := range []string{
			`downstream_acks_total{key="edge",type="CDS"} 2`,
			`downstream_acks_total{key="core",type="CDS"} 1`,
			`downstream_responses_total{key="edge",type="CDS",variant="delta"} 2`,
			`propagation_seconds_count{key="edge",type="CDS"} 1`,
		} {
			r.eventually(func() bool { return strings.Contains(r.scrape(), "xdsrelay_"+line+"\n") })
		}
		if all := r.scrape(); strings.Contains(all, `key=""`) {
			t.Error("there are series of no key")
		}
		xdstest.NoError(t, o.CloseSend())
		r.eventually(func() bool { return !strings.Contains(r.scrape(), `key="core"`) })
	})
	t.Run("polls", func(t *testing.T) {
		r := newREST(t, labelled)
		r.metrics = r.srv.metrics
		r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
		got := r.Ask(r.HTTP("http1"), xds.ClusterType, "")
		if held := r.Holds(got); held != "a " {
			t.Fatal(held)
		}
		all := r.scrape()
		if line := fmt.Sprintf("xdsrelay_downstream_responses_total{key=%q,type=%q,variant=%q} 1\n", "edge", "CDS", "rest"); !strings.Contains(all, line) {
			t.Errorf("no %s", line)
		}
		if strings.Contains(all, `key=""`) {
			t.Error("there are series of no key")
		}
		r.srv.forgetPollers()
		if strings.Contains(r.scrape(), `key="edge"`) {
			t.Error("the series are there without anybody in the group")
		}
	})
}
