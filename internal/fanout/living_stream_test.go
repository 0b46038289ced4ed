package fanout

import (
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// A client is told apart by the features of its node, on both kinds of streams;
// what is renewed for it is counted, and so is what it never saw.
func TestP62_FeaturesOfTheNode(t *testing.T) {
	r := newServerFixture(t, nil)
	g := r.groups.Group("edge")
	begin := time.Now()
	life := func(at time.Time) snapshot.Update {
		u := update(t, xds.ClusterType, "a")
		u.Changed[0] = u.Changed[0].RenewTTL(time.Hour, at)
		return u
	}
	g.Publish(life(begin))
	takes := node("takes")
	takes.ClientFeatures = []string{xds.FeatureTTL, xds.FeatureSupportsResourceInSotW}

	c, plain := r.delta(nil), r.delta(nil)
	c.must(&discoveryv3.DeltaDiscoveryRequest{Node: takes, TypeUrl: string(xds.ClusterType)})
	plain.ask(xds.ClusterType, "*")
	first := xdstest.Must(c.Recv())(t)
	if first.Resources[0].Ttl.AsDuration() != time.Hour {
		t.Errorf("%v", first)
	}
	if got := plain.want("a "); got.Resources[0].Ttl != nil {
		t.Errorf("to who takes none: %v", got)
	}
	s := r.ads(r.dial(), xds.SotW)
	s.ask(takes, xds.ClusterType)
	whole := s.Next()
	wrapped := new(discoveryv3.Resource)
	if err := whole.Resources[0].UnmarshalTo(wrapped); err != nil || wrapped.Ttl.AsDuration() != time.Hour {
		t.Errorf("%v, %v", wrapped, err)
	}

	g.Publish(life(begin.Add(time.Second))) // while nothing is acknowledged
	g.Publish(life(begin.Add(2 * time.Second)))
	c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(xds.ClusterType), ResponseNonce: first.Nonce})
	beat := c.recv()
	if len(beat.Resources) != 1 || beat.Resources[0].Resource != nil || beat.Resources[0].Version != first.Resources[0].Version {
		t.Errorf("heartbeat %v", beat)
	}
	for _, line := range []string{`xdsrelay_downstream_heartbeats_total{type="CDS"} 1`, `xdsrelay_heartbeats_coalesced_total{type="CDS"} 1`} {
		r.eventually(func() bool { return strings.Contains(r.scrape(), line+"\n") })
	}
	// A client that reads nothing received nothing.
	g.Publish(update(t, xds.ClusterType, "b"))
	plain.want("b ")
}
