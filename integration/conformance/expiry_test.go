package conformance

import (
	"testing"
	"time"

	"xdsrelay/internal/xdstest"

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

// An expired resource is not served to new clients.
func TestP62_Expired(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.manual(rds)
		cl := c.client("one")
		cl.node.ClientFeatures = []string{featureTTL, featureWrap}
		cl.sub(rds, "a", "b")
		c.site.request(c, rds, 1)
		up := c.site.stream(c, 1)
		up.wrapped(c, rds, "1",
			&discoveryv3.Resource{Name: "a", Version: "1", Ttl: durationpb.New(time.Second), Resource: body(rds, "a", "1")},
			&discoveryv3.Resource{Name: "b", Version: "1", Resource: body(rds, "b", "1")})
		cl.take(rds, "a=1 b=1")
		n := 0
		xdstest.Eventually(c, "the resource's end", func() error {
			n++
			late := c.client(names("late-", n+1)[n])
			late.sub(rds, "a", "b")
			a := late.next(rds)
			late.reconnect()
			if a.bodies["a"] != nil {
				return errorf("it is still served")
			}
			return nil
		})
	})
}

// A do_not_cache resource is held only while a client subscribes to it, and the stream that
// delivered it is open.
func TestP63_DoNotCache(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.manual(rds)
		fresh := func(v string) *discoveryv3.Resource {
			return &discoveryv3.Resource{Name: "a", Version: v, Resource: body(rds, "a", v),
				CacheControl: &discoveryv3.Resource_CacheControl{DoNotCache: true}}
		}
		cl := c.client("one")
		cl.sub(rds, "a")
		c.site.request(c, rds, 1)
		up := c.site.stream(c, 1)
		up.wrapped(c, rds, "1", fresh("1"))
		cl.take(rds, "a=1")
		two := c.client("two")
		two.sub(rds, "a")
		two.take(rds, "a=1") // a client subscribes
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

// TTLs are passed to clients that declare support. Heartbeats are sent to clients that hold the
// resource, with the version that they received.
func TestP62_TTLAndHeartbeats(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.manual(rds)
		knows, old := c.client("knows"), c.client("old")
		knows.node.ClientFeatures = []string{featureTTL, featureWrap}
		knows.sub(rds, "a", "b")
		c.site.request(c, rds, 1)
		up := c.site.stream(c, 1)
		ttl := durationpb.New(time.Hour)
		b := &discoveryv3.Resource{Name: "b", Version: "1", Resource: body(rds, "b", "1")}
		up.wrapped(c, rds, "1", &discoveryv3.Resource{Name: "a", Version: "1", Ttl: ttl, Resource: body(rds, "a", "1")}, b)
		first := knows.take(rds, "a=1 b=1")
		w := first.wraps["a"]
		if w == nil {
			c.Fatalf("the resource came unwrapped: %v", first.msg)
		}
		if got := w.GetTtl().AsDuration(); got <= time.Hour-time.Minute || got > time.Hour {
			c.Errorf("the TTL is %v", got)
		}
		old.sub(rds, "a", "b")
		plain := old.take(rds, "a=1 b=1")
		if w := plain.wraps["a"]; w.GetTtl() != nil || w != nil && !old.delta {
			c.Errorf("a client without TTL support received %v", w)
		}

		up.wrapped(c, rds, "2", &discoveryv3.Resource{Name: "a", Version: "1", Ttl: durationpb.New(2 * time.Hour)})
		heartbeat := knows.take(rds, "a=(none)")
		if got := heartbeat.wraps["a"].GetTtl().AsDuration(); got <= time.Hour {
			c.Errorf("the heartbeat's TTL is %v", got)
		}
		if knows.delta && heartbeat.wraps["a"].Version != w.Version || !knows.delta && heartbeat.version != first.version {
			c.Errorf("the heartbeat has version %q %q, the client has %q %q", heartbeat.version, heartbeat.wraps["a"].Version, first.version, w.Version)
		}
		knows.quiet2(rds, nil, "")
		if c.ads {
			old.quiet()
		}
		late := c.client("late")
		late.node.ClientFeatures = knows.node.ClientFeatures
		late.sub(rds, "a")
		if got := late.take(rds, "a=1").wraps["a"].GetTtl().AsDuration(); got <= time.Hour || got > 2*time.Hour {
			c.Errorf("the late joiner's TTL is %v", got)
		}
	})
}

// A full-state SotW client receives the whole set instead of a heartbeat.
func TestP62_HeartbeatOfFullState(t *testing.T) {
	each(t, patient, downSotW, func(c *trial) {
		c.site.manual(cds)
		cl := c.client("one")
		cl.node.ClientFeatures = []string{featureTTL, featureWrap}
		cl.sub(cds)
		c.site.request(c, cds, 1)
		up := c.site.stream(c, 1)
		ttl := durationpb.New(time.Hour)
		a := &discoveryv3.Resource{Name: "a", Version: "1", Ttl: ttl, Resource: body(cds, "a", "1")}
		b := &discoveryv3.Resource{Name: "b", Version: "1", Resource: body(cds, "b", "1")}
		up.wrapped(c, cds, "1", a, b)
		cl.take(cds, "a=1 b=1")
		up.wrapped(c, cds, "2", &discoveryv3.Resource{Name: "a", Version: "1", Ttl: ttl})
		cl.take(cds, "a=1 b=1")
	})
}
