package main

import (
	"context"
	"fmt"
	"maps"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/config"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/protobuf/proto"
)

// content is what fills a cache.
type content interface {
	set(ctx context.Context, version string, all []proto.Message) error
}

// muxed are the types that the mux caches know.
var muxed = []string{resource.ClusterType, resource.EndpointType, resource.ListenerType, resource.RouteType}

// newSite makes a server with a cache of a kind. If node is not empty, a snapshot cache serves only
// the node with this id.
func newSite(kind, node string) (*site, error) {
	s := &site{ended: make(chan struct{})}
	var of cache.Cache
	var options []config.XDSOption
	switch kind {
	case "snapshot":
		c := newSnapshots(false, node)
		s.cache, of = c, c.cache
	case "ads":
		c := newSnapshots(true, node)
		s.cache, of = c, c.cache
		options = append(options, sotw.WithOrderedADS())
	case "mux":
		c := newSnapshots(false, node)
		byType := make(map[string]cache.Cache)
		for _, url := range muxed {
			byType[url] = c.cache
		}
		s.cache, of = c, mux(byType)
	case "linear":
		c, byType := make(linears), make(map[string]cache.Cache)
		for _, url := range muxed {
			c[url] = cache.NewLinearCache(url)
			byType[url] = c[url]
		}
		s.cache, of = c, mux(byType)
	default:
		return nil, fmt.Errorf("no kind of cache: %q", kind)
	}
	s.server = server.NewServer(context.Background(), of, nil, options...)
	return s, nil
}

// mux puts a cache of each type behind a MuxCache, which ends a stream that asks for another type.
func mux(byType map[string]cache.Cache) *cache.MuxCache {
	return &cache.MuxCache{
		Classify:      func(r *discoveryv3.DiscoveryRequest) string { return r.GetTypeUrl() },
		ClassifyDelta: func(r *discoveryv3.DeltaDiscoveryRequest) string { return r.GetTypeUrl() },
		Caches:        byType,
	}
}

// snapshots fill a snapshot cache.
type snapshots struct {
	cache cache.SnapshotCache
	group string
}

// all is a NodeHash that makes all nodes one group.
type all struct{}

// ID returns the group of a node.
func (all) ID(*corev3.Node) string { return "" }

func newSnapshots(ads bool, node string) snapshots {
	var groups cache.NodeHash = all{}
	if node != "" {
		groups = cache.IDHash{}
	}
	return snapshots{cache.NewSnapshotCache(ads, groups, nil), node}
}

func (s snapshots) set(ctx context.Context, version string, all []proto.Message) error {
	byType := make(map[resource.Type][]types.Resource)
	for _, url := range muxed {
		byType[url] = nil
	}
	for _, m := range all {
		byType[typeOf(m)] = append(byType[typeOf(m)], m)
	}
	snap, err := cache.NewSnapshot(version, byType)
	if err != nil {
		return err
	}
	return s.cache.SetSnapshot(ctx, s.group, snap)
}

// linears are linear caches by type. They count versions by themselves.
type linears map[string]*cache.LinearCache

func (l linears) set(_ context.Context, _ string, all []proto.Message) error {
	byType := make(map[string]map[string]types.Resource)
	for _, m := range all {
		url := typeOf(m)
		if byType[url] == nil {
			byType[url] = make(map[string]types.Resource)
		}
		byType[url][cache.GetResourceName(m)] = m
	}
	for url, c := range l {
		before, after := c.GetResources(), byType[url]
		var gone []string
		for name := range before {
			if after[name] == nil {
				gone = append(gone, name)
			}
		}
		maps.DeleteFunc(after, func(name string, r types.Resource) bool {
			return before[name] != nil && proto.Equal(before[name], r)
		})
		if err := c.UpdateResources(after, gone); err != nil {
			return err
		}
	}
	return nil
}

func typeOf(m proto.Message) string {
	return "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
}
