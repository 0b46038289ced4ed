package conformance

import (
	"slices"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// The order of context parameters is part of a name: another order is another name.
func TestP28_ContextParameters(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		const base = "xdstp://auth/envoy.config.route.v3.RouteConfiguration/a/b"
		c.site.manual(rds)
		one, two := c.client("one"), c.client("two")
		one.sub(rds, base+"?x&y")
		two.sub(rds, base+"?y&x")
		for _, name := range []string{base + "?x&y", base + "?y&x"} {
			c.site.await(c, rds, "the request for "+name, func(r request) bool { return holds(r.names, name) })
		}
		up := c.site.stream(c, 1)
		up.reply(c, rds, "1", base+"?y&x=v")
		two.take(rds, base+"?y&x=v")
		up.reply(c, rds, "2", base+"?x&y=w")
		one.take(rds, base+"?x&y=w")
	})
}

// A delta client is told that a glob has no member.
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

// A resource can be subscribed and unsubscribed by its name and by its aliases.
func TestP26_ByAlias(t *testing.T) {
	each(t, patient, downDelta, func(c *trial) {
		byAlias, byName := c.client("by-alias"), c.client("by-name")
		up := byAlias.byHand(vhds, "r/host")
		vh := func(value string) *discoveryv3.Resource {
			return &discoveryv3.Resource{Name: "r/vh", Version: value, Aliases: []string{"r/host", "r/other"}, Resource: body(vhds, "r/vh", value)}
		}
		up.wrapped(c, vhds, "1", vh("1"))
		a := byAlias.take(vhds, "r/vh=1")
		if got := a.wraps["r/vh"].Aliases; !slices.Equal(got, []string{"r/host", "r/other"}) {
			c.Errorf("its aliases came as %v", got)
		}
		byName.gets(vhds, "r/vh=1")
		byOther := c.client("by-other")
		byOther.sub(vhds, "r/other")
		byOther.take(vhds, "r/vh=1")
		up.wrapped(c, vhds, "2", vh("2"))
		for _, cl := range []*client{byAlias, byName, byOther} {
			cl.take(vhds, "r/vh=2")
		}
		byName.unsub(vhds, "r/other") // the same resource by another of its names
		byName.sub(vhds, "r/later")
		c.site.await(c, vhds, "the later request", func(r request) bool { return holds(r.names, "r/later") })
		up.wrapped(c, vhds, "3", vh("3"))
		byAlias.take(vhds, "r/vh=3")
		byOther.take(vhds, "r/vh=3")
		if c.ads {
			byName.quiet()
		}
		byName.nothing(vhds, "the end")
		if up.delta {
			up.send(c, up.response(vhds, "4", "-r/vh"))
			for _, cl := range []*client{byAlias, byOther} { // and the names that they subscribe to
				if a := cl.next(vhds); !holds(a.removed, "r/vh") || len(a.bodies) > 0 {
					c.Errorf("the removal came as %q", a)
				}
			}
		}
	})
}

// A resource with aliases and without a body says that the alias cannot be resolved. It is passed
// to the clients that subscribe to it, and is not stored.
func TestP18_AliasUnresolved(t *testing.T) {
	each(t, patient, both(upDelta, downDelta), func(c *trial) {
		cl, up := c.byHand(vhds, "r/host")
		up.send(c, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(vhds), Nonce: "n",
			Resources: []*discoveryv3.Resource{{Name: "r/host", Version: "1", Aliases: []string{"r/host"}}}})
		up.acked(c, vhds, "n")
		a := cl.take(vhds, "r/host=(none)")
		if w := a.wraps["r/host"]; len(w.Aliases) != 1 || w.Aliases[0] != "r/host" {
			c.Errorf("it came as %v", w)
		}
	})
}

// A glob subscribes to every resource whose name differs only in the last segment.
func TestP28_Globs(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		const base = "xdstp://auth/envoy.config.cluster.v3.Cluster/"
		glob := base + "foo/*"
		c.site.manual(cds)
		cl := c.client("one")
		cl.sub(cds, glob)
		r := c.site.request(c, cds, 1)
		if !holds(r.names, glob) {
			c.Errorf("the origin received requests for %v", r)
		}
		up := c.site.stream(c, 1)
		up.reply(c, cds, "1", base+"foo/a=1", base+"foo/b=1")
		cl.take(cds, base+"foo/a=1 "+base+"foo/b=1")
		if up.delta {
			up.reply(c, cds, "2", base+"foo/c=1", "-"+base+"foo/a")
		} else {
			up.reply(c, cds, "2", base+"foo/b=1", base+"foo/c=1")
		}
		if !cl.delta {
			cl.take(cds, base+"foo/b=1 "+base+"foo/c=1")
			return
		}
		if a := cl.next(cds); a.String() == base+"foo/c=1" {
			// An answer in flight does not delay a resource that appears (P25).
			cl.ack(a)
			cl.take(cds, "-"+base+"foo/a")
		} else if want := base + "foo/c=1 -" + base + "foo/a"; a.String() != want {
			c.Errorf("the change came as %q, want %q", a, want)
		}
	})
}
