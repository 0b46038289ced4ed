//go:build linux

package loadtest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"sync"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/xdstest"
)

// Delta streams of go-control-plane's servers in this process.
var (
	openedStreams = promauto.NewCounter(prometheus.CounterOpts{Name: "loadtest_opened_streams_total", Help: "Delta streams that were opened."})
	openStreams   = promauto.NewGauge(prometheus.GaugeOpts{Name: "loadtest_open_streams", Help: "Open delta streams."})
)

// newGCP returns go-control-plane's server for a cache.
func newGCP(t testing.TB, c cache.Cache, opts ...grpc.ServerOption) *grpc.Server {
	g := grpc.NewServer(opts...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, server.NewServer(t.Context(), c, server.CallbackFuncs{
		DeltaStreamOpenFunc: func(context.Context, int64, string) error {
			openedStreams.Inc()
			openStreams.Inc()
			return nil
		},
		DeltaStreamClosedFunc: func(int64, *corev3.Node) { openStreams.Dec() },
	}))
	return g
}

// origin is go-control-plane's server in this process. The relay uses it.
type origin struct {
	t     testing.TB
	cache cache.Cache
	addr  string
	stop  func()
}

// start starts the origin, or starts it again at the same address.
func (o *origin) start() {
	var lis net.Listener
	xdstest.Eventually(o.t, "listen", func() (err error) {
		lis, err = net.Listen("tcp", o.addr)
		return err
	})
	g := newGCP(o.t, o.cache)
	var serving sync.WaitGroup
	serving.Go(func() { _ = g.Serve(lis) }) // ended by stop
	o.stop = func() {
		g.Stop()
		serving.Wait()
	}
}

// newLinear returns a linear cache for each key. It serves generation 0.
func newLinear(t testing.TB, l load) (cache.Cache, prepare) {
	mux := &cache.MuxCache{
		Classify:      func(r *cache.Request) string { return r.GetNode().GetCluster() },
		ClassifyDelta: func(r *cache.DeltaRequest) string { return r.GetNode().GetCluster() },
		Caches:        make(map[string]cache.Cache),
	}
	var caches []*cache.LinearCache
	for i := range max(l.Keys, 1) {
		first := make(map[string]types.Resource)
		for _, r := range l.resources(0) {
			first[r.name] = l.own(r.Message, i)
		}
		c := cache.NewLinearCache(l.typ(), cache.WithInitialResources(first))
		mux.Caches[l.nodeCluster(i)] = c
		caches = append(caches, c)
	}
	return mux, func(n int) func() {
		changed := make([]types.Resource, len(caches))
		for i := range changed {
			changed[i] = l.own(l.resource(l.changed(n), n).Message, i)
		}
		return func() {
			for i, c := range caches {
				if err := c.UpdateResource(clusterName(l.changed(n)), changed[i]); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// newSnapshots returns a snapshot cache with a snapshot for each key. It serves generation 0. ahead:
// the versions of resources are computed before a generation is served.
func newSnapshots(t testing.TB, l load, ahead bool) (cache.Cache, prepare) {
	// In its ADS mode it does not answer a request for only some of the names.
	into := cache.NewSnapshotCache(l.Names == 0, byCluster{}, nil)
	kinds := 1
	if l.Own {
		kinds = max(l.Keys, 1)
	}
	base := make([][]types.Resource, kinds)
	for k := range base {
		for _, r := range l.resources(0) {
			base[k] = append(base[k], l.own(r.Message, k))
		}
	}
	versions := make([]map[string]string, kinds) // the last prepared ones
	next := func(n int) func() {
		all := make([]*cache.Snapshot, kinds)
		for k := range all {
			base[k][0] = l.own(l.resource(0, n).Message, k)
			s, err := cache.NewSnapshot(fmt.Sprint(n), map[string][]types.Resource{l.typ(): base[k]})
			if err == nil && ahead {
				versions[k], err = l.versions(s, versions[k], base[k][0])
			}
			if err != nil {
				t.Error(err)
			}
			all[k] = s
		}
		return func() {
			for i := range max(l.Keys, 1) {
				if err := into.SetSnapshot(t.Context(), l.nodeCluster(i), all[i%kinds]); err != nil {
					t.Error(err)
				}
			}
		}
	}
	next(0)()
	return into, next
}

// versions gives a snapshot the versions of its resources, and returns them. They are the previous
// ones, except for the resource that changed. go-control-plane would hash all of them.
func (l load) versions(s *cache.Snapshot, before map[string]string, changed types.Resource) (map[string]string, error) {
	if before == nil {
		err := s.ConstructVersionMap()
		return s.VersionMap[l.typ()], err
	}
	raw, err := cache.MarshalResource(changed)
	if err != nil {
		return nil, err
	}
	now := maps.Clone(before)
	now[cache.GetResourceName(changed)] = cache.HashResource(raw)
	s.VersionMap = map[string]map[string]string{l.typ(): now}
	return now, nil
}

// own makes a cluster specific to key k.
func (l load) own(r proto.Message, k int) proto.Message {
	if c, ok := r.(*clusterv3.Cluster); ok && l.Own {
		c.AltStatName += fmt.Sprintf("-%d", k)
	}
	return r
}

// byCluster gives all nodes of a cluster the same snapshot, as the relay's default rule does.
type byCluster struct{}

func (byCluster) ID(n *corev3.Node) string { return n.GetCluster() }
