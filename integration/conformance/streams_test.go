package conformance

import (
	"strings"
	"testing"

	"xdsrelay/internal/xdstest"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// The node is that of the first request. A later one changes nothing.
func TestP1_NodeOfTheFirstRequest(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, eds, "a=1", "b=1", "c=1")
		cl := c.served("one", eds, "a=1")
		cl.sub(eds, "b") // without a node
		cl.take(eds, "b=1")
		other := proto.CloneOf(cl.node)
		other.Id, other.Cluster = "another", c.key+"-other"
		if c.down == "delta" {
			cl.tell(eds, rawRequest{names: []string{"c"}, node: other})
		} else {
			cl.tell(eds, rawRequest{names: []string{"a", "b", "c"}, nonce: cl.state(eds).nonce, node: other})
		}
		cl.take(eds, "c=1")
		cl.quiet(eds)
		if ever, _ := c.site.opened(); ever != 1 {
			c.Errorf("the origin had %d streams of the key, want 1", ever)
		}
	})
}

// A first request without a node ends the stream.
func TestP1_NoNode(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		cl := c.client("one")
		cl.tell(cds, rawRequest{noNode: true})
		cl.ended(cds, codes.InvalidArgument)
	})
}

// Dynamic parameters of a later node count for types that are subscribed later. They give the same
// key as for a client that sends them at once.
func TestP1_DynamicParametersLater(t *testing.T) {
	each(t, patient, onADS, func(c *trial) {
		c.site.put(c, cds, "a=1")
		c.site.put(c, eds, "a=1")
		with := func(n *corev3.Node) *corev3.Node {
			n = proto.CloneOf(n)
			n.DynamicParameters = map[string]*xdscorev3.ContextParams{string(eds): {Params: map[string]string{"shard": "7"}}}
			return n
		}
		cl := c.client("one", sharded)
		cl.getsAll(cds, "a=1")
		cl.state(eds).names = []string{"a"}
		cl.tell(eds, rawRequest{names: []string{"a"}, node: with(cl.node)})
		cl.take(eds, "a=1")
		if ever, _ := c.site.opened(); ever != 2 {
			c.Fatalf("the origin had %d streams, want one for each shard", ever)
		}
		if asked := c.site.requests(eds)[0].stream; asked != 2 {
			c.Errorf("the later type was requested on stream %d, of the first type's key", asked)
		}
		two := c.client("two", sharded)
		two.node = with(two.node)
		two.gets(eds, "a=1")
		if ever, _ := c.site.opened(); ever != 2 {
			c.Errorf("the origin had %d streams: later parameters give another key than initial ones", ever)
		}
	})
}

// The aggregated service needs a type. The service of one type needs none, and accepts no other.
func TestP2_TypeURL(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, cds, "a=1")
		cl := c.client("one")
		cl.tell(cds, rawRequest{typeless: true})
		if c.ads {
			cl.ended(cds, codes.InvalidArgument)
			return
		}
		cl.take(cds, "a=1")

		other := c.client("two")
		if err := other.open(cds).grpc.SendMsg(first(other, eds)); err != nil {
			c.Fatal(err)
		}
		other.ended(cds, codes.InvalidArgument)
	})
}

// first is a first request for a type, on any stream.
func first(c *client, k kind) proto.Message {
	if c.delta {
		return &discoveryv3.DeltaDiscoveryRequest{Node: c.node, TypeUrl: string(k)}
	}
	return &discoveryv3.DiscoveryRequest{Node: c.node, TypeUrl: string(k)}
}

// An unknown type is handled like any other.
func TestP3_AnyType(t *testing.T) {
	each(t, patient, onADS, func(c *trial) {
		c.site.put(c, acme, "a=1", "b=1")
		cl := c.served("one", acme, "a=1 b=1")
		c.site.put(c, acme, "b=2")
		a := cl.take(acme, "b=2")
		if got := a.bodies["b"]; !proto.Equal(got, body(acme, "b", "2")) {
			c.Errorf("the body came as %v", got)
		}
		cl.quiet()
	})
}

// Every service exists, in each of its variants.
func TestP4_EveryService(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		cl := c.client("one")
		for k, s := range services {
			if k == "" {
				continue
			}
			if s.sotw == "" && !cl.delta && !c.ads {
				continue // TestP4_VirtualHostsAreDelta
			}
			c.site.put(c, k, "a=1")
			cl.gets(k, "a=1")
		}
	})
}

func TestP4_VirtualHostsAreDelta(t *testing.T) {
	each(t, patient, both(downSotW, func(p place) bool { return !p.ads }), func(c *trial) {
		cl := c.client("one")
		cl.streams[vhds] = cl.rawOpen("/" + services[vhds].name + "/StreamVirtualHosts")
		cl.ended(vhds, codes.Unimplemented)
	})
}

// Clients of each service and variant under a key share its one stream.
func TestP4_P50_OneStreamForAllServices(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, cds, "a=1")
		for _, variant := range []string{"sotw", "delta"} {
			for _, ads := range []bool{true, false} {
				cl := c.clientOf(variant, ads, variant)
				cl.getsAll(cds, "a=1")
			}
		}
		c.servedAll("one", cds, "a=1")
		if ever, _ := c.site.opened(); ever != 1 {
			c.Errorf("the origin had %d streams, want 1", ever)
		}
		if n := len(c.site.requests(cds)); n > 2 { // with an ACK
			c.Errorf("the origin received %d requests: %v", n, c.site.requests(cds))
		}
	})
}

// A node without a key is refused, and the error lists the rules that were tried.
func TestP5_Unmapped(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		cl := c.client("one", unmapped)
		cl.sub(cds)
		got := cl.ended(cds, codes.PermissionDenied).Message()
		for _, rule := range []string{"rules[0]", "rules[1]", "rules[2]"} {
			if !strings.Contains(got, rule) {
				c.Errorf("the refusal does not name %s: %q", rule, got)
			}
		}
		if ever, _ := c.site.opened(); ever != 0 {
			c.Errorf("the origin has %d streams for a refused node", ever)
		}
	})
}

// A later type without a key stays unanswered, and the other types go on.
func TestP5_LaterType(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, cds, "a=1")
		c.site.put(c, eds, "a=1")
		cl := c.client("one", onlyClusters)
		cl.getsAll(cds, "a=1")
		cl.sub(eds, "a")
		if !c.ads {
			cl.ended(eds, codes.PermissionDenied) // on its own stream it is the first type
			return
		}
		cl.sub(eds, "b")
		c.site.put(c, cds, "a=2")
		cl.take(cds, "a=2")
		cl.nothing("", "the change")
		if r := c.site.requests(eds); len(r) != 0 {
			c.Errorf("the origin received requests for a type without a key: %v", r)
		}
	})
}

// guarded relays have the default setting for Secrets.
var guarded = profile{"guarded", xdstest.Config{"downstream.secrets": "mtls"}}

// A client without a verified certificate receives no Secrets.
func TestP6_Secrets(t *testing.T) {
	each(t, guarded, anywhere, func(c *trial) {
		c.site.put(c, sds, "s=1")
		c.site.put(c, cds, "a=1")
		cl := c.servedAll("one", cds, "a=1")
		cl.sub(sds, "s")
		if !c.ads {
			cl.ended(sds, codes.PermissionDenied)
		} else {
			cl.quiet()
		}
		if r := c.site.requests(sds); len(r) != 0 {
			c.Errorf("the origin received requests for Secrets: %v", r)
		}
	})
}
