package grpcadmin

import (
	"context"
	"errors"
	"io"
	"time"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/xds"
)

// maxAnswer bounds an answer in bytes: it is what gRPC clients receive by default. maxTime bounds the
// time to compute it, since the clients need the cores.
const (
	maxAnswer = 4<<20 - 1<<10
	maxTime   = 10 * time.Second
)

// FetchClientStatus implements statusv3.ClientStatusDiscoveryServiceServer.
func (s *Server) FetchClientStatus(ctx context.Context, req *statusv3.ClientStatusRequest) (*statusv3.ClientStatusResponse, error) {
	which, err := newSelection(req.GetNodeMatchers())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	release, ok := s.opts.Guard.AcquireRead(ctx)
	if !ok {
		return nil, status.Error(codes.ResourceExhausted, "the relay is busy with other requests")
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	clients, err := which.clients(ctx, s.opts.Clients.ClientConfigs())
	if err != nil {
		return nil, tooLong(err, 0, 0)
	}
	out, configs := new(statusv3.ClientStatusResponse), newConfigs(ctx, !req.GetExcludeResourceContents())
	for i, streams := range clients {
		c, err := configs.clientConfig(streams)
		switch {
		case errors.Is(err, errLarge):
			return nil, status.Errorf(codes.ResourceExhausted, "csds: the answer exceeds %d bytes after %d of %d clients: select fewer clients with node_matchers, or set exclude_resource_contents", maxAnswer, i+1, len(clients))
		case err != nil:
			return nil, tooLong(err, i, len(clients))
		}
		out.Config = append(out.Config, c)
	}
	return out, nil
}

// StreamClientStatus implements statusv3.ClientStatusDiscoveryServiceServer. It answers the requests
// one after the other.
func (s *Server) StreamClientStatus(gs statusv3.ClientStatusDiscoveryService_StreamClientStatusServer) error {
	for {
		req, err := gs.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		out, err := s.FetchClientStatus(gs.Context(), req)
		if err != nil {
			return err
		}
		if err := gs.Send(out); err != nil {
			return err
		}
	}
}

// tooLong returns the status for a request that took too long or was cancelled.
func tooLong(err error, done, of int) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	return status.Errorf(codes.ResourceExhausted, "csds: the answer took longer than %s, after %d of %d clients: select fewer clients with node_matchers", maxTime, done, of)
}

// clients returns the selected streams, grouped by node and connection.
func (which selection) clients(ctx context.Context, all []inspect.ClientConfig) (out [][]inspect.ClientConfig, err error) {
	type client struct {
		node *xds.Node
		conn any
	}
	places := make(map[client]int)
	chosen := make(map[*xds.Node]bool)
	for _, st := range all {
		is, known := chosen[st.Node]
		if !known {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			is = which.has(st.Node)
			chosen[st.Node] = is
		}
		if !is {
			continue
		}
		id := client{st.Node, st.Conn}
		at, known := places[id]
		if !known {
			at = len(out)
			places[id] = at
			out = append(out, nil)
		}
		out[at] = append(out[at], st)
	}
	return out, nil
}
