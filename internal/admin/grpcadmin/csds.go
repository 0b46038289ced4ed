package grpcadmin

import (
	"context"
	"errors"
	"io"
	"time"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/xds"
)

// maxAnswer bounds an answer in bytes, maxTime the time to compute it: the clients need the cores.
const (
	maxAnswer = 16 << 20
	maxTime   = 10 * time.Second
)

// fetch answers one request.
func (s *Server) fetch(_ any, gs grpc.ServerStream) error {
	req := new(statusv3.ClientStatusRequest)
	if err := gs.RecvMsg(req); err != nil {
		return err
	}
	return s.answer(gs, req)
}

// stream answers the requests of a stream one after the other.
func (s *Server) stream(_ any, gs grpc.ServerStream) error {
	for {
		req := new(statusv3.ClientStatusRequest)
		if err := gs.RecvMsg(req); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.answer(gs, req); err != nil {
			return err
		}
	}
}

// answer answers a request. It returns when the transport has written the answer.
func (s *Server) answer(gs grpc.ServerStream, req *statusv3.ClientStatusRequest) error {
	ctx := gs.Context()
	which, err := newSelection(req.GetNodeMatchers())
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	select {
	case s.held <- struct{}{}:
		defer func() { <-s.held }()
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	a, err := s.compute(ctx, which, !req.GetExcludeResourceContents())
	if err != nil {
		return err
	}
	if err := gs.SendMsg(a); err != nil {
		return err
	}
	late := time.NewTimer(s.writeTimeout)
	defer late.Stop()
	select {
	case <-a.left:
	case <-ctx.Done():
	case <-late.C:
		s.opts.Log.Info("connection closed", "reason", "the admin client did not read its answer", "within", s.writeTimeout.String())
		s.opts.Close(ctx)
		return status.Error(codes.DeadlineExceeded, "csds: the client did not read the answer in time")
	}
	return nil
}

// compute makes the answer when no other request reads.
func (s *Server) compute(ctx context.Context, which *selection, contents bool) (*answer, error) {
	give, ok := s.opts.Guard.Turn(ctx)
	if !ok {
		return nil, status.Error(codes.ResourceExhausted, "the relay is busy with other requests")
	}
	defer give()
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	clients, err := which.clients(ctx, s.opts.Clients.ClientConfigs())
	if err != nil {
		return nil, tooLong(err, 0, 0)
	}
	w := newWriter(ctx, contents)
	for i, streams := range clients {
		switch err := w.client(streams); {
		case errors.Is(err, errLarge):
			return nil, status.Errorf(codes.ResourceExhausted, "csds: the answer exceeds %d bytes after %d of %d clients: select fewer clients with node_matchers, or set exclude_resource_contents", maxAnswer, i+1, len(clients))
		case err != nil:
			return nil, tooLong(err, i, len(clients))
		}
	}
	return w.out, nil
}

// tooLong returns the status for a request that took too long or was cancelled.
func tooLong(err error, done, of int) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	return status.Errorf(codes.ResourceExhausted, "csds: the answer took longer than %s, after %d of %d clients: select fewer clients with node_matchers", maxTime, done, of)
}

// clients returns the selected streams, grouped by node and connection.
func (which *selection) clients(ctx context.Context, all []inspect.ClientConfig) (out [][]inspect.ClientConfig, err error) {
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
