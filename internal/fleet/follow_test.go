package fleet

import (
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// Envoy follows all references, takes changes, and drops resources without a reference, in both
// variants.
func TestEnvoyFollowsReferences(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			o := xdstest.StartOrigin(t, xdstest.OriginOptions{})
			odd := listener("l2")
			odd.DefaultFilterChain = filter("r3")
			o.Set("c", listener("l1", "r1", "r2"), odd, xdstest.APIListener("l3", "r4"),
				route("r1", xdstest.RouteTo("/", "a")), route("r2", xdstest.RouteTo("/", "b")), route("r3", xdstest.RouteTo("/", "c")), route("r4", xdstest.RouteTo("/", "c")), route("unused"),
				eds("a", ""), eds("b", "b-service"), static("c"),
				load("a", 1), load("b-service", 1), load("c", 1))
			c := run(t, ClientConfig{Target: o.Address, Variant: v})
			wait(t, c, "first", func(c *Client) bool { return c.Len(xds.RouteType) == 4 && c.Complete() })
			holds(t, c, xds.ListenerType, "l1", "l2", "l3")
			holds(t, c, xds.RouteType, "r1", "r2", "r3", "r4")
			holds(t, c, xds.ClusterType, "a", "b", "c")
			holds(t, c, xds.EndpointType, "a", "b-service")

			o.Set("c", listener("l1", "r1"),
				route("r1", xdstest.RouteTo("/", "d")), route("r2", xdstest.RouteTo("/", "b")), route("r3", xdstest.RouteTo("/", "c")), route("r4", xdstest.RouteTo("/", "c")),
				eds("a", ""), eds("d", ""),
				load("a", 2), load("b-service", 1), load("d", 1))
			wait(t, c, "second", func(c *Client) bool {
				_, d := c.Get(xds.ClusterType, "d")
				return d && c.Len(xds.ClusterType) == 2 && c.Len(xds.ListenerType) == 1 && c.Len(xds.RouteType) == 1 &&
					c.Complete() && string(body(c, xds.EndpointType, "a")) == string(xdstest.Wire(load("a", 2)))
			})
			holds(t, c, xds.RouteType, "r1")
			holds(t, c, xds.ClusterType, "a", "d")
			holds(t, c, xds.EndpointType, "a", "d")
			if n, wild := c.Names(xds.ClusterType); len(n) != 0 || !wild {
				t.Errorf("clusters requested: %q, %v", n, wild)
			}
			noViolations(t, c)
		})
	}
}

// gRPC subscribes to one listener and its references, and to nothing else.
func TestGRPCFollowsOneListener(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			o := xdstest.StartOrigin(t, xdstest.OriginOptions{})
			o.Set("c", xdstest.APIListener("svc", "r1"), xdstest.APIListener("other", "r2"),
				route("r1", xdstest.RouteTo("/", "a"), weighted("b", "agg")), route("r2", xdstest.RouteTo("/", "z")),
				eds("a", ""), eds("b", "b-service"), aggregate("agg", "m1", "m2"), eds("m1", ""), static("m2"), eds("z", ""),
				load("a", 1), load("b-service", 1), load("m1", 1), load("z", 1))
			c := run(t, ClientConfig{Target: o.Address, Variant: v, Behaviour: GRPC, Listener: "svc"})
			wait(t, c, "first", func(c *Client) bool { return c.Len(xds.EndpointType) == 3 && c.Complete() })
			holds(t, c, xds.ListenerType, "svc")
			holds(t, c, xds.RouteType, "r1")
			holds(t, c, xds.ClusterType, "a", "b", "agg", "m1", "m2")
			holds(t, c, xds.EndpointType, "a", "b-service", "m1")

			o.Set("c", xdstest.APIListener("svc", "r1"), route("r1", xdstest.RouteTo("/", "a")),
				eds("a", "elsewhere"), load("elsewhere", 1))
			wait(t, c, "second", func(c *Client) bool {
				_, ok := c.Get(xds.EndpointType, "elsewhere")
				return ok && c.Len(xds.ClusterType) == 1
			})
			holds(t, c, xds.ClusterType, "a")
			holds(t, c, xds.EndpointType, "elsewhere")

			// Without its listener it holds nothing, and subscribes to no other name.
			o.Set("c", xdstest.APIListener("other", "r2"), route("r1", xdstest.RouteTo("/", "a")),
				eds("a", "elsewhere"), load("elsewhere", 1))
			wait(t, c, "third", func(c *Client) bool { return c.Len(xds.ListenerType) == 0 })
			for _, typ := range []xds.TypeURL{xds.RouteType, xds.ClusterType, xds.EndpointType} {
				if n, wild := c.Names(typ); len(n) != 0 || wild {
					t.Errorf("%s still requested: %q, %v", label(typ), n, wild)
				}
				holds(t, c, typ)
			}
			noViolations(t, c)
		})
	}
}

