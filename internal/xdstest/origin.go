package xdstest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	extensionservice "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	listenerservice "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	routeservice "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	runtimeservice "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	secretservice "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/config"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// The kinds of go-control-plane's caches. Linear caches hold one type each and
// send what changed. A snapshot cache holds all types of a node, and in SotW
// sends all of a type whenever its version differs.
const (
	Linear   = "linear"
	Snapshot = "snapshot"
)

// Caches are both kinds.
var Caches = []string{Linear, Snapshot}

// OriginOptions say how an origin serves. The zero value is a snapshot cache
// without heartbeats, TLS or REST.
type OriginOptions struct {
	Cache     string
	Address   string        // to listen at; empty: a free one of the loopback
	Heartbeat time.Duration // of resources with a TTL; snapshot caches only
	Server    []grpc.ServerOption
	REST      bool
	// Ordered makes a snapshot cache send the types of a snapshot in the order
	// of their dependencies, clusters first (go-control-plane's ADS mode). Such
	// a cache answers SotW names only if they are all that it has of the type.
	Ordered bool
	// Services, if not nil, makes what the origin serves instead of
	// go-control-plane's services.
	Services func() Services
}

// Services are gRPC services that a test wrote.
type Services interface {
	Register(*grpc.Server)
}

// Origin is go-control-plane's server, which serves each node by its
// node.cluster.
type Origin struct {
	Address     string   // gRPC
	RESTAddress string   // empty without OriginOptions.REST
	Services    Services // nil without OriginOptions.Services

	t    testing.TB
	opts OriginOptions
	stop func() // nil while it does not run

	mu       sync.Mutex
	contents map[string]contents // by node.cluster
	version  int
	snapshot cache.SnapshotCache
	linear   map[string]*cache.LinearCache // by node.cluster and type

	streams  map[int64]*originStream // open ones
	opened   int
	requests []Request

	connections ConnCounter
}

// originStream is an open stream.
type originStream struct {
	names map[string][]string // of the last request, by type
}

// contents are resources by type URL and name.
type contents map[string]map[string]types.ResourceWithTTL

// Request is what an origin received, in either variant.
type Request struct {
	Delta       bool
	Type        string
	Node        string
	Names       []string // SotW: all names; delta: the subscribed ones
	Unsubscribe []string
	Version     string // SotW
	Nonce       string
	Error       *statuspb.Status // of a NACK
	Versions    int              // delta: the number of initial_resource_versions
	Size        int              // in bytes
	// Asks is true if the request changes the subscription, and false if it is only an ACK or
	// NACK.
	Asks bool
}

// StartOrigin starts an origin that runs until the end of the test.
func StartOrigin(t testing.TB, opts OriginOptions) *Origin {
	t.Helper()
	if opts.Cache == "" {
		opts.Cache = Snapshot
	}
	o := &Origin{t: t, opts: opts, contents: make(map[string]contents),
		linear: make(map[string]*cache.LinearCache), streams: make(map[int64]*originStream)}
	if o.Address = opts.Address; o.Address == "" {
		o.Address = FreeAddress(t)
	}
	if opts.REST {
		o.RESTAddress = FreeAddress(t)
	}
	if opts.Services != nil {
		o.Services = opts.Services()
	}
	o.Start()
	t.Cleanup(o.Stop)
	return o
}

type byCluster struct{}

func (byCluster) ID(n *corev3.Node) string { return n.GetCluster() }

// NameOf returns a resource's type URL and name.
func NameOf(r types.Resource) (url, name string) {
	return TypeOf(r), cache.GetResourceName(r)
}

// TypeOf returns a message's type URL.
func TypeOf(m proto.Message) string {
	return "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
}

