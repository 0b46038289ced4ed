//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// serveGCP is go-control-plane's server with its snapshot cache, with the gRPC
// options of that project's own example. It is a contender, and the relay's
// origin.
func serveGCP(settings []byte) error {
	var l load
	if err := json.Unmarshal(settings, &l); err != nil {
		return err
	}
	// In its mode for ADS it does not answer who asks for a part of the names.
	snapshots := cache.NewSnapshotCache(l.Names == 0, byCluster{}, nil)
	var rs []types.Resource
	for _, r := range l.resources(0) {
		rs = append(rs, r.Message)
	}
	prepare := prepare(func(n int) (func() error, error) {
		rs[0] = l.resource(0, n).Message
		s, err := cache.NewSnapshot(fmt.Sprint(n), map[string][]types.Resource{l.typ(): rs})
		return func() error { return snapshots.SetSnapshot(context.Background(), nodeCluster, s) }, err
	})
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
	g := grpc.NewServer(append(opts,
		grpc.MaxConcurrentStreams(1_000_000),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 5 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 30 * time.Second, PermitWithoutStream: true}),
	)...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, server.NewServer(context.Background(), snapshots, nil))
	go func() { _ = g.Serve(lis) }() // until the process ends
	return obeyAsServer(lis, prepare)
}

// byCluster gives all nodes of a cluster the same snapshot, as the relay's
// default rule does.
type byCluster struct{}

func (byCluster) ID(n *corev3.Node) string { return n.GetCluster() }
