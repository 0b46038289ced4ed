package conformance

import (
	"slices"
	"strings"
	"testing"

	"xdsrelay/internal/xdstest"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// A full-state SotW response holds everything, even after a removal. With no resources left it is
// empty. A delta response holds the change.
func TestP30_P32_FullStateAndChanges(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		for _, k := range []kind{cds, lds, srds} {
			c.site.put(c, k, "a=1", "b=1")
			cl := c.servedAll("one", k, "a=1 b=1")
			c.site.put(c, k, "a=2")
			cl.takeFull(k, "a=2 b=1", "a=2")
			c.site.put(c, k, "-b", "c=1")
			cl.takeFull(k, "a=2 c=1", "c=1 -b")
			c.site.put(c, k, "-a", "-c")
			cl.takeFull(k, "", "-a -c")
			cl.quiet(k)
		}
	})
}

// With names, it holds everything that the stream subscribes to, and no more.
func TestP30_FullStateOfNames(t *testing.T) {
	each(t, patient, downSotW, func(c *trial) {
		c.site.put(c, cds, "a=1", "b=1", "c=1")
		other := c.client("other") // wants what the client does not want
		other.gets(cds, "c=1")
		cl := c.client("one")
		cl.sub(cds, "a", "b")
		cl.until(cds, "b=1")
		c.site.put(c, cds, "a=2", "c=2")
		cl.take(cds, "a=2 b=1")
		c.site.put(c, cds, "-a")
		cl.take(cds, "b=1")
		c.site.put(c, cds, "-b")
		cl.take(cds, "")
		cl.quiet(cds)
	})
}

// SotW, other types: only changes are sent. A removal sends nothing.
func TestP31_OtherTypes(t *testing.T) {
	each(t, patient, downSotW, func(c *trial) {
		for _, k := range []kind{eds, rds, sds, rtds, ecds} {
			c.site.put(c, k, "a=1", "b=1", "c=1")
			cl := c.served("one", k, "a=1 b=1 c=1")
			c.site.put(c, k, "a=2", "c=2")
			cl.take(k, "a=2 c=2")
			c.site.put(c, k, "-b")
			cl.quiet(k)
			c.site.put(c, k, "c=3")
			cl.take(k, "c=3")
		}
	})
}

// Delta: changes and removed names are sent.
func TestP32_ChangesAndRemovals(t *testing.T) {
	each(t, patient, both(downDelta, upDelta), func(c *trial) {
		for _, k := range []kind{eds, rds, vhds} {
			c.site.put(c, k, "a=1", "b=1", "c=1")
			cl := c.served("one", k, "a=1 b=1 c=1")
			c.site.put(c, k, "a=2", "-b")
			cl.take(k, "a=2 -b")
			c.site.put(c, k, "b=1") // new when it returns, even if it is the same (P33)
			cl.take(k, "b=1")
			cl.quiet(k)
		}
	})
}

// Without a change nothing is sent. Equal content under a new version is no change.
func TestP33_EqualContent(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.manual(cds, eds)
		cl := c.client("one")
		cl.sub(cds)
		cl.sub(eds, "a", "b")
		up := c.site.stream(c, 1)
		c.site.request(c, cds, 1)
		c.site.request(c, eds, 1)
		up.reply(c, cds, "c1", "a=1", "b=1")
		cl.take(cds, "a=1 b=1")
		up.reply(c, eds, "e1", "a=1", "b=1")
		cl.take(eds, "a=1 b=1")
		for _, version := range []string{"2", "3"} {
			for _, k := range []kind{cds, eds} {
				m := up.response(k, k.short()+version, "a=1", "b=1")
				if d, ok := m.(*discoveryv3.DeltaDiscoveryResponse); ok {
					for _, r := range d.Resources {
						r.Version = "another-" + version
					}
				}
				up.send(c, m)
				up.reaction(c, k, k.short()+version)
			}
		}
		if c.ads {
			cl.quiet()
		}
		up.reply(c, cds, "c4", "a=2", "b=1")
		cl.takeFull(cds, "a=2 b=1", "a=2")
		if c.ads {
			cl.take(eds, "a=1") // P37
		}
		up.reply(c, eds, "e4", "a=1", "b=2")
		cl.take(eds, "b=2")
	})
}

