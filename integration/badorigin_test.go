package integration

import (
	"fmt"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
)

// P18: what an origin should not have sent is refused as a whole, counted with
// its reason, and told to the origin; clients keep what they have, newcomers
// get it, and the next good response is taken.
func TestP18_BadOriginResponses(t *testing.T) {
	garbage := &anypb.Any{TypeUrl: string(xds.ClusterType), Value: []byte("\x0a\xffgarbage")}
	nameless := pack(cluster("", 1))
	both := func(fleet.Variant) any {
		return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(xds.ClusterType), Nonce: "bad",
			Resources:        []*discoveryv3.Resource{{Name: "web", Version: "2", Resource: pack(cluster("web", 9))}},
			RemovedResources: []string{"web"}}
	}
	entries := func(e ...entry) func(v fleet.Variant) any {
		return func(v fleet.Variant) any {
			return response(v, xds.ClusterType, "bad", append([]entry{entryOf(cluster("other", 9))}, e...)...)
		}
	}
	cases := []struct {
		name     string
		variants []fleet.Variant
		response func(v fleet.Variant) any
		reason   string
	}{
		{"the same name twice", variants, entries(entryOf(cluster("web", 9)), entryOf(cluster("web", 10))), "duplicate_name"},
		{"no name", variants, entries(entry{body: nameless}), "nameless"},
		{"another type", variants, entries(entryOf(endpoints("web", 1))), "wrong_type"},
		{"a name over 2 KiB", variants, entries(entryOf(cluster(strings.Repeat("n", 2049), 1))), "invalid_name"},
		{"changed and removed", []fleet.Variant{fleet.Delta}, both, "changed_and_removed"},
		{"a body of garbage", []fleet.Variant{fleet.SotW}, entries(entry{name: "x", body: garbage}), "unreadable"},
		{"a resource of garbage", variants, func(v fleet.Variant) any {
			b, _ := proto.Marshal(response(v, xds.ClusterType, "bad")) // of a message made here
			return wire(append(b, 0x12, 0x02, 0xff, 0xff))
		}, "unreadable"},
	}
	for _, up := range variants {
		t.Run(up.String(), func(t *testing.T) {
			f := newFake(t)
			r := serve(t, f.addr, settings{"upstream.variant": up.String()})
			clients := envoys(t, r.addr, "edge")
			for _, typ := range []xds.TypeURL{xds.ClusterType, xds.ListenerType} {
				f.waitRequest(t, "a request of "+string(typ), func(q request) bool { return q.Type == typ })
			}
			good := func(n int) {
				t.Helper()
				nonce := fmt.Sprint("good-", n)
				f.send(t, response(up, xds.ClusterType, nonce, entryOf(cluster("web", n))))
				if a := f.waitAnswer(t, nonce); a.Error != nil {
					t.Fatalf("a good response was refused: %v", a.Error)
				}
				waitAll(t, clients, "a good response", has(cluster("web", n)))
			}
			good(1)
			f.send(t, response(up, xds.ListenerType, "listeners", entryOf(listener("in", "in", 1))))
			f.waitRequest(t, "a request of load assignments", func(q request) bool { return q.Type == xds.EndpointType })
			f.send(t, response(up, xds.EndpointType, "endpoints", entryOf(endpoints("web", 1))))
			waitAll(t, clients, "endpoints", has(endpoints("web", 1)))

			n := 1
			for _, tc := range cases {
				for _, v := range tc.variants {
					if v != up {
						continue
					}
					t.Run(tc.name, func(t *testing.T) {
						before := r.metric(t, "upstream_rejected_total", "reason", tc.reason)
						rejected := r.metric(t, "upstream_updates_total", "type", "CDS", "result", "rejected")
						f.mu.Lock()
						f.said = nil
						f.mu.Unlock()
						f.send(t, tc.response(up))
						if a := f.waitAnswer(t, "bad"); a.Error == nil {
							t.Fatalf("%+v is no NACK", a)
						} else if a.Error.GetMessage() == "" || a.Error.GetCode() == 0 {
							t.Errorf("the NACK does not say why: %v", a.Error)
						}
						r.waitMetric(t, before+1, "upstream_rejected_total", "reason", tc.reason)
						r.waitMetric(t, rejected+1, "upstream_updates_total", "type", "CDS", "result", "rejected")
						for _, v := range variants {
							late := client(t, r.addr, fleet.ClientConfig{Node: node("late-"+v.String(), "edge"), Variant: v,
								Behaviour: fleet.Raw, Subscribe: []fleet.Subscription{{Type: xds.ClusterType}}})
							waitFor(t, late, "what is held", has(cluster("web", n)))
							if l := late.Len(xds.ClusterType); l != 1 {
								t.Errorf("%s was given some of what was refused", late)
							}
						}
						waitAll(t, clients, "what they had", all(has(cluster("web", n)), hasNot(xds.ClusterType, "other")))
						n++
						good(n)
					})
				}
			}
			if s := f.streams(); s != 1 {
				t.Errorf("the origin had %d streams, want 1", s)
			}
		})
	}
}

// What cannot be attributed to a type cannot be refused: the stream is opened
// anew, and clients do not notice.
func TestP53_GarbageFromTheOrigin(t *testing.T) {
	for _, up := range variants {
		t.Run(up.String(), func(t *testing.T) {
			f := newFake(t)
			r := serve(t, f.addr, settings{"upstream.variant": up.String()})
			c := client(t, r.addr, fleet.ClientConfig{Node: node("n", "edge"), Variant: up, Behaviour: fleet.Raw,
				Subscribe: []fleet.Subscription{{Type: xds.ClusterType}}})
			cds := func(q request) bool { return q.Type == xds.ClusterType }
			f.waitRequest(t, "a request", cds)
			f.send(t, response(up, xds.ClusterType, "1", entryOf(cluster("web", 1))))
			waitFor(t, c, "a good response", has(cluster("web", 1)))

			f.send(t, wire("\xff\xff\xff not protobuf"))
			until(t, "another stream", holds(func() bool { return f.streams() == 2 }))
			r.waitMetric(t, 1, "upstream_rejected_total", "reason", "unreadable")
			f.mu.Lock()
			f.said = nil
			f.mu.Unlock()
			f.send(t, response(up, xds.ClusterType, "2", entryOf(cluster("web", 2))))
			f.waitAnswer(t, "2")
			waitFor(t, c, "a good response", has(cluster("web", 2)))
			if n := c.Counters().Streams; n != 1 {
				t.Errorf("%s needed %d streams", c, n)
			}
		})
	}
}
