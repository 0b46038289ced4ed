package fleet

import (
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// deltaRequest makes a request with the change of names since the last one. The first request of a
// stream has all names, and the versions of the held resources.
func (c *Client) deltaRequest(s *stream, t *typeState, r *reply) *discoveryv3.DeltaDiscoveryRequest {
	m := &discoveryv3.DeltaDiscoveryRequest{Node: c.node(s), TypeUrl: string(t.url), ErrorDetail: detail(r)}
	if r != nil {
		m.ResponseNonce = r.nonce
	}
	if t.requested {
		slices.Sort(t.add)
		slices.Sort(t.drop)
		m.ResourceNamesSubscribe, m.ResourceNamesUnsubscribe = t.add, t.drop
		return m
	}
	m.ResourceNamesSubscribe = t.sorted()
	if s.versions && len(t.held) > 0 {
		m.InitialResourceVersions = make(map[string]string, len(t.held))
		for name, e := range t.held {
			m.InitialResourceVersions[name] = e.Version
		}
	}
	return m
}

// applyDelta applies a response: first the resources, then the removals.
func (c *Client) applyDelta(t *typeState, f *response) {
	c.applyItems(t, f)
	for _, name := range f.removed {
		c.removed(t, name)
		if _, ok := t.names[name]; ok {
			if t.absent == nil {
				t.absent = make(map[string]struct{})
			}
			t.absent[name] = struct{}{}
		}
	}
}
