package conformance

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// fault is an invalid response.
type fault struct {
	name  string
	sotw  *discoveryv3.DiscoveryResponse
	delta *discoveryv3.DeltaDiscoveryResponse
}

func faults() []fault {
	res := func(name string, b *anypb.Any) *discoveryv3.Resource {
		return &discoveryv3.Resource{Name: name, Version: "x", Resource: b}
	}
	a2, other := body(rds, "a", "2"), body(cds, "a", "2")
	return []fault{
		{"the same name twice",
			&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{a2, body(rds, "a", "3")}},
			&discoveryv3.DeltaDiscoveryResponse{Resources: []*discoveryv3.Resource{res("a", a2), res("a", body(rds, "a", "3"))}}},
		{"another type",
			&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{a2, other}},
			&discoveryv3.DeltaDiscoveryResponse{Resources: []*discoveryv3.Resource{res("a", a2), res("b", other)}}},
		{"no name",
			&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{a2, body(rds, "", "2")}},
			&discoveryv3.DeltaDiscoveryResponse{Resources: []*discoveryv3.Resource{res("a", a2), res("", body(rds, "", "2"))}}},
		{"an unreadable body",
			&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{a2, {TypeUrl: string(rds), Value: []byte("\x0a\xff")}}}, nil},
		{"a name that comes and goes", nil,
			&discoveryv3.DeltaDiscoveryResponse{Resources: []*discoveryv3.Resource{res("a", a2)}, RemovedResources: []string{"a"}}},
	}
}

// An invalid response is NACKed with a reason, and the held resources stay. Later valid responses
// are accepted.
func TestP18_FaultsAreNACKed(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		cl, up := c.byHand(rds, "a", "b")
		up.reply(c, rds, "first", "a=1", "b=1")
		cl.take(rds, "a=1 b=1")
		for _, f := range faults() {
			var m proto.Message
			if c.up == "sotw" && f.sotw != nil {
				f.sotw.TypeUrl, f.sotw.VersionInfo, f.sotw.Nonce = string(rds), f.name, f.name
				m = f.sotw
			} else if c.up == "delta" && f.delta != nil {
				f.delta.TypeUrl, f.delta.Nonce = string(rds), f.name
				m = f.delta
			} else {
				continue
			}
			up.send(c, m)
			if r := up.reaction(c, rds, f.name); r.err == "" {
				c.Errorf("%s: acknowledged", f.name)
			} else if r.version == f.name {
				c.Errorf("%s: the NACK has the version that it rejects: %v", f.name, r)
			}
		}
		if c.ads {
			cl.quiet()
		}
		up.accepts(c, rds, "last", "a=3", "b=1")
		cl.take(rds, "a=3")
	})
}

// Wrapped resources of a SotW origin are valid.
func TestP18_WrappedResources(t *testing.T) {
	each(t, patient, upSotW, func(c *trial) {
		cl, up := c.byHand(rds, "a", "b")
		wrapped, err := anypb.New(&discoveryv3.Resource{Name: "a", Version: "7", Resource: body(rds, "a", "1")})
		if err != nil {
			c.Fatal(err)
		}
		up.send(c, &discoveryv3.DiscoveryResponse{TypeUrl: string(rds), VersionInfo: "1", Nonce: "n",
			Resources: []*anypb.Any{wrapped, body(rds, "b", "1")}})
		up.acked(c, rds, "n")
		cl.take(rds, "a=1 b=1")
	})
}

// The relay acknowledges a response without waiting for clients. It does not pass a client's NACK
// to the origin.
func TestP18_WaitsForNoClient(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		cl, up := c.byHand(rds, "a")
		for _, v := range []string{"1", "2", "3"} { // no client acknowledges these
			up.accepts(c, rds, "n"+v, "a="+v)
		}
		a := cl.next(rds)
		cl.nack(a)
		cl.until(rds, "a=3")
		if c.ads {
			cl.quiet()
		}
		for _, r := range c.site.requests("") {
			if r.err != "" {
				c.Errorf("a client's NACK was passed up: %v", r)
			}
		}
	})
}
