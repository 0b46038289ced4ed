package conformance

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// Context parameters are compared whatever their order, and sent as written.
func TestP28_ContextParameters(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		const base = "xdstp://auth/envoy.config.route.v3.RouteConfiguration/a/b"
		c.site.manual(rds)
		one, two := c.client("one"), c.client("two")
		one.sub(rds, base+"?x=1&y=2")
		c.site.request(c, rds, 1)
		up := c.site.stream(c, 1)
		m := up.response(rds, "1")
		name := base + "?y=2&x=1"
		b := &anypb.Any{TypeUrl: string(rds), Value: body(rds, name, "v").Value}
		switch r := m.(type) {
		case *discoveryv3.DeltaDiscoveryResponse:
			r.Resources = []*discoveryv3.Resource{{Name: name, Version: "1", Resource: b}}
		case *discoveryv3.DiscoveryResponse:
			r.Resources = []*anypb.Any{b}
		}
		up.send(c, m)
		if r := up.reaction(c, rds, "1"); r.err != "" {
			c.Fatalf("refused: %s", r.err)
		}
		one.take(rds, name+"=v")
		two.sub(rds, base+"?y=2&x=1")
		two.take(rds, name+"=v")
		for _, r := range c.site.requests(rds) {
			if len(r.names) > 1 {
				c.Errorf("both orders were asked for: %v", r)
			}
		}
	})
}

// Of a glob that has no member, an incremental client is told.
func TestP28_EmptyGlob(t *testing.T) {
	each(t, patient, both(upDelta, downDelta), func(c *trial) {
		const glob = "xdstp://auth/envoy.config.cluster.v3.Cluster/foo/*"
		c.site.manual(cds)
		cl := c.client("one")
		cl.sub(cds, glob)
		c.site.request(c, cds, 1)
		c.site.stream(c, 1).reply(c, cds, "1", "-"+glob)
		cl.take(cds, "-"+glob)
	})
}