// A resource that is removed and restored between two sends has not changed.
func TestP33_RemovedAndRestored(t *testing.T) {
	each(t, patient, both(downDelta, upDelta), func(c *trial) {
		c.site.put(c, rds, "a=1", "b=1")
		cl, witness := c.client("one"), c.client("witness")
		cl.gets(rds, "a=1 b=1")
		witness.gets(rds, "a=1 b=1")
		c.site.put(c, rds, "b=2")
		unanswered := cl.want(rds, "b=2")
		witness.take(rds, "b=2")
		c.site.put(c, rds, "-a")
		witness.take(rds, "-a")
		c.site.put(c, rds, "a=1")
		witness.take(rds, "a=1")
		cl.ack(unanswered)
		cl.quiet(rds)
	})
}

// A load assignment with a lease is sent to all clients each time the origin sends it, under
// whatever version. The answer to a new stream is not sent again.
func TestP33_Leases(t *testing.T) {
	each(t, patient, onADS, func(c *trial) {
		cl, u := c.byHand(eds, "a", "b")
		u.push(c, eds, "1", "", "a=1@lease", "b=1")
		cl.take(eds, "a=1@lease b=1")
		u.push(c, eds, "1", "again", "a=1@lease", "b=1")
		cl.take(eds, "a=1@lease")
		u.push(c, eds, "2", "", "a=1@lease", "b=1")
		cl.take(eds, "a=1@lease")
		cl.quiet()
		u.end(c, nil)
		u = c.site.stream(c, 2)
		u.push(c, eds, "3", "", "a=1@lease", "b=1")
		cl.quiet()
		u.push(c, eds, "3", "once more", "a=1@lease")
		cl.take(eds, "a=1@lease")
		cl.quiet()
	})
}

// What a delta origin sends under a new version is sent again for the types whose subscriber in the
// client may be new. Other types, the same version and the answer to a new stream send nothing.
func TestP33_ResentToNewSubscribers(t *testing.T) {
	for _, k := range []kind{sds, ecds, leds, rds, rtds} {
		t.Run(k.short(), func(t *testing.T) {
			each(t, patient, onADS, func(c *trial) {
				again := c.up == "delta" && k != rds && k != rtds
				cl, u := c.byHand(k, "a", "b")
				u.push(c, k, "1", "", "a=1", "b=1")
				cl.take(k, "a=1 b=1")
				for _, version := range []string{"2", "3"} {
					u.push(c, k, version, "", "a=1")
					if again {
						cl.take(k, "a=1")
					}
					cl.quiet()
				}
				u.push(c, k, "3", "again", "a=1")
				cl.quiet()
				u.end(c, nil)
				u = c.site.stream(c, 2)
				u.push(c, k, "4", "", "a=1", "b=1")
				cl.quiet()
			})
		})
	}
}

// Until the origin has answered a name it is pending: a response does not wait for it, and the client
// receives nothing for it.
func TestP25_P34_PendingNames(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.silent = true
		for _, k := range []kind{eds, rds, cds} {
			c.site.put(c, k, "a=1")
			cl := c.client("one")
			cl.sub(k, "a", "b", "c")
			cl.take(k, "a=1")
			c.site.put(c, k, "c=1")
			cl.takeFull(k, "a=1 c=1", "c=1")
			c.site.put(c, k, "b=1")
			cl.takeFull(k, "a=1 b=1 c=1", "b=1")
		}
	})
}

// settled relays wait for more changes before they send one.
var settled = profile{"settled", xdstest.Config{
	"downstream.settle": "250ms", "downstream.ack_timeout": long, "upstream.linger": long,
}}

// Pending responses on an aggregated stream are sent in the order of the types, whatever order they
// arrived in.
func TestP35_Order(t *testing.T) {
	each(t, settled, onADS, func(c *trial) {
		c.inOrder(true, cds, eds, lds, srds, rds, vhds, rtds).quiet()
	})
}

// The order does not wait for ACKs: later types are sent while earlier ones are unanswered.
func TestP35_NoWaitForAnACK(t *testing.T) {
	each(t, settled, onADS, func(c *trial) {
		c.inOrder(false, cds, lds, rds)
	})
}

// inOrder changes types in reverse, and returns a client that received the changes in this order.
func (c *trial) inOrder(acks bool, order ...kind) *client {
	c.Helper()
	cl := c.client("one")
	for _, k := range order {
		c.site.put(c, k, "a=1")
		cl.gets(k, "a=1")
	}
	for _, k := range slices.Backward(order) {
		c.site.put(c, k, "a=2")
	}
	for _, k := range order {
		a := cl.first()
		if a.kind != k || a.String() != "a=2" {
			c.Fatalf("received %s %q instead of %s", a.kind.short(), a, k.short())
		}
		if acks {
			cl.ack(a)
		}
	}
	return cl
}

