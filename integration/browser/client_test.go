package browser

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	clusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	listenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"
)

// client subscribes to all resources of its types, and accepts or rejects clusters. The tests are about
// the page, not the protocol. So it is minimal, and this module needs no code of the relay.
type client struct {
	node   *corev3.Node
	types  []string // URLs; none: it sends no request
	delta  bool
	nack   func() string // why it rejects clusters; "" accepts them
	served func()        // at the first response
}

// run runs the stream until ctx ends.
func (c *client) run(ctx context.Context, addr string) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // no message is left to send
	ads := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	stream := c.sotw
	if c.delta {
		stream = c.deltaStream
	}
	if err := stream(ctx, ads); err != nil && ctx.Err() == nil {
		return fmt.Errorf("client %q: %w", c.node.GetId(), err)
	}
	return nil
}

// why is the error_detail of an answer to a response of a type.
func (c *client) why(typeURL string) *status.Status {
	if text := c.nack(); text != "" && typeURL == clusterType {
		return &status.Status{Code: int32(codes.InvalidArgument), Message: text}
	}
	return nil
}

func (c *client) sotw(ctx context.Context, ads discoveryv3.AggregatedDiscoveryServiceClient) error {
	s, err := ads.StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	for _, t := range c.types {
		if err := s.Send(&discoveryv3.DiscoveryRequest{Node: c.node, TypeUrl: t}); err != nil {
			return err
		}
	}
	version := map[string]string{} // by type
	for {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		t := r.GetTypeUrl()
		why := c.why(t)
		if why == nil {
			version[t] = r.GetVersionInfo()
		}
		c.served()
		if err := s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: t, VersionInfo: version[t], ResponseNonce: r.GetNonce(), ErrorDetail: why}); err != nil {
			return err
		}
	}
}

func (c *client) deltaStream(ctx context.Context, ads discoveryv3.AggregatedDiscoveryServiceClient) error {
	s, err := ads.DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	for _, t := range c.types {
		if err := s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: c.node, TypeUrl: t}); err != nil {
			return err
		}
	}
	for {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		c.served()
		t := r.GetTypeUrl()
		if err := s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: t, ResponseNonce: r.GetNonce(), ErrorDetail: c.why(t)}); err != nil {
			return err
		}
	}
}

// crowd runs clients until they are told to leave.
type crowd struct {
	stop  context.CancelFunc
	ended sync.WaitGroup
	mu    sync.Mutex
	wrong []error
}

func (c *crowd) leave() error {
	c.stop()
	c.ended.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.wrong...)
}
