package integration

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/xds"
)

// The kinds of go-control-plane's caches. The linear ones have one a type, and
// send what changed; the snapshot has all types, and in SotW sends all of a
// type whenever its version differs.
const (
	linear   = "linear"
	snapshot = "snapshot"
)

var caches = []string{linear, snapshot}

// contents is what an origin has of a cluster of nodes, by type and name.
type contents map[xds.TypeURL]map[string]types.Resource

// store is what an origin has: go-control-plane's caches, and what was put into
// them.
type store struct {
	t    testing.TB
	kind string

	mu      sync.Mutex
	holds   map[string]contents // by the node's cluster
	version int
	snap    cache.SnapshotCache
	linears map[string]*cache.LinearCache // by cluster and type
}

func newStore(t testing.TB, kind string) *store {
	return &store{t: t, kind: kind, holds: make(map[string]contents),
		linears: make(map[string]*cache.LinearCache),
		// Not "ADS" in go-control-plane's sense, which withholds answers until
		// all that a node has is asked for.
		snap: cache.NewSnapshotCache(false, byCluster{}, nil)}
}

type byCluster struct{}

func (byCluster) ID(n *corev3.Node) string { return n.GetCluster() }

// nameOf is a resource's own, and its type.
func nameOf(r types.Resource) (xds.TypeURL, string) {
	url := xds.TypeURL("type.googleapis.com/" + r.(proto.Message).ProtoReflect().Descriptor().FullName())
	return url, cache.GetResourceName(r)
}

// put adds or changes resources for a cluster's nodes.
func (s *store) put(cluster string, resources ...types.Resource) {
	s.t.Helper()
	s.change(cluster, resources, nil)
}

// remove removes resources of a type from a cluster's nodes.
func (s *store) remove(cluster string, typ xds.TypeURL, names ...string) {
	s.t.Helper()
	s.change(cluster, nil, map[xds.TypeURL][]string{typ: names})
}

// change adds, changes and removes at once, as far as the kind of cache can.
func (s *store) change(cluster string, put []types.Resource, remove map[xds.TypeURL][]string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.holds[cluster]
	if c == nil {
		c = make(contents)
		s.holds[cluster] = c
	}
	puts := make(map[xds.TypeURL]map[string]types.Resource)
	for _, r := range put {
		url, name := nameOf(r)
		if c[url] == nil {
			c[url] = make(map[string]types.Resource)
		}
		if puts[url] == nil {
			puts[url] = make(map[string]types.Resource)
		}
		c[url][name], puts[url][name] = r, r
	}
	for url, names := range remove {
		for _, n := range names {
			delete(c[url], n)
		}
		if puts[url] == nil {
			puts[url] = nil // a type that is changed
		}
	}
	if s.kind == linear {
		for url := range puts {
			if err := s.linear(cluster, string(url)).UpdateResources(puts[url], remove[url]); err != nil {
				s.t.Fatal(err)
			}
		}
		return
	}
	s.version++
	all := make(map[string][]types.Resource)
	for url, byName := range c {
		for _, r := range byName {
			all[string(url)] = append(all[string(url)], r)
		}
	}
	snap, err := cache.NewSnapshot(fmt.Sprintf("s%d", s.version), all)
	if err == nil {
		err = s.snap.SetSnapshot(context.Background(), cluster, snap)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// linear is the cache of a cluster and type. Needs mu.
func (s *store) linear(cluster, url string) *cache.LinearCache {
	key := cluster + " " + url
	c := s.linears[key]
	if c == nil {
		c = cache.NewLinearCache(url)
		s.linears[key] = c
	}
	return c
}

// has is a copy of what there is of a type for a cluster's nodes.
func (s *store) has(cluster string, typ xds.TypeURL) map[string]types.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.holds[cluster][typ])
}

// The store as go-control-plane's server wants it.

func (s *store) cacheOf(cluster, url string) cache.Cache {
	if s.kind == snapshot {
		return s.snap
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.linear(cluster, url)
}

func (s *store) CreateWatch(r *cache.Request, sub cache.Subscription, to chan cache.Response) (func(), error) {
	return s.cacheOf(r.GetNode().GetCluster(), r.GetTypeUrl()).CreateWatch(r, sub, to)
}

func (s *store) CreateDeltaWatch(r *cache.DeltaRequest, sub cache.Subscription, to chan cache.DeltaResponse) (func(), error) {
	return s.cacheOf(r.GetNode().GetCluster(), r.GetTypeUrl()).CreateDeltaWatch(r, sub, to)
}

func (s *store) Fetch(ctx context.Context, r *cache.Request) (cache.Response, error) {
	return s.cacheOf(r.GetNode().GetCluster(), r.GetTypeUrl()).Fetch(ctx, r)
}
