//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"
)

// exampleOptions are the options of go-control-plane's own example.
var exampleOptions = []grpc.ServerOption{
	grpc.MaxConcurrentStreams(1_000_000),
	grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 5 * time.Second}),
	grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 30 * time.Second, PermitWithoutStream: true}),
}

// serveGCP is go-control-plane's server with one of its caches. With the snapshot cache it is the
// relay's origin too.
func serveGCP(settings []byte, with func(load) (cache.Cache, prepare), more []grpc.ServerOption) error {
	var l load
	if err := json.Unmarshal(settings, &l); err != nil {
		return err
	}
	resources, prepare := with(l)
	if err := prepare.now(0); err != nil {
		return err
	}
	lis, err := listen()
	if err != nil {
		return err
	}
	opts, err := l.TLS.options()
	if err != nil {
		return err
	}
	g := grpc.NewServer(append(opts, more...)...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, server.NewServer(context.Background(), resources, nil))
	go func() { _ = g.Serve(lis) }() // until the process ends
	return obeyAsServer(lis, prepare)
}

// snapshotCache has a snapshot for each key.
func snapshotCache(l load) (cache.Cache, prepare) {
	// In its ADS mode it does not answer a request for only some of the names.
	c := cache.NewSnapshotCache(l.Names == 0, byCluster{}, nil)
	return c, l.snapshots(c)
}

// linearCache has a linear cache of one type for each key.
func linearCache(l load) (cache.Cache, prepare) {
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
	name := clusterName(0) // the one that changes
	return mux, func(n int) (func() error, error) {
		changed := make([]types.Resource, len(caches))
		for i := range changed {
			changed[i] = l.own(l.resource(0, n).Message, i)
		}
		return func() error {
			for i, c := range caches {
				if err := c.UpdateResource(name, changed[i]); err != nil {
					return err
				}
			}
			return nil
		}, nil
	}
}

// snapshots prepares the snapshots of all keys.
func (l load) snapshots(into cache.SnapshotCache) prepare {
	kinds := 1
	if l.Own {
		kinds = max(l.Keys, 1)
	}
	var base [][]types.Resource
	for k := range kinds {
		var rs []types.Resource
		for _, r := range l.resources(0) {
			rs = append(rs, l.own(r.Message, k))
		}
		base = append(base, rs)
	}
	versions := make([]map[string]string, kinds) // the last prepared ones
	return func(n int) (func() error, error) {
		all := make([]*cache.Snapshot, kinds)
		for k := range all {
			base[k][0] = l.own(l.resource(0, n).Message, k)
			s, err := cache.NewSnapshot(fmt.Sprint(n), map[string][]types.Resource{l.typ(): base[k]})
			if err != nil {
				return nil, err
			}
			if l.Ahead {
				if versions[k], err = l.versions(s, versions[k], base[k][0]); err != nil {
					return nil, err
				}
			}
			all[k] = s
		}
		return func() error {
			for i := range max(l.Keys, 1) {
				if err := into.SetSnapshot(context.Background(), l.nodeCluster(i), all[i%kinds]); err != nil {
					return err
				}
			}
			return nil
		}, nil
	}
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

// byCluster gives all nodes of a cluster the same snapshot, as the relay's
// default rule does.
type byCluster struct{}

func (byCluster) ID(n *corev3.Node) string { return n.GetCluster() }
