package fleet

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
)

// sotwRequest carries all names, the newest version taken and the newest nonce
// answered. A request for names alone while an ACK is withheld carries the
// nonce before: it does not answer what the client has not answered.
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

// applySotW takes a response: of a full-state type what is missing is gone.
func (c *Client) applySotW(t *typeState, f *frame) {
	c.applyItems(t, f)
	if !t.fullState && (!c.cfg.WildcardIsFull || !t.wild()) {
		return
	}
	for name, e := range t.held {
		if e.gen != t.gen {
			c.removed(t, name)
		}
	}
}

// node is the client's in a stream's first request, then nil.
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
