package fleet

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

func linear(typ xds.TypeURL, resources map[string]types.Resource) *cache.LinearCache {
	return cache.NewLinearCache(string(typ), cache.WithInitialResources(resources))
}

// A rejected response changes no held resource; the next one is accepted.
func TestRefuse(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			lin := linear(xds.ClusterType, map[string]types.Resource{"a": static("a")})
			o := newOrigin(t, lin)
			var mu sync.Mutex
			var rejected []string
			c := run(t, ClientConfig{Target: o.target, Variant: v, Behaviour: Raw,
				Subscribe: []Subscription{{Type: xds.ClusterType}},
				OnNack: func(_ *Client, _ xds.TypeURL, _ string, err error) {
					mu.Lock()
					defer mu.Unlock()
					rejected = append(rejected, err.Error())
				}})
			wait(t, c, "first", func(c *Client) bool { return c.Counters().Acks == 1 })
			version := c.Version(xds.ClusterType)
			c.SetNack(func(typ xds.TypeURL, r []Resource) error {
				if typ == xds.ClusterType && slices.ContainsFunc(r, func(r Resource) bool { return r.Name == "bad" }) {
					return errors.New("no bad ones")
				}
				return nil
			})
			if err := lin.UpdateResource("bad", static("bad")); err != nil {
				t.Fatal(err)
			}
			wait(t, c, "NACK", func(c *Client) bool { return c.Counters().Nacks == 1 })
			holds(t, c, xds.ClusterType, "a")
			if c.Version(xds.ClusterType) != version {
				t.Errorf("version %q after a NACK, was %q", c.Version(xds.ClusterType), version)
			}
			c.SetNack(nil)
			if err := lin.UpdateResources(map[string]types.Resource{"good": static("good")}, []string{"bad"}); err != nil {
				t.Fatal(err)
			}
			wait(t, c, "after", func(c *Client) bool { return c.Counters().Acks == 2 })
			holds(t, c, xds.ClusterType, "a", "good")
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(rejected, []string{"no bad ones"}) {
				t.Errorf("rejected: %q", rejected)
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			if v == SotW && !slices.ContainsFunc(o.sotw, func(r *discoveryv3.DiscoveryRequest) bool {
				return r.GetErrorDetail().GetMessage() == "no bad ones" && r.GetVersionInfo() == version && r.GetResponseNonce() != ""
			}) {
				t.Errorf("requests: %v", o.sotw)
			}
			if v == Delta && !slices.ContainsFunc(o.delta, func(r *discoveryv3.DeltaDiscoveryRequest) bool {
				return r.GetErrorDetail().GetMessage() == "no bad ones" && r.GetResponseNonce() != ""
			}) {
				t.Errorf("requests: %v", o.delta)
			}
		})
	}
}

// A stalled client answers nothing. After Resume it has everything.
func TestStall(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			s := newScript(t)
			c := run(t, ClientConfig{Target: s.target, Variant: v, Behaviour: Raw,
				Subscribe: []Subscription{{Type: xds.EndpointType, Names: []string{"a"}}}})
			p := s.accept(t, v)
			p.expect(t, xds.EndpointType)
			c.Stall()
			c.Stall()
			p.send(t, xds.EndpointType, "1", "n1", load("a", 1))
			p.send(t, xds.EndpointType, "2", "n2", load("a", 2))
			// The client still sends: its next request comes before the ACKs.
			c.Subscribe(xds.EndpointType, "b")
			if q := p.next(t); q.nonce != "" || !slices.Contains(q.names, "b") {
				t.Fatalf("request of a stalled client: %+v", q)
			}
			if n := c.Counters().Responses; n != 0 {
				t.Errorf("%d responses were taken", n)
			}
			c.Resume()
			c.Resume()
			if a, b := p.next(t), p.next(t); a.nonce != "n1" || b.nonce != "n2" {
				t.Fatalf("ACKs: %+v %+v", a, b)
			}
			if got := string(body(c, xds.EndpointType, "a")); got != string(wire(load("a", 2))) {
				t.Errorf("held: %q", got)
			}
		})
	}
}

