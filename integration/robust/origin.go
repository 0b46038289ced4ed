//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/types/known/anypb"
)

// originRole is an environment variable with an origin's name. It makes this program that origin:
// go-control-plane's server. The process reads snapshots from standard input, one a line, and
// answers each with a line once it has it.
const originRole = "ROBUST_ORIGIN"

type byCluster struct{}

func (byCluster) ID(n *corev3.Node) string { return n.GetCluster() }

// originCommand is a line to an origin. Before Listen it has no clients.
type originCommand struct {
	Snapshot *snapshot `json:"snapshot,omitempty"`
	Listen   bool      `json:"listen,omitempty"`
}

// originReply is a line from an origin.
type originReply struct {
	Address string `json:"address,omitempty"`
	Error   string `json:"error,omitempty"`
}

// beOrigin runs an origin until its input ends. With splits it sends answers in parts (P67).
func beOrigin(in io.Reader, out io.Writer, splits bool) error {
	// Not "ADS" in go-control-plane's sense. That mode withholds answers until all names of a node
	// are subscribed.
	snapshots := cache.NewSnapshotCache(false, byCluster{}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	opts := []grpc.ServerOption{grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true})}
	if splits {
		opts = append(opts, grpc.StreamInterceptor(split))
	}
	g := grpc.NewServer(opts...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, server.NewServer(ctx, snapshots, nil))
	served := make(chan struct{})
	listening := false
	defer func() {
		g.Stop()
		if listening {
			<-served
		}
	}()
	enc, lines := json.NewEncoder(out), bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		var cmd originCommand
		var answer originReply
		if err = json.Unmarshal(line, &cmd); err != nil {
			return err
		}
		if cmd.Snapshot != nil {
			err = cmd.Snapshot.serve(ctx, snapshots)
		}
		if cmd.Listen {
			l, failed := net.Listen("tcp", "127.0.0.1:0")
			if failed != nil {
				return failed
			}
			answer.Address, listening = l.Addr().String(), true
			go func() {
				defer close(served)
				_ = g.Serve(l) // ended by Stop
			}()
		}
		if err != nil {
			answer.Error = err.Error()
		}
		if err := enc.Encode(answer); err != nil {
			return err
		}
	}
}

// inPart is how many resources a part of an answer has.
const inPart = 2

// split makes a stream send the first delta response of each type in parts.
func split(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, &parts{ServerStream: stream, begun: make(map[string]bool)})
}

type parts struct {
	grpc.ServerStream
	begun map[string]bool // by type
}

func (p *parts) SendMsg(m any) error {
	whole, delta := m.(*discoveryv3.DeltaDiscoveryResponse)
	if !delta || p.begun[whole.TypeUrl] {
		return p.ServerStream.SendMsg(m)
	}
	p.begun[whole.TypeUrl] = true
	part := func(nonce string, resources []*discoveryv3.Resource) *discoveryv3.DeltaDiscoveryResponse {
		return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: whole.TypeUrl, SystemVersionInfo: whole.SystemVersionInfo,
			Nonce: nonce, Resources: resources, ControlPlane: whole.ControlPlane}
	}
	rest := whole.Resources
	for n := 1; len(rest) > inPart; n++ {
		if err := p.ServerStream.SendMsg(part(fmt.Sprint(whole.Nonce, "-", n), rest[:inPart])); err != nil {
			return err
		}
		rest = rest[inPart:]
	}
	last := part(whole.Nonce, rest)
	last.RemovedResources = whole.RemovedResources
	return p.ServerStream.SendMsg(last)
}

// serve puts the snapshot into a cache.
func (s *snapshot) serve(ctx context.Context, into cache.SnapshotCache) error {
	var snap cache.Snapshot
	for kind, has := range s.Types {
		var list []types.Resource
		for _, body := range has {
			m, err := (&anypb.Any{TypeUrl: kind, Value: body}).UnmarshalNew()
			if err != nil {
				return err
			}
			list = append(list, m)
		}
		snap.Resources[cache.GetResponseType(kind)] = cache.NewResources(strconv.Itoa(s.Revs[kind]), list)
	}
	return into.SetSnapshot(ctx, s.Key, &snap)
}

// originMain runs an origin if the environment asks for it.
func originMain() {
	name := os.Getenv(originRole)
	if name == "" {
		return
	}
	if err := beOrigin(os.Stdin, os.Stdout, name == originNames[0]); err != nil {
		fmt.Fprintln(os.Stderr, "origin:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
