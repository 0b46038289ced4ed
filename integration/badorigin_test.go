package integration

import (
	"fmt"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// P18: an invalid response is rejected as a whole, counted with its reason, and NACKed. Clients
// keep what they have, new clients receive it, and the next valid response is accepted.
func TestP18_BadOriginResponses(t *testing.T) {
	t.Parallel()
	garbage := &anypb.Any{TypeUrl: string(resource.ClusterType), Value: []byte("\x0a\xffgarbage")}
	both := func(fleet.Variant) any {
		return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(resource.ClusterType), Nonce: "bad",
			Resources:        []*discoveryv3.Resource{{Name: "web", Version: "2", Resource: xdstest.Pack(xdstest.Cluster("web", 9))}},
			RemovedResources: []string{"web"}}
	}
	entries := func(e ...proto.Message) func(v fleet.Variant) any {
		return func(v fleet.Variant) any {
			return xdstest.NewResponse(v == fleet.Delta, resource.ClusterType, "bad", append(e, xdstest.Cluster("other", 9))...)
		}
	}
	cases := []struct {
		name     string
		variants []fleet.Variant
		response func(v fleet.Variant) any
		reason   string
	}{
		{"the same name twice", variants, entries(xdstest.Cluster("web", 9), xdstest.Cluster("web", 10)), "duplicate_name"},
		{"no name", variants, entries(xdstest.Cluster("", 1)), "nameless"},
		{"another type", variants, entries(xdstest.Endpoints("web", 1)), "wrong_type"},
		{"a name over 2 KiB", variants, entries(xdstest.Cluster(strings.Repeat("n", 2049), 1)), "invalid_name"},
		{"changed and removed", []fleet.Variant{fleet.Delta}, both, "changed_and_removed"},
		{"a body of garbage", []fleet.Variant{fleet.SotW}, entries(garbage), "unreadable"},
		{"a resource of garbage", variants, func(v fleet.Variant) any {
			b, _ := proto.Marshal(xdstest.NewResponse(v == fleet.Delta, resource.ClusterType, "bad")) // the message is made here and valid
			return xdstest.Raw(append(b, 0x12, 0x02, 0xff, 0xff))
		}, "unreadable"},
	}
	for _, up := range variants {
		t.Run(up.String(), func(t *testing.T) {
			f := xdstest.StartScriptedOrigin(t)
			r := serve(t, f.Address, xdstest.Config{"upstream.variant": up.String()})
			clients := envoys(t, r.Address, "edge")
			for _, typ := range []string{resource.ClusterType, resource.ListenerType} {
				f.WaitType(typ)
			}
			good := func(n int) {
				t.Helper()
				nonce := fmt.Sprint("good-", n)
				f.Respond(resource.ClusterType, nonce, xdstest.Cluster("web", n))
				if a := f.WaitAnswer(nonce); a.Error != nil {
					t.Fatalf("a valid response was rejected: %v", a.Error)
				}
				waitAll(t, clients, "a good response", has(xdstest.Cluster("web", n)))
			}
			good(1)
			f.Respond(resource.ListenerType, "listeners", xdstest.Listener("in", "in", 1))
			f.WaitType(resource.EndpointType)
			f.Respond(resource.EndpointType, "endpoints", xdstest.Endpoints("web", 1))
			waitAll(t, clients, "endpoints", has(xdstest.Endpoints("web", 1)))

			n := 1
			for _, tc := range cases {
				for _, v := range tc.variants {
					if v != up {
						continue
					}
					t.Run(tc.name, func(t *testing.T) {
						before := r.Metric("upstream_rejected_total", "reason", tc.reason)
						rejected := r.Metric("upstream_updates_total", "type", "CDS", "result", "rejected")
						f.Send(tc.response(up))
						if a := f.WaitAnswer("bad"); a.Error == nil {
							t.Fatalf("%+v is no NACK", a)
						} else if a.Error.GetMessage() == "" || a.Error.GetCode() == 0 {
							t.Errorf("the NACK has no reason: %v", a.Error)
						}
						r.WaitMetric(before+1, "upstream_rejected_total", "reason", tc.reason)
						r.WaitMetric(rejected+1, "upstream_updates_total", "type", "CDS", "result", "rejected")
						for _, v := range variants {
							late := client(t, r.Address, fleet.ClientConfig{Node: node("late-"+v.String(), "edge"), Variant: v,
								Behaviour: fleet.Raw, Subscribe: []fleet.Subscription{{Type: resource.ClusterType}}})
							waitFor(t, late, "what is held", has(xdstest.Cluster("web", n)))
							if l := late.Len(resource.ClusterType); l != 1 {
								t.Errorf("%s received part of the rejected response", late)
							}
						}
						waitAll(t, clients, "what they had", all(has(xdstest.Cluster("web", n)), hasNot(resource.ClusterType, "other")))
						n++
						good(n)
					})
				}
			}
			if s := f.Streams(); s != 1 {
				t.Errorf("the origin had %d streams, want 1", s)
			}
		})
	}
}

// A response without a readable type cannot be NACKed. The relay reopens the stream, and clients do
// not notice.
func TestP53_GarbageFromTheOrigin(t *testing.T) {
	t.Parallel()
	for _, up := range variants {
		t.Run(up.String(), func(t *testing.T) {
			f := xdstest.StartScriptedOrigin(t)
			r := serve(t, f.Address, xdstest.Config{"upstream.variant": up.String()})
			c := client(t, r.Address, fleet.ClientConfig{Node: node("n", "edge"), Variant: up, Behaviour: fleet.Raw,
				Subscribe: []fleet.Subscription{{Type: resource.ClusterType}}})
			f.WaitType(resource.ClusterType)
			f.Respond(resource.ClusterType, "1", xdstest.Cluster("web", 1))
			waitFor(t, c, "a good response", has(xdstest.Cluster("web", 1)))

			f.Send(xdstest.Raw("\xff\xff\xff not protobuf"))
			xdstest.Eventually(t, "another stream", xdstest.Holds(func() bool { return f.Streams() == 2 }))
			r.WaitMetric(1, "upstream_rejected_total", "reason", "unreadable")
			f.Respond(resource.ClusterType, "2", xdstest.Cluster("web", 2))
			f.WaitAnswer("2")
			waitFor(t, c, "a good response", has(xdstest.Cluster("web", 2)))
			if n := c.Counters().Streams; n != 1 {
				t.Errorf("%s needed %d streams", c, n)
			}
		})
	}
}
