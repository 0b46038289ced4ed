package conformance

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// wrapped sends resources in full, in either variant, and waits for the relay's ACK.
func (u *upstream) wrapped(t testing.TB, k kind, version string, resources ...*discoveryv3.Resource) {
	t.Helper()
	u.send(t, u.wrap(t, k, version, resources...))
	u.acked(t, k, version)
}

// wrap makes a response of the stream's variant from resources in full.
func (u *upstream) wrap(t testing.TB, k kind, version string, resources ...*discoveryv3.Resource) proto.Message {
	t.Helper()
	if u.delta {
		return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(k), SystemVersionInfo: version, Nonce: version, Resources: resources}
	}
	r := &discoveryv3.DiscoveryResponse{TypeUrl: string(k), VersionInfo: version, Nonce: version}
	for _, w := range resources {
		a, err := anypb.New(w)
		if err != nil {
			t.Fatal(err)
		}
		r.Resources = append(r.Resources, a)
	}
	return r
}

const (
	featureTTL  = "xds.config.supports-resource-ttl"
	featureWrap = "xds.config.supports-resource-in-sotw"
)

// A do_not_cache resource is held only while a client subscribes to it, and the stream that
// delivered it is open.
func TestP63_DoNotCache(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		fresh := func(v string) *discoveryv3.Resource {
			return &discoveryv3.Resource{Name: "a", Version: v, Resource: body(rds, "a", v),
				CacheControl: &discoveryv3.Resource_CacheControl{DoNotCache: true}}
		}
		cl, up := c.byHand(rds, "a")
		up.wrapped(c, rds, "1", fresh("1"))
		cl.take(rds, "a=1")
		two := c.served("two", rds, "a=1") // a client subscribes
		two.reconnect()
		cl.unsub(rds, "a")
		c.site.asksFor(c, rds) // no linger
		two.sub(rds, "a")
		c.site.asksFor(c, rds, "a")
		two.nothing(rds, "the origin's answer")
		up.wrapped(c, rds, "2", fresh("2"))
		two.take(rds, "a=2")

		// It is not served when the origin is away.
		c.site.leave()
		c.site.stream(c, 4)
		late := c.client("late")
		late.sub(rds, "a")
		ever, _ := c.site.opened()
		c.site.stream(c, ever+2)
		if s := late.on(rds); len(s.in) != 0 {
			c.Errorf("it was served from the cache: %v", s.in)
		}
	})
}

// A full-state SotW client receives the whole set instead of a heartbeat.
func TestP62_HeartbeatOfFullState(t *testing.T) {
	each(t, patient, downSotW, func(c *trial) {
		cl := c.ttlClient("one")
		up := cl.byHand(cds)
		ttl := durationpb.New(time.Hour)
		a := &discoveryv3.Resource{Name: "a", Version: "1", Ttl: ttl, Resource: body(cds, "a", "1")}
		b := &discoveryv3.Resource{Name: "b", Version: "1", Resource: body(cds, "b", "1")}
		up.wrapped(c, cds, "1", a, b)
		cl.take(cds, "a=1 b=1")
		up.wrapped(c, cds, "2", &discoveryv3.Resource{Name: "a", Version: "1", Ttl: ttl})
		cl.take(cds, "a=1 b=1")
	})
}