// The load assignment follows a cluster that is new or changed. It is sent even if it did not
// change, acknowledged or not.
func TestP37_EndpointsFollowTheirCluster(t *testing.T) {
	each(t, patient, onADS, func(c *trial) {
		c.site.put(c, eds, "a=1", "svc=1", "b=1")
		c.site.put(c, cds, "a=1", "b=1@svc", "c=1")
		cl := c.servedAll("one", cds, "a=1 b=1@svc c=1")
		cl.gets(eds, "a=1 b=1 svc=1")
		cl.quiet()

		c.site.put(c, cds, "a=2")
		cl.takeFull(cds, "a=2 b=1@svc c=1", "a=2")
		cl.take(eds, "a=1")
		c.site.put(c, cds, "b=2@svc") // the service name, not the cluster's
		cl.takeFull(cds, "a=2 b=2@svc c=1", "b=2@svc")
		cl.take(eds, "svc=1")
		c.site.put(c, cds, "c=2") // its endpoints are not subscribed
		cl.takeFull(cds, "a=2 b=2@svc c=2", "c=2")
		cl.quiet()

		c.site.put(c, cds, "a=3")
		clusters := cl.next(cds)
		cl.take(eds, "a=1") // although the clusters are unanswered
		cl.ack(clusters)
		cl.quiet()
	})
}

// Bodies pass through unchanged, including unknown fields, aliases and cache_control.
func TestP39_UntouchedBodies(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		// The body has fields out of order, one of them twice, and unknown ones. Decoding and
		// encoding it again would change it.
		b := protowire.AppendVarint(protowire.AppendTag(nil, 900, protowire.VarintType), 7)
		b = protowire.AppendString(protowire.AppendTag(b, valueField, protowire.BytesType), "1")
		b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), "other")
		b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), "a")
		odd := &anypb.Any{TypeUrl: string(rds), Value: b}
		wrapped := &discoveryv3.Resource{Name: "a", Version: "7", Aliases: []string{"x", "y"}, Resource: odd}
		wrapped.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 77, protowire.BytesType), "unheard of"))

		cl, up := c.byHand(rds, "a")
		var m proto.Message = &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(rds), Nonce: "n", Resources: []*discoveryv3.Resource{wrapped}}
		if c.up == "sotw" {
			outer, err := anypb.New(wrapped)
			if err != nil {
				c.Fatal(err)
			}
			m = &discoveryv3.DiscoveryResponse{TypeUrl: string(rds), Nonce: "n", VersionInfo: "1", Resources: []*anypb.Any{outer}}
		}
		up.send(c, m)
		up.acked(c, rds, "n")
		a := cl.next(rds)
		got := a.bodies["a"]
		if got == nil || got.TypeUrl != odd.TypeUrl || string(got.Value) != string(odd.Value) {
			c.Errorf("the body is %v, want %v", got, odd)
		}
		if w := a.wraps["a"]; c.down == "delta" {
			if !slices.Equal(w.Aliases, wrapped.Aliases) {
				c.Errorf("the aliases came as %v", w.Aliases)
			}
			if string(w.ProtoReflect().GetUnknown()) != string(wrapped.ProtoReflect().GetUnknown()) {
				c.Errorf("the unknown fields beside the body are %q", w.ProtoReflect().GetUnknown())
			}
		}
	})
}

// control_plane.identifier names the replica and the origin.
func TestP39_Identifier(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		c.site.put(c, cds, "a=1")
		cl := c.client("one")
		a := cl.getsAll(cds, "a=1")
		for _, want := range []string{"judged", strings.TrimPrefix(c.relayOrigin(), "dns:///")} {
			if !strings.Contains(a.control, want) {
				c.Errorf("the identifier is %q and does not name %s", a.control, want)
			}
		}
	})
}

// relayOrigin is the name of the origin that all trials share: its address.
func (c *trial) relayOrigin() string {
	control, err := sharedControl()
	if err != nil {
		c.Fatal(err)
	}
	return control.addr
}

// resource_locators are not supported, and not ignored. Without them the list would be empty, which
// is a wildcard.
func TestP39_Locators(t *testing.T) {
	each(t, patient, anywhere, func(c *trial) {
		cl := c.client("one")
		l := []*discoveryv3.ResourceLocator{{Name: "a"}}
		var m proto.Message = &discoveryv3.DiscoveryRequest{Node: cl.node, TypeUrl: string(cds), ResourceLocators: l}
		if cl.delta {
			m = &discoveryv3.DeltaDiscoveryRequest{Node: cl.node, TypeUrl: string(cds), ResourceLocatorsSubscribe: l}
		}
		if err := cl.on(cds).grpc.SendMsg(m); err != nil {
			c.Fatal(err)
		}
		cl.ended(cds, codes.Unimplemented)
	})
}