// The ACK of clusters waits for load assignments, which are requested meanwhile. A changed cluster
// warms again.
func TestWithheldACKOfClusters(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			s := newScript(t)
			c := run(t, ClientConfig{Target: s.target, Variant: v, WarmTimeout: time.Hour})
			p := s.accept(t, v)
			p.expect(t, xds.ClusterType)
			p.expect(t, xds.ListenerType)
			p.send(t, xds.ClusterType, "1", "c1", eds("a", ""), eds("b", ""), static("s"))
			if q := p.expect(t, xds.EndpointType); !equal(q.names, "a", "b") {
				t.Fatalf("load assignments requested: %q", q.names)
			}
			p.send(t, xds.EndpointType, "1", "e1", load("a", 1))
			if q := p.next(t); q.typ != xds.EndpointType || q.nonce != "e1" {
				t.Fatalf("after the first load assignment: %+v", q)
			}
			if c.Complete() {
				t.Error("complete with a cold cluster")
			}
			p.send(t, xds.EndpointType, "2", "e2", load("b", 1))
			got := []ask{p.next(t), p.next(t)}
			if got[0].typ != xds.ClusterType || got[0].nonce != "c1" || got[0].err != "" ||
				got[1].typ != xds.EndpointType || got[1].nonce != "e2" {
				t.Fatalf("after the last load assignment: %+v", got)
			}
			wait(t, c, "complete", func(c *Client) bool { return c.TypeCounters(xds.ClusterType).Acks == 1 })

			// b changes: it warms, although its load assignment is held.
			changed := eds("b", "")
			changed.AltStatName = "changed"
			if v == SotW {
				p.send(t, xds.ClusterType, "2", "c2", eds("a", ""), changed)
				if q := p.next(t); q.typ != xds.EndpointType || q.nonce != "e2" || !equal(q.names, "a", "b") {
					t.Fatalf("a changed cluster does not ask again: %+v", q)
				}
			} else {
				p.send(t, xds.ClusterType, "2", "c2", changed)
			}
			p.send(t, xds.EndpointType, "3", "e3", load("b", 1))
			if q := p.next(t); q.typ != xds.ClusterType || q.nonce != "c2" {
				t.Fatalf("the changed cluster's ACK: %+v", q)
			}
			p.expect(t, xds.EndpointType)
			if n := c.TypeCounters(xds.EndpointType).Resends; n != 1 {
				t.Errorf("resends %d, want 1", n)
			}
			noViolations(t, c)
		})
	}
}

// Warming ends after WarmTimeout without a load assignment.
func TestWarmTimeout(t *testing.T) {
	s := newScript(t)
	run(t, ClientConfig{Target: s.target, Variant: Delta, WarmTimeout: 20 * time.Millisecond})
	p := s.accept(t, Delta)
	p.expect(t, xds.ClusterType)
	p.expect(t, xds.ListenerType)
	p.send(t, xds.ClusterType, "1", "c1", eds("a", ""))
	p.expect(t, xds.EndpointType)
	if q := p.next(t); q.typ != xds.ClusterType || q.nonce != "c1" {
		t.Fatalf("after the timeout: %+v", q)
	}
}

// A warming cluster that is removed, or changes its type, does not delay the ACK.
func TestWarmingClusterGoes(t *testing.T) {
	s := newScript(t)
	c := run(t, ClientConfig{Target: s.target, Variant: Delta, WarmTimeout: time.Hour})
	p := s.accept(t, Delta)
	p.expect(t, xds.ClusterType)
	p.expect(t, xds.ListenerType)
	p.send(t, xds.ClusterType, "1", "c1", eds("a", "shared"), eds("b", "shared"))
	p.expect(t, xds.EndpointType)
	p.sendDelta(t, xds.ClusterType, "2", "c2", []string{"a"})
	wait(t, c, "a gone", func(c *Client) bool { return c.Len(xds.ClusterType) == 1 })
	if n := c.TypeCounters(xds.ClusterType).Acks; n != 0 {
		t.Errorf("%d ACKs while b is cold", n)
	}
	p.send(t, xds.ClusterType, "3", "c3", static("b"))
	if q := p.expect(t, xds.EndpointType); !equal(q.drop, "shared") {
		t.Errorf("no longer referred to: %+v", q)
	}
	for _, want := range []string{"c1", "c2", "c3"} {
		if q := p.expect(t, xds.ClusterType); q.nonce != want {
			t.Errorf("ACK %+v, want %s", q, want)
		}
	}
	// A missing load assignment warms its cluster, as in Envoy.
	p.send(t, xds.ClusterType, "4", "c4", eds("b", "none"))
	p.expect(t, xds.EndpointType)
	p.sendDelta(t, xds.EndpointType, "4", "e4", []string{"none"})
	if q := p.expect(t, xds.ClusterType); q.nonce != "c4" {
		t.Errorf("ACK %+v, want c4", q)
	}
	if c.Complete() {
		t.Error("complete without an answer for listeners")
	}
	p.send(t, xds.ListenerType, "4", "l4")
	wait(t, c, "complete", (*Client).Complete)
	noViolations(t, c)
}

// Inline routes refer to clusters without a route configuration.
func TestInlineRoutes(t *testing.T) {
	l := &listenerv3.Listener{Name: "l", ApiListener: &listenerv3.ApiListener{ApiListener: xdstest.Pack(&hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: route("inline", xdstest.RouteTo("/", "a"), weighted("b"))}})}}
	r, err := listenerRefs(xdstest.Wire(l))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.routes) != 0 || !equal(r.clusters, "a", "b") {
		t.Errorf("references: %+v", r)
	}
}

// The client rejects a response that cannot be decoded, and changes nothing.
func TestUndecodableIsRefused(t *testing.T) {
	s := newScript(t)
	c := run(t, ClientConfig{Target: s.target, Variant: Delta})
	p := s.accept(t, Delta)
	p.expect(t, xds.ClusterType)
	p.expect(t, xds.ListenerType)
	bad := &listenerv3.Listener{Name: "l"}
	bad.ProtoReflect().SetUnknown([]byte{0x1a, 0x02, 0x0a, 0x7f}) // field 3 with broken content
	p.send(t, xds.ListenerType, "1", "1", bad)
	if q := p.next(t); q.err == "" || q.nonce != "1" {
		t.Fatalf("answer: %+v", q)
	}
	holds(t, c, xds.ListenerType)
	if n := c.Counters().Nacks; n != 1 {
		t.Errorf("%d NACKs", n)
	}
}

func body(c *Client, t xds.TypeURL, name string) []byte {
	r, _ := c.Get(t, name)
	return r.Body
}