// With withheld ACKs responses are applied, requests for changed names have the old nonce, and the
// release sends the ACKs.
func TestHoldAcks(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			s := newScript(t)
			c := run(t, ClientConfig{Target: s.target, Variant: v, Behaviour: Raw,
				Subscribe: []Subscription{{Type: xds.EndpointType, Names: []string{"a"}}}})
			p := s.accept(t, v)
			p.expect(t, xds.EndpointType)
			c.HoldAcks(xds.EndpointType)
			p.send(t, xds.EndpointType, "1", "n1", load("a", 1))
			p.send(t, xds.EndpointType, "2", "n2", load("a", 2))
			wait(t, c, "both taken", func(c *Client) bool { return c.Version(xds.EndpointType) == "2" })
			c.Subscribe(xds.EndpointType, "b")
			if q := p.next(t); q.nonce != "" || q.version != "" {
				t.Fatalf("names answer a response: %+v", q)
			}
			if n := c.Counters().Acks; n != 0 {
				t.Errorf("%d ACKs", n)
			}
			c.ReleaseAcks()
			if v == Delta {
				if q := p.next(t); q.nonce != "n1" {
					t.Fatalf("first ACK: %+v", q)
				}
			}
			q := p.next(t)
			if q.nonce != "n2" || v == SotW && (q.version != "2" || !equal(q.names, "a", "b")) || v == Delta && len(q.names) > 0 {
				t.Fatalf("last ACK: %+v", q)
			}
		})
	}
}

// Delayed ACKs come in order, and not early.
func TestAckDelay(t *testing.T) {
	s := newScript(t)
	const delay = 30 * time.Millisecond
	c := run(t, ClientConfig{Target: s.target, Variant: Delta, Behaviour: Raw, AckDelay: delay,
		Subscribe: []Subscription{{Type: xds.EndpointType, Names: []string{"a"}}}})
	p := s.accept(t, Delta)
	p.expect(t, xds.EndpointType)
	sent := time.Now()
	p.send(t, xds.EndpointType, "1", "n1", load("a", 1))
	p.send(t, xds.EndpointType, "2", "n2", load("a", 2))
	for _, want := range []string{"n1", "n2"} {
		if q := p.next(t); q.nonce != want {
			t.Fatalf("ACK %+v, want %s", q, want)
		}
		if d := time.Since(sent); d < delay {
			t.Errorf("%s answered after %v", want, d)
		}
	}
	if c.Counters().Acks != 2 {
		t.Errorf("ACKs: %+v", c.Counters())
	}
}

// The first requests of a stream have the node once, the versions that the mode says, and Envoy's
// empty lists.
func TestFirstRequests(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			s := newScript(t)
			c := run(t, ClientConfig{Target: s.target, Variant: v, Node: &corev3.Node{Id: "me"}})
			first := func(version string, initial int, want ...xds.TypeURL) *peer {
				t.Helper()
				p := s.accept(t, v)
				for i, typ := range want {
					q := p.expect(t, typ)
					if (i == 0) != (q.node.GetId() == "me") {
						t.Errorf("node of request %d: %v", i, q.node)
					}
					if q.nonce != "" || len(q.names) > 0 {
						t.Errorf("first request of %s: %+v", label(typ), q)
					}
					if typ == xds.ClusterType && (q.version != version || len(q.initial) != initial) {
						t.Errorf("versions: %+v, want %q, %d", q, version, initial)
					}
				}
				return p
			}
			p := first("", 0, xds.ClusterType, xds.ListenerType)
			p.send(t, xds.ClusterType, "1", "n1", eds("a", ""))
			p.expect(t, xds.EndpointType)
			p.send(t, xds.EndpointType, "1", "n2", load("a", 1))
			p.expect(t, xds.ClusterType)
			p.expect(t, xds.EndpointType)
			p.send(t, xds.ClusterType, "2", "n3", static("a"))
			q := p.expect(t, xds.EndpointType)
			if v == SotW && len(q.names) > 0 || v == Delta && !equal(q.drop, "a") {
				t.Errorf("no load assignment is named any more: %+v", q)
			}
			holds(t, c, xds.EndpointType)
			p.expect(t, xds.ClusterType)

			version, initial := "2", 0
			if v == Delta {
				version, initial = "", 1
			}
			// If the server ends the stream, the client reconnects by itself.
			p.end <- nil
			p = first(version, initial, xds.ClusterType, xds.ListenerType, xds.EndpointType)
			p.end <- status.Error(codes.Unavailable, "away")
			first(version, initial, xds.ClusterType, xds.ListenerType, xds.EndpointType)
			if err := c.LastError(); status.Code(err) != codes.Unavailable {
				t.Errorf("last error: %v", err)
			}
			c.Reconnect(DropVersions)
			first("", 0, xds.ClusterType, xds.ListenerType, xds.EndpointType)
			holds(t, c, xds.ClusterType, "a")
			c.Reconnect(Forget)
			first("", 0, xds.ClusterType, xds.ListenerType)
			holds(t, c, xds.ClusterType)
		})
	}
}

