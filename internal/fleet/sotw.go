package fleet

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
)

// sotwRequest makes a request with all names, the last accepted version and the last answered
// nonce. A request for changed names has the earlier nonce while an ACK is withheld, because it
// does not answer that response.
func (c *Client) sotwRequest(s *stream, t *typeState, r *reply) *discoveryv3.DiscoveryRequest {
	if r != nil {
		t.nonce = r.nonce
		if r.err == nil {
			t.acked = r.version
		}
	}
	return &discoveryv3.DiscoveryRequest{
		VersionInfo:   t.acked,
		Node:          c.node(s),
		ResourceNames: t.sorted(),
		TypeUrl:       string(t.url),
		ResponseNonce: t.nonce,
		ErrorDetail:   detail(r),
	}
}

// applySotW applies a response. If it is complete, missing resources are removed.
func (c *Client) applySotW(t *typeState, f *response) {
	c.applyItems(t, f)
	if !t.fullState && (!c.cfg.WildcardIsFull || !t.wildcard) {
		return
	}
	for name, e := range t.held {
		if e.gen != t.gen {
			c.removed(t, name)
		}
	}
}

// node returns the client's node for a stream's first request, and nil for others.
func (c *Client) node(s *stream) *corev3.Node {
	if s.node {
		return nil
	}
	return c.cfg.Node
}

func detail(r *reply) *statuspb.Status {
	if r == nil || r.err == nil {
		return nil
	}
	return &statuspb.Status{Code: int32(codes.InvalidArgument), Message: r.err.Error()}
}
