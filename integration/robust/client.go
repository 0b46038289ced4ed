//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"xdsrelay/integration/robust/check"
	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// client is a simulated client that records every request and receipt. It has its own proxy to each
// relay, and switches relays when it cannot open a stream.
type client struct {
	*fleet.Client
	name    string
	key     string
	variant string
	relays  []*relay
	proxies []*xdstest.Proxy // one to each relay
	conns   []*grpc.ClientConn
	history *check.Writer

	rejects bool // each third response; set before run
	cancel  context.CancelFunc
	done    chan struct{}

	// The goroutine that reads owns the fields below. It has one stream at a time.
	streams int
	last    *recorder
	judged  int          // responses
	open    atomic.Int64 // the newest stream that was opened

	mu       sync.Mutex
	at       int                        // index of the relay for the next stream
	received map[string]map[string]bool // by type: names that were added or removed on the newest stream
}

// role is the kind of a client.
type role struct {
	name      string
	variant   fleet.Variant
	behaviour fleet.Behaviour
	subscribe []fleet.Subscription
}

// roles are those of each key's clients.
func roles() []role {
	var out []role
	for _, v := range []fleet.Variant{fleet.SotW, fleet.Delta} {
		out = append(out,
			role{"envoy", v, fleet.Envoy, nil},
			role{"grpc", v, fleet.GRPC, nil},
			role{"all", v, fleet.Raw, []fleet.Subscription{{Type: xds.ClusterType}, {Type: xds.ListenerType}}},
			role{"names", v, fleet.Raw, []fleet.Subscription{{Type: xds.EndpointType, Names: []string{"cluster-0", "cluster-1"}},
				{Type: xds.ClusterType, Names: []string{"cluster-0", "cluster-1"}}}},
		)
	}
	return out
}

// newClient makes a client of a key. Clients of the same role replace each other; number counts the
// replacements.
func newClient(r role, key string, number, first int, relays []*relay, history *check.Writer) (*client, error) {
	c := &client{name: fmt.Sprintf("%s/%s-%s.%d", key, r.name, r.variant, number), key: key, variant: r.variant.String(),
		relays: relays, history: history, done: make(chan struct{}), at: first % len(relays)}
	for _, to := range relays {
		k, err := xdstest.NewProxy("", func(conn string) { history.Add(check.Event{What: check.Touched, Conn: conn}) })
		if err != nil {
			c.close()
			return nil, err
		}
		c.proxies = append(c.proxies, k)
		to.join(k)
		cc, err := grpc.NewClient("passthrough:///"+k.Address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 2 * time.Second,
				Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond}}))
		if err != nil {
			c.close()
			return nil, err
		}
		c.conns = append(c.conns, cc)
	}
	var err error
	c.Client, err = fleet.NewClient(fleet.ClientConfig{Conn: c, Node: &corev3.Node{Id: c.name, Cluster: key},
		Variant: r.variant, Behaviour: r.behaviour, Listener: apiListener, Subscribe: r.subscribe, WarmTimeout: time.Second,
		WildcardIsFull: true, Backoff: fleet.Backoff{Base: 50 * time.Millisecond, Max: 500 * time.Millisecond}, OnResponse: c.receive, Nack: c.nack})
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

var errDislike = errors.New("not to my taste")

func (c *client) nack(xds.TypeURL, []fleet.Resource) error {
	if c.judged++; c.rejects && c.judged%3 == 0 {
		return errDislike
	}
	return nil
}

// run runs the client until it leaves.
func (c *client) run(ctx context.Context) {
	ctx, c.cancel = context.WithCancel(ctx)
	go func() {
		defer close(c.done)
		_ = c.Run(ctx) // ends when ctx does
		c.left()
	}()
}

// leave ends the client.
func (c *client) leave() {
	c.cancel()
	<-c.done
	for _, v := range c.Violations() {
		c.history.Add(check.Event{What: check.Complaint, Client: c.name, Error: v})
	}
	c.close()
}

func (c *client) close() {
	for _, cc := range c.conns {
		_ = cc.Close() // no message is left to send on it
	}
	for i, k := range c.proxies {
		k.Close()
		c.relays[i].part(k)
	}
}

// move makes the next stream go to the other relay.
func (c *client) move() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = (c.at + 1) % len(c.relays)
}