// The requests for each call of a Raw client.
func TestRawRequests(t *testing.T) {
	const cds = xds.ClusterType
	s := newScript(t)
	sotw := run(t, ClientConfig{Target: s.target, Variant: SotW, Behaviour: Raw, Subscribe: []Subscription{{Type: cds}}})
	p := s.accept(t, SotW)
	check := func(what string, names, drop []string) {
		t.Helper()
		if q := p.expect(t, cds); !slices.Equal(q.names, names) || !slices.Equal(q.drop, drop) {
			t.Errorf("%s: %q, %q, want %q, %q", what, q.names, q.drop, names, drop)
		}
	}
	check("legacy wildcard", nil, nil)
	sotw.Subscribe(cds, "b", "a")
	check("names", []string{"a", "b"}, nil)
	if _, wild := sotw.Names(cds); wild {
		t.Error("in SotW a name does not end the legacy wildcard")
	}
	sotw.Subscribe(cds, "*")
	check("wildcard and names", []string{"*", "a", "b"}, nil)
	sotw.SetNames(cds)
	check("nothing", nil, nil)
	if _, wild := sotw.Names(cds); wild {
		t.Error("an empty list after names is a wildcard")
	}

	delta := run(t, ClientConfig{Target: s.target, Variant: Delta, Behaviour: Raw, Subscribe: []Subscription{{Type: cds}}})
	p = s.accept(t, Delta)
	check("legacy wildcard", nil, nil)
	delta.Subscribe(cds, "a")
	check("name", []string{"a"}, nil)
	if _, wild := delta.Names(cds); !wild {
		t.Error("in delta a name ends the legacy wildcard")
	}
	delta.Subscribe(cds, "a")
	check("again", []string{"a"}, nil)
	delta.Reconnect(KeepVersions)
	p = s.accept(t, Delta)
	check("reconnected", []string{"*", "a"}, nil)
	delta.SetNames(cds, "b")
	check("exactly b", []string{"b"}, []string{"*", "a"})
	delta.Unsubscribe(cds, "b", "phantom")
	check("phantom", nil, []string{"b", "phantom"})
	if err := delta.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(cds), ResourceNamesSubscribe: []string{"raw"}}); err != nil {
		t.Fatal(err)
	}
	check("as it is", []string{"raw"}, nil)

	// For types without a legacy wildcard an empty first list is no subscription, so any resource
	// is a violation.
	for _, v := range variants {
		none := run(t, ClientConfig{Target: s.target, Variant: v, Behaviour: Raw, Subscribe: []Subscription{{Type: xds.EndpointType}}})
		p = s.accept(t, v)
		if q := p.expect(t, xds.EndpointType); len(q.names) > 0 {
			t.Errorf("names: %q", q.names)
		}
		p.send(t, xds.EndpointType, "1", "1", load("a", 1))
		p.expect(t, xds.EndpointType)
		if n := none.Violations(); len(n) != 1 || none.Len(xds.EndpointType) > 0 {
			t.Errorf("violations: %q, held %v", n, none.Resources(xds.EndpointType))
		}
	}
}

// A server that reads nothing has a bounded number of requests in the client.
func TestServerThatReadsNothing(t *testing.T) {
	s := newScript(t)
	c := run(t, ClientConfig{Target: s.target, Variant: Delta, Behaviour: Raw, Subscribe: []Subscription{{Type: xds.ClusterType}}})
	s.accept(t, Delta)
	wait(t, c, "connected", (*Client).Connected)
	name := strings.Repeat("x", 1000)
	for c.Counters().Violations == 0 {
		c.Subscribe(xds.ClusterType, name)
	}
	s.accept(t, Delta)
	if v := c.Violations(); len(v) != 1 || !strings.Contains(v[0], "were not read") {
		t.Errorf("violations: %q", v)
	}
}

