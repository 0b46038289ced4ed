package fleet

import (
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// A rejected response changes no held resource; the next one is accepted.
func TestRefuse(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			o := xdstest.StartOrigin(t, xdstest.OriginOptions{Cache: xdstest.Linear})
			o.Put("c", static("a"))
			var mu sync.Mutex
			var rejected []string
			c := run(t, ClientConfig{Target: o.Address, Variant: v, Behaviour: Raw,
				Subscribe: []Subscription{{Type: xds.ClusterType}},
				Nack: func(typ xds.TypeURL, r []Resource) error {
					if slices.ContainsFunc(r, func(r Resource) bool { return r.Name == "bad" }) {
						return errors.New("no bad ones")
					}
					return nil
				},
				OnNack: func(_ *Client, _ xds.TypeURL, _ string, err error) {
					mu.Lock()
					defer mu.Unlock()
					rejected = append(rejected, err.Error())
				}})
			wait(t, c, "first", func(c *Client) bool { return c.Counters().Acks == 1 })
			held, _ := c.Get(xds.ClusterType, "a")
			version := held.Version
			o.Put("c", static("bad"))
			wait(t, c, "NACK", func(c *Client) bool { return c.Counters().Nacks == 1 })
			holds(t, c, xds.ClusterType, "a")
			o.Change("c", []types.Resource{static("good")}, map[string][]string{string(xds.ClusterType): {"bad"}})
			wait(t, c, "after", func(c *Client) bool { return c.Counters().Acks == 2 })
			holds(t, c, xds.ClusterType, "a", "good")
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(rejected, []string{"no bad ones"}) {
				t.Errorf("rejected: %q", rejected)
			}
			if n := o.Requests(func(r xdstest.Request) bool {
				return r.Error.GetMessage() == "no bad ones" && r.Nonce != "" && (v == Delta || r.Version == version)
			}); len(n) != 1 {
				t.Errorf("%d NACKs: %v", len(n), n)
			}
		})
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
		})
	}
}

// SetNames sends the difference in delta, and all names in SotW. The first request of a type without
// names is the legacy wildcard. For types without one it is no subscription, so any resource is a
// violation.
func TestNames(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			s := newScript(t)
			c := run(t, ClientConfig{Target: s.target, Variant: v, Behaviour: Raw,
				Subscribe: []Subscription{{Type: xds.ClusterType, Names: []string{"b", "a"}}, {Type: xds.ListenerType}, {Type: xds.EndpointType}}})
			p := s.accept(t, v)
			if q := p.expect(t, xds.ClusterType); !equal(q.names, "a", "b") {
				t.Errorf("names: %q", q.names)
			}
			for _, typ := range []xds.TypeURL{xds.ListenerType, xds.EndpointType} {
				if q := p.expect(t, typ); len(q.names) > 0 {
					t.Errorf("names of %s: %q", label(typ), q.names)
				}
			}
			c.SetNames(xds.ClusterType, "a", "c")
			q := p.expect(t, xds.ClusterType)
			if v == SotW && !equal(q.names, "a", "c") || v == Delta && (!equal(q.names, "c") || !equal(q.drop, "b")) {
				t.Errorf("after SetNames: %+v", q)
			}
			p.send(t, xds.ListenerType, "1", "1", listener("l"))
			p.expect(t, xds.ListenerType)
			noViolations(t, c)
			p.send(t, xds.EndpointType, "1", "2", load("a", 1))
			p.expect(t, xds.EndpointType)
			if n := c.Violations(); len(n) != 1 || c.Len(xds.EndpointType) > 0 {
				t.Errorf("violations: %q, held %v", n, c.Resources(xds.EndpointType))
			}
			c.Leave()
			if err := c.Wait(xdstest.Context(t), func(c *Client) bool { return !c.Connected() }); err != nil {
				t.Error(err)
			}
		})
	}
}

// Wrapped resources, resource versions, heartbeats.
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
	if a.Version != "own" || b.Version != "7" || string(a.Body) != string(xdstest.Wire(load("a", 1))) {
		t.Errorf("held: %+v %+v", a, b)
	}
	p.send(t, xds.EndpointType, "7", "n2", xdstest.Pack(&discoveryv3.Resource{Name: "a", Version: "own", Ttl: durationpb.New(2 * time.Second)}))
	p.expect(t, xds.EndpointType)
	a, _ = c.Get(xds.EndpointType, "a")
	if len(a.Body) == 0 || c.Len(xds.EndpointType) != 2 {
		t.Errorf("after a heartbeat: %+v, %+v", a, c.Counters())
	}
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
	}
}
