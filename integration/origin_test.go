package integration

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/config"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/xds"
)

// origin is go-control-plane's server over a store. It keeps an account of
// what it was asked.
type origin struct {
	*store
	addr string
	opts []grpc.ServerOption
	says []config.XDSOption // of go-control-plane's server

	// Of the test's goroutine.
	stopped func() // nil: not running

	mu      sync.Mutex
	streams map[int64]*account // that are open
	opened  int                // streams, ever
	conns   int                // that are open
	dialled int                // connections, ever
	said    []request
}

// account is of one stream, and what was last asked of its types.
type account struct {
	delta bool
	names map[string][]string // SotW: by type
}

// request is what an origin was sent, in either variant.
type request struct {
	Delta   bool
	Type    xds.TypeURL
	Node    string
	Names   []string // SotW: all; incremental: subscribed
	Dropped []string // incremental
	Nonce   string
	Error   *statuspb.Status
	// Asks: it changes what is asked for; else it is an ACK or NACK alone.
	Asks     bool
	Versions int // incremental: of how many names it brings one
	Size     int // on the wire
}

// newOrigin starts an origin with a cache of that kind, until the test ends.
func newOrigin(t testing.TB, kind string, opts ...grpc.ServerOption) *origin {
	t.Helper()
	return originOf(newStore(t, kind), nil, opts...)
}

// newOrderedOrigin starts one in ordered ADS mode: it withholds the answer to
// names until all that a node has is asked for, and sends the types in order.
func newOrderedOrigin(t testing.TB) *origin {
	t.Helper()
	s := newStore(t, snapshot)
	s.snap = cache.NewSnapshotCache(true, byCluster{}, nil)
	return originOf(s, []config.XDSOption{sotw.WithOrderedADS()})
}

func originOf(s *store, says []config.XDSOption, opts ...grpc.ServerOption) *origin {
	s.t.Helper()
	l := listen(s.t)
	o := &origin{store: s, addr: l.Addr().String(), says: says, streams: make(map[int64]*account)}
	o.opts = append(slices.Clone(opts), grpc.StatsHandler(o))
	o.serve(l)
	s.t.Cleanup(o.stop)
	return o
}

func (o *origin) serve(l net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	g := grpc.NewServer(o.opts...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, server.NewServer(ctx, o.store, server.CallbackFuncs{
		StreamOpenFunc:          func(_ context.Context, id int64, _ string) error { o.open(id, false); return nil },
		StreamClosedFunc:        func(id int64, _ *corev3.Node) { o.close(id) },
		StreamRequestFunc:       func(id int64, r *discoveryv3.DiscoveryRequest) error { o.heard(id, sotwRequest(r)); return nil },
		DeltaStreamOpenFunc:     func(_ context.Context, id int64, _ string) error { o.open(-id, true); return nil },
		DeltaStreamClosedFunc:   func(id int64, _ *corev3.Node) { o.close(-id) },
		StreamDeltaRequestFunc:  func(id int64, r *discoveryv3.DeltaDiscoveryRequest) error { o.heard(-id, deltaRequest(r)); return nil },
		StreamResponseFunc:      nil,
		StreamDeltaResponseFunc: nil,
	}, o.says...))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(l) // ended by Stop
	}()
	o.stopped = func() {
		g.Stop()
		cancel()
		<-done
	}
}

// stop ends the origin and its connections at once. May be called again.
func (o *origin) stop() {
	if o.stopped != nil {
		o.stopped()
		o.stopped = nil
	}
}

// start starts it again, at the same address and with what it has by now. As a
// new process it knows nothing of earlier streams.
func (o *origin) start() {
	o.t.Helper()
	var l net.Listener
	until(o.t, "listen again", func() (err error) {
		l, err = net.Listen("tcp", o.addr)
		return err
	})
	o.serve(l)
}

func sotwRequest(r *discoveryv3.DiscoveryRequest) request {
	return request{Type: xds.TypeURL(r.GetTypeUrl()), Node: r.GetNode().GetId(), Names: slices.Clone(r.GetResourceNames()),
		Nonce: r.GetResponseNonce(), Error: r.GetErrorDetail(), Size: proto.Size(r)}
}

func deltaRequest(r *discoveryv3.DeltaDiscoveryRequest) request {
	return request{Delta: true, Type: xds.TypeURL(r.GetTypeUrl()), Node: r.GetNode().GetId(),
		Names: slices.Clone(r.GetResourceNamesSubscribe()), Dropped: slices.Clone(r.GetResourceNamesUnsubscribe()),
		Nonce: r.GetResponseNonce(), Error: r.GetErrorDetail(), Versions: len(r.GetInitialResourceVersions()), Size: proto.Size(r)}
}

func (o *origin) open(id int64, delta bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.streams[id] = &account{delta: delta, names: make(map[string][]string)}
	o.opened++
}

func (o *origin) close(id int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.streams, id)
}

func (o *origin) heard(id int64, r request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.streams[id]
	if a == nil {
		return // closed meanwhile
	}
	before, spoke := a.names[string(r.Type)]
	slices.Sort(r.Names)
	if r.Delta {
		r.Asks = !spoke || len(r.Names)+len(r.Dropped) > 0
	} else {
		r.Asks = !spoke || !slices.Equal(before, r.Names)
	}
	a.names[string(r.Type)] = r.Names
	o.said = append(o.said, r)
}

// open streams, and those ever opened.
func (o *origin) count() (open, ever int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.streams), o.opened
}

// connections that are open, and those ever opened.
func (o *origin) connections() (open, ever int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.conns, o.dialled
}

// requests are those for which pick holds.
func (o *origin) requests(pick func(request) bool) []request {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []request
	for _, r := range o.said {
		if pick(r) {
			out = append(out, r)
		}
	}
	return out
}

// asked is how many requests changed what is asked for.
func (o *origin) asked() int { return len(o.requests(func(r request) bool { return r.Asks })) }

// The connections, as gRPC tells of them.

func (o *origin) HandleConn(_ context.Context, s stats.ConnStats) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch s.(type) {
	case *stats.ConnBegin:
		o.conns++
		o.dialled++
	case *stats.ConnEnd:
		o.conns--
	}
}

func (o *origin) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (o *origin) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (o *origin) HandleRPC(context.Context, stats.RPCStats)                         {}