// serve starts the server with caches that hold the present contents. As a new
// process, it knows nothing of earlier streams, and counts versions from 1.
func (o *Origin) serve(l net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	o.mu.Lock()
	if o.opts.Heartbeat > 0 {
		o.snapshot = cache.NewSnapshotCacheWithHeartbeating(ctx, o.opts.Ordered, byCluster{}, nil, o.opts.Heartbeat)
	} else {
		o.snapshot = cache.NewSnapshotCache(o.opts.Ordered, byCluster{}, nil)
	}
	clear(o.linear)
	o.version = 0
	for node, c := range o.contents {
		for url := range c {
			o.publish(node, url, nil)
		}
	}
	o.mu.Unlock()

	var ordered []config.XDSOption
	if o.opts.Ordered {
		ordered = append(ordered, sotw.WithOrderedADS())
	}
	xds := server.NewServer(ctx, o, server.CallbackFuncs{
		StreamOpenFunc:        func(_ context.Context, id int64, _ string) error { o.streamOpened(id); return nil },
		StreamClosedFunc:      func(id int64, _ *corev3.Node) { o.streamClosed(id) },
		StreamRequestFunc:     func(id int64, r *discoveryv3.DiscoveryRequest) error { o.received(id, SotWRequest(r)); return nil },
		DeltaStreamOpenFunc:   func(_ context.Context, id int64, _ string) error { o.streamOpened(-id); return nil },
		DeltaStreamClosedFunc: func(id int64, _ *corev3.Node) { o.streamClosed(-id) },
		StreamDeltaRequestFunc: func(id int64, r *discoveryv3.DeltaDiscoveryRequest) error {
			o.received(-id, DeltaRequest(r))
			return nil
		},
	}, ordered...)
	g := grpc.NewServer(append(slices.Clone(o.opts.Server), grpc.StatsHandler(&o.connections))...)
	if o.Services != nil {
		o.Services.Register(g)
	} else {
		register(g, xds)
	}

	var wait sync.WaitGroup
	wait.Go(func() { _ = g.Serve(l) }) // ended by Stop
	rest := &http.Server{}
	if o.RESTAddress != "" {
		rest = o.serveREST(&server.HTTPGateway{Server: xds}, &wait)
	}
	o.stop = func() {
		_ = rest.Close() // nothing to flush
		g.Stop()
		cancel()
		wait.Wait()
	}
}

// register registers go-control-plane's services.
func register(g *grpc.Server, xds server.Server) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, xds)
	clusterservice.RegisterClusterDiscoveryServiceServer(g, xds)
	endpointservice.RegisterEndpointDiscoveryServiceServer(g, xds)
	listenerservice.RegisterListenerDiscoveryServiceServer(g, xds)
	routeservice.RegisterRouteDiscoveryServiceServer(g, xds)
	routeservice.RegisterScopedRoutesDiscoveryServiceServer(g, xds)
	routeservice.RegisterVirtualHostDiscoveryServiceServer(g, xds)
	secretservice.RegisterSecretDiscoveryServiceServer(g, xds)
	runtimeservice.RegisterRuntimeDiscoveryServiceServer(g, xds)
	extensionservice.RegisterExtensionConfigDiscoveryServiceServer(g, xds)
}

// serveREST serves polls over HTTP/1.1 and cleartext HTTP/2.
func (o *Origin) serveREST(gateway *server.HTTPGateway, wait *sync.WaitGroup) *http.Server {
	l, err := net.Listen("tcp", o.RESTAddress)
	if err != nil {
		o.t.Fatal(err)
	}
	s := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, code, err := gateway.ServeHTTP(r)
		if err != nil && code != http.StatusNotModified {
			http.Error(w, err.Error(), code)
			return
		}
		w.WriteHeader(code)
		_, _ = w.Write(body) // the client may be gone
	})}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	wait.Go(func() { _ = s.Serve(l) }) // ended by Close
	return s
}

// Stop ends the origin and its connections at once. It may be called again.
func (o *Origin) Stop() {
	if o.stop != nil {
		o.stop()
		o.stop = nil
	}
}

