package upstream

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"xdsrelay/internal/xds"
)

// controlPlane is go-control-plane's server on loopback. It can be stopped and
// started again at the same address.
type controlPlane struct {
	t       *testing.T
	cache   cachev3.Cache
	opts    []grpc.ServerOption
	address string
	stop    func()

	mu        sync.Mutex
	streams   int
	responses int
	resources int // in all responses
	removed   int
}

func startControlPlane(t *testing.T, c cachev3.Cache, opts ...grpc.ServerOption) *controlPlane {
	t.Helper()
	p := &controlPlane{t: t, cache: c, opts: opts, address: "127.0.0.1:0"}
	p.start()
	t.Cleanup(func() { p.stop() })
	return p
}

func (p *controlPlane) start() {
	p.t.Helper()
	lis, err := net.Listen("tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.address = lis.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	count := func(resources, removed int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.responses++
		p.resources += resources
		p.removed += removed
	}
	opened := func(context.Context, int64, string) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.streams++
		return nil
	}
	s := serverv3.NewServer(ctx, p.cache, serverv3.CallbackFuncs{
		StreamOpenFunc:      opened,
		DeltaStreamOpenFunc: opened,
		StreamResponseFunc: func(_ context.Context, _ int64, _ *discoveryv3.DiscoveryRequest, r *discoveryv3.DiscoveryResponse) {
			count(len(r.Resources), 0)
		},
		StreamDeltaResponseFunc: func(_ int64, _ *discoveryv3.DeltaDiscoveryRequest, r *discoveryv3.DeltaDiscoveryResponse) {
			count(len(r.Resources), len(r.RemovedResources))
		},
	})
	g := grpc.NewServer(p.opts...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(lis) })
	p.stop = func() {
		cancel()
		g.Stop()
		wg.Wait()
		p.stop = func() {}
	}
}

// counts since the last call.
func (p *controlPlane) counts() (streams, responses, resources, removed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	streams, responses, resources, removed = p.streams, p.responses, p.resources, p.removed
	p.streams, p.responses, p.resources, p.removed = 0, 0, 0, 0
	return
}

func assignment(name string, priority uint32) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{Priority: priority}}}
}

func TestP50_NamesFromALinearCache(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		linear := cachev3.NewLinearCache(string(eds), cachev3.WithInitialResources(map[string]types.Resource{
			"a": assignment("a", 0), "b": assignment("b", 0), "c": assignment("c", 0),
		}))
		p := startControlPlane(t, linear)
		r := startRelay(t, Options{Variant: v}, p.address)
		stream, sink := r.stream(named(eds, "a", "b", "new"))
		sink.untilNames(t, eds, "a", "b")
		stream.SetInterest(sink.want(named(eds, "b", "c", "new")))
		sink.untilNames(t, eds, "b", "c")
		if err := linear.UpdateResource("new", assignment("new", 0)); err != nil {
			t.Fatal(err)
		}
		sink.untilNames(t, eds, "b", "c", "new")
		was := sink.Held(eds).Held("b")
		if err := linear.UpdateResource("b", assignment("b", 7)); err != nil {
			t.Fatal(err)
		}
		sink.until(t, "change", func() bool { return !sink.held[eds].Held("b").Same(was) })
		stream.SetInterest(sink.want(named(eds, "a", "b", "c", "new"))) // let go, and wanted again
		sink.untilNames(t, eds, "a", "b", "c", "new")
		if err := linear.DeleteResource("c"); err != nil {
			t.Fatal(err)
		}
		if v == xds.Delta { // in SotW nobody can tell (P65)
			sink.until(t, "removal", func() bool { return sink.presence(eds, "c") == xds.Absent })
		} else {
			if err := linear.UpdateResource("a", assignment("a", 7)); err != nil {
				t.Fatal(err)
			}
			sink.until(t, "change", func() bool { return len(sink.updates) > 4 })
			sink.untilNames(t, eds, "a", "b", "c", "new")
		}
		if streams, _, _, _ := p.counts(); streams != 1 {
			t.Errorf("%d streams", streams)
		}
	})
}

func snapshot(t *testing.T, version string, clusters ...string) *cachev3.Snapshot {
	var out []types.Resource
	for _, c := range clusters {
		out = append(out, &clusterv3.Cluster{Name: c})
	}
	s, err := cachev3.NewSnapshot(version, map[string][]types.Resource{string(cds): out})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ConstructVersionMap(); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestP50_WildcardFromASnapshotCache(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		c := cachev3.NewSnapshotCache(true, constantHash{}, nil)
		set := func(version string, clusters ...string) {
			if err := c.SetSnapshot(t.Context(), "", snapshot(t, version, clusters...)); err != nil {
				t.Fatal(err)
			}
		}
		set("1", "a", "b", "c")
		p := startControlPlane(t, c)
		r := startRelay(t, Options{Variant: v}, p.address)
		_, sink := r.stream(all(cds))
		sink.untilNames(t, cds, "a", "b", "c")
		set("2", "b", "c", "d")
		sink.untilNames(t, cds, "b", "c", "d")
		set("3")
		sink.untilNames(t, cds)
		set("4", "b", "c")
		sink.untilNames(t, cds, "b", "c")
		sink.until(t, "version", func() bool { return sink.held[cds].Version == "4" && sink.held[cds].Answered })

		// A restart of the origin: what is unchanged is not sent again (P55), and
		// what went meanwhile is noticed.
		p.stop()
		sink.until(t, "loss", func() bool { return !sink.lastStatus().Connected })
		p.counts()
		held := sink.Held(cds)
		p.start()
		sink.until(t, "connection", func() bool { return sink.lastStatus().Connected })
		set("5", "b", "e")
		sink.untilNames(t, cds, "b", "e")
		_, _, resources, removed := p.counts()
		if v == xds.Delta && (resources != 1 || removed != 1) {
			t.Errorf("the origin sent %d resources and %d removals", resources, removed)
		}
		if v == xds.SotW && resources != 2 {
			t.Errorf("the origin sent %d resources", resources)
		}
		if sink.Held(cds).Held("b") != held.Held("b") {
			t.Error("an unchanged resource was made again")
		}
	})
}

// constantHash serves one snapshot to every node.
type constantHash struct{}

func (constantHash) ID(*corev3.Node) string { return "" }

func TestP50_FiftyKeysOnAnOriginThatAllowsTenStreamsAConnection(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		resources := make(map[string]types.Resource)
		for i := range 50 {
			n := fmt.Sprint(i)
			resources[n] = assignment(n, 0)
		}
		p := startControlPlane(t, cachev3.NewLinearCache(string(eds), cachev3.WithInitialResources(resources)), grpc.MaxConcurrentStreams(10))
		r := startRelay(t, Options{Variant: v, StreamsPerConnection: 10}, p.address)
		sinks := make([]*testSink, 50)
		for i := range sinks {
			_, sinks[i] = r.stream(named(eds, fmt.Sprint(i)))
		}
		for i, s := range sinks {
			s.untilNames(t, eds, fmt.Sprint(i))
		}
		if o := r.client.Origins()[0]; o.Streams != 50 || o.Connections != 5 {
			t.Errorf("status %+v", o)
		}
	})
}