// Delta with the wildcard: a removed name is kept until the server says whether the wildcard covers
// it.
func TestUnsubscribeUnderWildcard(t *testing.T) {
	s := newScript(t)
	c := run(t, ClientConfig{Target: s.target, Variant: Delta, Behaviour: Raw,
		Subscribe: []Subscription{{Type: xds.ClusterType, Names: []string{"*", "a", "b"}}}})
	p := s.accept(t, Delta)
	p.expect(t, xds.ClusterType)
	p.send(t, xds.ClusterType, "1", "n1", static("a"), static("b"), static("c"))
	p.expect(t, xds.ClusterType)
	c.Unsubscribe(xds.ClusterType, "a", "b")
	p.expect(t, xds.ClusterType)
	holds(t, c, xds.ClusterType, "a", "b", "c")
	p.sendDelta(t, xds.ClusterType, "1", "n2", []string{"a"}, static("b"))
	p.expect(t, xds.ClusterType)
	holds(t, c, xds.ClusterType, "b", "c")
	c.Unsubscribe(xds.ClusterType, "*")
	holds(t, c, xds.ClusterType)
	noViolations(t, c)
}

// Wrapped resources, resource versions, heartbeats, aliases.
func TestWrappedResources(t *testing.T) {
	s := newScript(t)
	c := run(t, ClientConfig{Target: s.target, Variant: SotW, Behaviour: Raw,
		Subscribe: []Subscription{{Type: xds.EndpointType, Names: []string{"a", "b"}}}})
	p := s.accept(t, SotW)
	p.expect(t, xds.EndpointType)
	p.send(t, xds.EndpointType, "7", "n1",
		xdstest.Pack(&discoveryv3.Resource{Name: "a", Version: "own", Ttl: durationpb.New(1500 * time.Millisecond), Resource: anyOf(xds.EndpointType, load("a", 1))}),
		load("b", 1))
	p.expect(t, xds.EndpointType)
	a, _ := c.Get(xds.EndpointType, "a")
	b, _ := c.Get(xds.EndpointType, "b")
	if a.Version != "own" || b.Version != "7" || a.TTL != 1500*time.Millisecond || string(a.Body) != string(wire(load("a", 1))) {
		t.Errorf("held: %+v %+v", a, b)
	}
	p.send(t, xds.EndpointType, "7", "n2", xdstest.Pack(&discoveryv3.Resource{Name: "a", Version: "own", Ttl: durationpb.New(2 * time.Second)}))
	p.expect(t, xds.EndpointType)
	a, _ = c.Get(xds.EndpointType, "a")
	if a.TTL != 2*time.Second || len(a.Body) == 0 || c.Counters().Heartbeats != 1 {
		t.Errorf("after a heartbeat: %+v, %+v", a, c.Counters())
	}
	noViolations(t, c)
}

// A resource may be requested by an alias.
func TestAliases(t *testing.T) {
	s := newScript(t)
	c := run(t, ClientConfig{Target: s.target, Variant: Delta, Behaviour: Raw,
		Subscribe: []Subscription{{Type: xds.VHostType, Names: []string{"r/host"}}}})
	p := s.accept(t, Delta)
	p.expect(t, xds.VHostType)
	p.post(t, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(xds.VHostType), Nonce: "1", Resources: []*discoveryv3.Resource{
		{Name: "r/v", Aliases: []string{"r/host"}, Version: "1", Resource: anyOf(xds.VHostType, load("v", 1))}}})
	p.expect(t, xds.VHostType)
	holds(t, c, xds.VHostType, "r/v")
	if !c.Complete() {
		t.Error("an alias is not complete")
	}
	c.Unsubscribe(xds.VHostType, "r/host")
	holds(t, c, xds.VHostType)
	noViolations(t, c)
}

// With NoReconnect, Run returns the error of the first stream.
func TestNoReconnect(t *testing.T) {
	for _, want := range []error{status.Error(codes.ResourceExhausted, "too much"), nil} {
		s := newScript(t)
		c, err := NewClient(ClientConfig{Target: s.target, NoReconnect: true})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- c.Run(t.Context()) }()
		p := s.accept(t, SotW)
		if q := p.next(t); q.node != nil {
			t.Errorf("a client without a node sends one: %v", q.node)
		}
		p.end <- want
		err = <-done
		if want == nil && !errors.Is(err, io.EOF) || want != nil && status.Code(err) != status.Code(want) {
			t.Errorf("Run: %v, want %v", err, want)
		}
		if err := c.Run(t.Context()); err == nil {
			t.Error("a second Run")
		}
	}
}