// Start starts a stopped origin again, at the same address, with what it holds
// by now.
func (o *Origin) Start() {
	o.t.Helper()
	var l net.Listener
	Eventually(o.t, "listen again", func() (err error) {
		l, err = net.Listen("tcp", o.Address)
		return err
	})
	o.serve(l)
}

// Put adds or changes resources for the nodes of a cluster.
func (o *Origin) Put(node string, resources ...types.Resource) {
	o.t.Helper()
	o.Change(node, resources, nil)
}

// Set gives the nodes of a cluster these resources and no others.
func (o *Origin) Set(node string, resources ...types.Resource) {
	o.t.Helper()
	gone := make(map[string][]string)
	o.mu.Lock()
	for url, byName := range o.contents[node] {
		gone[url] = slices.Collect(maps.Keys(byName))
	}
	o.mu.Unlock()
	for _, r := range resources {
		url, name := NameOf(r)
		gone[url] = slices.DeleteFunc(gone[url], func(n string) bool { return n == name })
	}
	o.Change(node, resources, gone)
}

// PutTTL adds or changes a resource that expires ttl after its last heartbeat.
// Linear caches ignore the TTL.
func (o *Origin) PutTTL(node string, r types.Resource, ttl time.Duration) {
	o.t.Helper()
	o.change(node, []types.ResourceWithTTL{{Resource: r, TTL: &ttl}}, nil)
}

// Remove removes resources of a type from the nodes of a cluster.
func (o *Origin) Remove(node, url string, names ...string) {
	o.t.Helper()
	o.Change(node, nil, map[string][]string{url: names})
}

// Change adds, changes and removes resources. A snapshot cache does it in one
// step, linear caches type by type in the order of type URLs.
func (o *Origin) Change(node string, put []types.Resource, remove map[string][]string) {
	o.t.Helper()
	var all []types.ResourceWithTTL
	for _, r := range put {
		all = append(all, types.ResourceWithTTL{Resource: r})
	}
	o.change(node, all, remove)
}

func (o *Origin) change(node string, put []types.ResourceWithTTL, remove map[string][]string) {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.contents[node]
	if c == nil {
		c = make(contents)
		o.contents[node] = c
	}
	changed := make(map[string]bool)
	for _, r := range put {
		url, name := NameOf(r.Resource)
		if c[url] == nil {
			c[url] = make(map[string]types.ResourceWithTTL)
		}
		c[url][name] = r
		changed[url] = true
	}
	for url, names := range remove {
		for _, n := range names {
			delete(c[url], n)
		}
		changed[url] = true
	}
	for _, url := range slices.Sorted(maps.Keys(changed)) {
		o.publish(node, url, remove[url])
		if o.opts.Cache == Snapshot {
			break // one snapshot has all types
		}
	}
}

// publish gives the contents to the caches. The caller holds mu.
func (o *Origin) publish(node, url string, removed []string) {
	if o.opts.Cache == Linear {
		resources := make(map[string]types.Resource)
		for name, r := range o.contents[node][url] {
			resources[name] = r.Resource
		}
		l := o.linearCache(node, url)
		before := l.GetResources()
		for name, r := range resources {
			if before[name] == r {
				delete(resources, name) // not changed
			}
		}
		if err := l.UpdateResources(resources, removed); err != nil {
			o.t.Error(err)
		}
		return
	}
	o.version++
	all := make(map[string][]types.ResourceWithTTL)
	for url, byName := range o.contents[node] {
		all[url] = slices.Collect(maps.Values(byName))
	}
	snap, err := cache.NewSnapshotWithTTLs(fmt.Sprint("s", o.version), all)
	if err == nil {
		err = o.snapshot.SetSnapshot(context.Background(), node, snap)
	}
	if err != nil {
		o.t.Error(err)
	}
}

