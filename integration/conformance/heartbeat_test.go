package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// withTTL is a resource with a TTL.
func withTTL(k kind, name, version string, ttl time.Duration) *discoveryv3.Resource {
	return &discoveryv3.Resource{Name: name, Version: version, Ttl: durationpb.New(ttl), Resource: body(k, name, version)}
}

// heartbeat is a heartbeat for withTTL. In SotW it means the version_info of its response.
func heartbeat(name, version string, ttl time.Duration) *discoveryv3.Resource {
	return &discoveryv3.Resource{Name: name, Version: version, Ttl: durationpb.New(ttl)}
}

// ttlClient is a client that supports TTLs and heartbeats in both variants.
func (c *trial) ttlClient(id string) *client {
	cl := c.client(id)
	cl.node.ClientFeatures = []string{featureTTL, featureWrap}
	return cl
}

// again sends a response with this nonce.
func (u *upstream) again(t testing.TB, k kind, version, nonce string, resources ...*discoveryv3.Resource) {
	t.Helper()
	m := u.wrap(t, k, version, resources...)
	setNonce(m, nonce)
	u.send(t, m)
	u.acked(t, k, nonce)
}

// ttls formats the TTLs of a response: "a=1m0s b". They are rounded to minutes, because a TTL is what
// is left of it.
func (a answer) ttls() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(a.wraps)) {
		if w := a.wraps[name]; isFence(name) {
			continue
		} else if w.Ttl != nil {
			name += fmt.Sprintf("=%v", w.Ttl.AsDuration().Round(time.Minute))
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

// A TTL passes through. A heartbeat is sent to clients that hold the resource, with the version
// that they received.
func TestP62_HeartbeatsAtTheVersionGiven(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		cl := c.ttlClient("one")
		up := cl.byHand(rds, "a", "b")
		up.wrapped(c, rds, "1", withTTL(rds, "a", "1", time.Minute), &discoveryv3.Resource{Name: "b", Version: "1", Resource: body(rds, "b", "1")})
		first := cl.take(rds, "a=1 b=1")
		if got := first.ttls(); got != "a=1m0s b" {
			c.Errorf("TTLs %q", got)
		}
		plain := c.client("plain")
		plain.sub(rds, "a", "b")
		if got := plain.take(rds, "a=1 b=1"); strings.Contains(got.ttls(), "=") || !plain.delta && len(got.wraps) > 0 {
			c.Errorf("a client without TTL support received TTLs %q of %v", got.ttls(), got.wraps)
		}
		other := c.ttlClient("other")
		other.gets(rds, "b=1")

		for i, ttl := range []time.Duration{time.Minute, 2 * time.Minute} {
			// The resource's version says that it is the same, also in a response of another version.
			up.again(c, rds, fmt.Sprint(i+1), fmt.Sprint("heartbeat-", i), heartbeat("a", "1", ttl))
			got := cl.take(rds, "a=(none)")
			w := got.wraps["a"]
			if w == nil || w.Ttl.AsDuration().Round(time.Minute) != ttl {
				c.Fatalf("the heartbeat is %v", got.msg)
			}
			want := first.version
			if cl.delta {
				want = first.wraps["a"].Version
			}
			if w.Version != want || !cl.delta && got.version != want {
				c.Errorf("the heartbeat is of version %q under %q, want %q", w.Version, got.version, want)
			}
		}
		for _, someone := range []*client{plain, other} {
			up.again(c, rds, "1", "c-"+someone.node.Id, heartbeat("a", "1", time.Minute))
			someone.sub(rds, "c-"+someone.node.Id)
			c.site.await(c, rds, "the name", func(r request) bool { return slices.Contains(r.names, "c-"+someone.node.Id) })
			up.again(c, rds, "1", "d-"+someone.node.Id, &discoveryv3.Resource{Name: "c-" + someone.node.Id, Version: "1", Resource: body(rds, "c-"+someone.node.Id, "1")})
			someone.take(rds, "c-"+someone.node.Id+"=1") // with nothing before it
		}
	})
}

// A late joiner receives the remaining TTL, and after a heartbeat the whole TTL.
func TestP62_LateJoiners(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		const ttl = time.Hour
		cl := c.ttlClient("one")
		up := cl.byHand(rds, "a")
		up.wrapped(c, rds, "1", withTTL(rds, "a", "1", ttl))
		cl.take(rds, "a=1")
		n := 0
		left := func() time.Duration {
			n++
			late := c.ttlClient(fmt.Sprint("late-", n))
			late.sub(rds, "a")
			d := late.take(rds, "a=1").wraps["a"].Ttl.AsDuration()
			late.reconnect()
			return d
		}
		xdstest.Eventually(c, "the TTL to run", func() error {
			if d := left(); d > ttl-2*time.Second {
				return errorf("%v are left", d)
			} else if d < ttl-xdstest.Patience {
				c.Fatalf("%v are left", d)
			}
			return nil
		})
		up.again(c, rds, "1", "heartbeat", heartbeat("a", "1", ttl))
		cl.take(rds, "a=(none)")
		if d := left(); d < ttl-2*time.Second {
			c.Errorf("after a heartbeat %v are left", d)
		}
		up.again(c, rds, "1", "longer", heartbeat("a", "1", 2*ttl))
		cl.take(rds, "a=(none)")
		if d := left(); d <= ttl {
			c.Errorf("after a heartbeat with a longer TTL %v are left", d)
		}
	})
}

// The relay does not serve an expired resource to new clients, nor remove it at those that have it. It
// is new when it returns.
func TestP62_Expired(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		for _, k := range []kind{cds, rds} {
			c.site.manual(k)
			cl := c.ttlClient("one")
			if k == cds {
				cl.sub(k)
			} else {
				cl.sub(k, "a", "b")
			}
			first := c.site.await(c, k, "a request", func(r request) bool { return true })
			up := c.site.stream(c, first.stream)
			b := &discoveryv3.Resource{Name: "b", Version: "1", Resource: body(k, "b", "1")}
			up.wrapped(c, k, "1", withTTL(k, "a", "1", 2*time.Second), b)
			cl.take(k, "a=1 b=1")
			xdstest.Eventually(c, "the resource's end", func() error {
				if page := c.relay.get(c, "/keys/"+c.key); !strings.Contains(page, `"resources": 1`) {
					return errorf("%s", page)
				}
				return nil
			})
			late := c.ttlClient("late")
			late.sub(k, first.names...)
			if got := late.next(k); got.bodies["a"] != nil || got.bodies["b"] == nil {
				c.Errorf("a new client received %q", got)
			}
			late.reconnect()
			up.again(c, k, "2", "return", withTTL(k, "a", "1", time.Hour), b)
			cl.takeFull(k, "a=1 b=1", "a=1")
		}
	})
}

// A client that only declares support for unwrapping, as gRPC does, receives the resource itself
// instead of a heartbeat.
func TestP62_ClientThatOnlyUnwraps(t *testing.T) {
	each(t, patient, downSotW, func(c *trial) {
		cl := c.client("one")
		cl.node.ClientFeatures = []string{"xds.config.resource-in-sotw"}
		up := cl.byHand(rds, "a")
		up.wrapped(c, rds, "1", withTTL(rds, "a", "1", time.Minute))
		if got := cl.take(rds, "a=1").ttls(); got != "a=1m0s" {
			c.Errorf("TTLs %q", got)
		}
		up.again(c, rds, "1", "heartbeat", heartbeat("a", "1", time.Hour))
		if got := cl.take(rds, "a=1").ttls(); got != "a=1h0m0s" {
			c.Errorf("TTLs %q", got)
		}
	})
}