func (c *client) relay() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Invoke is unused: xDS only has streams.
func (c *client) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return errors.New("not a stream")
}

// NewStream opens a stream to the current relay.
func (c *client) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	c.left()
	c.streams++
	at := c.relay()
	t := &recorder{c: c, ctx: ctx, stream: c.streams}
	c.history.Add(check.Event{What: check.Opening, Client: c.name, Stream: t.stream, Relay: c.relays[at].name, Key: c.key,
		Variant: c.variant, Fresh: t.stream == 1})
	cs, err := c.conns[at].NewStream(ctx, desc, method, opts...)
	if err != nil {
		c.history.Add(check.Event{What: check.Closed, Client: c.name, Stream: t.stream, Silent: true, Error: err.Error()})
		c.move()
		return nil, err
	}
	t.ClientStream, c.last = cs, t
	c.open.Store(int64(t.stream))
	c.mu.Lock()
	c.received = make(map[string]map[string]bool)
	c.mu.Unlock()
	return t, nil
}

// left records the end of a stream that the client closed.
func (c *client) left() {
	if c.last != nil && !c.last.closed {
		c.history.Add(check.Event{What: check.Closed, Client: c.name, Stream: c.last.stream, Asked: true})
	}
	c.last = nil
}

// receive records a response.
func (c *client) receive(_ *fleet.Client, r fleet.Response) {
	e := check.Event{What: check.Receipt, Client: c.name, Stream: c.streams, Type: string(r.Type), Resources: make(map[string]string)}
	e.Relay, e.Process, e.Text = sender(r.Identifier)
	resources, removed := r.Contents()
	e.Removed = removed
	c.track(e.Type, resources, removed)
	for _, res := range resources {
		e.Resources[res.Name] = content(res.Body)
		if r.Type != xds.RouteType {
			continue
		}
		var route routev3.RouteConfiguration
		if proto.Unmarshal(res.Body, &route) != nil {
			continue // its content was not published
		}
		if e.Refs == nil {
			e.Refs = make(map[string][]string)
		}
		for _, host := range route.GetVirtualHosts() {
			for _, to := range host.GetRoutes() {
				e.Refs[res.Name] = append(e.Refs[res.Name], to.GetRoute().GetCluster())
			}
		}
	}
	c.history.Add(e)
}

// track records the names that a response adds or removes.
func (c *client) track(typ string, resources []fleet.Resource, removed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := c.received[typ]
	if names == nil {
		names = make(map[string]bool)
		c.received[typ] = names
	}
	for _, r := range resources {
		names[r.Name] = true
	}
	for _, name := range removed {
		names[name] = true
	}
}

// sender returns the relay, its process and the origin in a response's identifier.
func sender(identifier string) (relay string, process int, origin string) {
	name, origin, _ := strings.Cut(identifier, "/")
	relay, number, _ := strings.Cut(name, "#")
	process, _ = strconv.Atoi(number) // not from this run: no process has 0
	return relay, process, origin
}

// recorder records a stream.
type recorder struct {
	grpc.ClientStream
	c      *client
	ctx    context.Context // the client's: gRPC ends the stream's own one with the stream
	stream int
	closed bool
}

func (t *recorder) SendMsg(m any) error {
	e := check.Event{What: check.Ask, Client: t.c.name, Stream: t.stream}
	switch r := m.(type) {
	case *discoveryv3.DiscoveryRequest:
		e.Type, e.Names = r.GetTypeUrl(), r.GetResourceNames()
	case *discoveryv3.DeltaDiscoveryRequest:
		e.Type, e.Names, e.Dropped = r.GetTypeUrl(), r.GetResourceNamesSubscribe(), r.GetResourceNamesUnsubscribe()
	}
	t.c.history.Add(e)
	return t.ClientStream.SendMsg(m)
}

func (t *recorder) RecvMsg(m any) error {
	err := t.ClientStream.RecvMsg(m)
	if err != nil {
		t.closed = true
		conn := ""
		if p, ok := peer.FromContext(t.Context()); ok && p.LocalAddr != nil {
			conn = p.LocalAddr.String()
		}
		t.c.history.Add(check.Event{What: check.Closed, Client: t.c.name, Stream: t.stream, Conn: conn,
			Asked: t.ctx.Err() != nil, Error: err.Error()})
		t.c.move()
	}
	return err
}