// linearCache is the cache of a node's type. The caller holds mu.
func (o *Origin) linearCache(node, url string) *cache.LinearCache {
	key := node + " " + url
	l := o.linear[key]
	if l == nil {
		l = cache.NewLinearCache(url)
		o.linear[key] = l
	}
	return l
}

// The origin is the cache.Cache of its server.

func (o *Origin) cacheOf(node *corev3.Node, url string) cache.Cache {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.opts.Cache == Linear {
		return o.linearCache(node.GetCluster(), url)
	}
	return o.snapshot
}

// CreateWatch serves go-control-plane.
func (o *Origin) CreateWatch(r *cache.Request, sub cache.Subscription, to chan cache.Response) (func(), error) {
	return o.cacheOf(r.GetNode(), r.GetTypeUrl()).CreateWatch(r, sub, to)
}

// CreateDeltaWatch serves go-control-plane.
func (o *Origin) CreateDeltaWatch(r *cache.DeltaRequest, sub cache.Subscription, to chan cache.DeltaResponse) (func(), error) {
	return o.cacheOf(r.GetNode(), r.GetTypeUrl()).CreateDeltaWatch(r, sub, to)
}

// Fetch serves go-control-plane.
func (o *Origin) Fetch(ctx context.Context, r *cache.Request) (cache.Response, error) {
	return o.cacheOf(r.GetNode(), r.GetTypeUrl()).Fetch(ctx, r)
}

// SotWRequest returns what a request says.
func SotWRequest(r *discoveryv3.DiscoveryRequest) Request {
	return Request{Type: r.GetTypeUrl(), Node: r.GetNode().GetId(), Names: slices.Clone(r.GetResourceNames()),
		Version: r.GetVersionInfo(), Nonce: r.GetResponseNonce(), Error: r.GetErrorDetail(), Size: proto.Size(r)}
}

// DeltaRequest returns what a request says.
func DeltaRequest(r *discoveryv3.DeltaDiscoveryRequest) Request {
	return Request{Delta: true, Type: r.GetTypeUrl(), Node: r.GetNode().GetId(),
		Names: slices.Clone(r.GetResourceNamesSubscribe()), Unsubscribe: slices.Clone(r.GetResourceNamesUnsubscribe()),
		Nonce: r.GetResponseNonce(), Error: r.GetErrorDetail(), Versions: len(r.GetInitialResourceVersions()), Size: proto.Size(r)}
}

func (o *Origin) streamOpened(id int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.streams[id] = &originStream{names: make(map[string][]string)}
	o.opened++
}

func (o *Origin) streamClosed(id int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.streams, id)
}

func (o *Origin) received(id int64, r Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.streams[id]
	if s == nil {
		return // closed meanwhile
	}
	before, asked := s.names[r.Type]
	slices.Sort(r.Names)
	if r.Delta {
		r.Asks = !asked || len(r.Names)+len(r.Unsubscribe) > 0
	} else {
		r.Asks = !asked || !slices.Equal(before, r.Names)
	}
	s.names[r.Type] = r.Names
	o.requests = append(o.requests, r)
}

// Streams returns how many streams are open, and how many were ever opened.
func (o *Origin) Streams() (open, ever int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.streams), o.opened
}

// Requests returns the requests for which pick returns true.
func (o *Origin) Requests(pick func(Request) bool) []Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []Request
	for _, r := range o.requests {
		if pick(r) {
			out = append(out, r)
		}
	}
	return out
}

// Connections returns how many connections are open, and how many were ever opened.
func (o *Origin) Connections() (open, ever int) { return o.connections.Counts() }

// Asked returns how many requests changed a subscription.
func (o *Origin) Asked() int { return len(o.Requests(func(r Request) bool { return r.Asks })) }

// Resources returns a copy of what the origin has of a type for the nodes of a cluster, by name.
func (o *Origin) Resources(node, url string) map[string]types.Resource {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make(map[string]types.Resource)
	for name, r := range o.contents[node][url] {
		out[name] = r.Resource
	}
	return out
}
