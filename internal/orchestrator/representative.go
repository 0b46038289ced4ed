package orchestrator

import (
	"time"

	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/xds"
)

// representative is the client whose node a key's streams send (P58). The group's goroutine owns
// it.
type representative struct {
	client      *xds.Node // as the client sent it
	subscribers int       // how many subscribers have this node
	until       time.Time // it is not replaced before this time
}

// representativeOf returns the node that is sent upstream for a key whose first subscriber is ct.
func (r *Registry) representativeOf(ct *clientType) (*xds.Node, error) {
	if ct.relay { // it has computed the node
		return ct.node, nil
	}
	return r.representative(ct.node)
}

// representative returns the node that a key's streams send upstream (P58). Its client features are
// those that the relay implements itself: it unwraps resources in SotW, and counts TTLs and
// heartbeats.
func (r *Registry) representative(n *xds.Node) (*xds.Node, error) {
	raw := n.Bytes()
	if r.opts.Node != nil {
		var err error
		if raw, err = r.opts.Node(n); err != nil {
			return nil, err
		}
		if n, err = r.nodes.Intern(raw); err != nil { // check that it is well-formed
			return nil, err
		}
		raw = n.Bytes()
	}
	return r.nodes.Intern(xds.WithFeatures(raw, xds.FeatureSupportsResourceInSotW, xds.FeatureTTL))
}

// replaceRepresentative gives the streams the node of a connected client, if the representative has
// left and no stream of the key was ever answered (P58): the origin may answer nobody with its
// node. The streams are replaced. That happens at most once in FirstAnswerTimeout, so that clients
// that come and go do not make the relay open streams all the time.
func (g *Group) replaceRepresentative(now time.Time) {
	if !g.lacksRepresentative() || now.Before(g.represents.until) {
		return
	}
	g.represents.until = now.Add(g.opts.FirstAnswerTimeout)
	var first *clientType
	for ct := range g.subscribers {
		first = ct
		break
	}
	client := first.node
	node, err := g.registry.representativeOf(first)
	if err != nil {
		return // upstream.node fails for this client; the next turn may choose another one
	}
	g.represents.client, g.represents.subscribers, g.changed = client, 0, true
	for ct := range g.subscribers {
		g.represents.count(ct, 1)
	}
	if node == g.node {
		return // upstream.node is the same for all clients
	}
	g.log.Info("the key's streams send another client's node: the first client left without an answer",
		"node", history.ClipName(client.ID), "before", history.ClipName(g.node.ID))
	if g.opts.Node == nil {
		g.countUserAgent(g.node, -1)
		g.countUserAgent(node, 1)
	}
	g.node = node
	for _, h := range g.upstreams() {
		if h.cancel != nil {
			h.cancel()
		}
	}
	g.handles.Store(&[]*upstreamHandle{newUpstreamHandle(g, nil)})
	for _, t := range g.allTypes() {
		t.wildcardOn, t.namesOn = nil, nil // assign assigns them to the new stream
	}
}

// lacksRepresentative reports whether the key needs another representative.
func (g *Group) lacksRepresentative() bool {
	return g.represents.subscribers == 0 && len(g.subscribers) > 0 && g.subscribes() && !g.everAnswered.Load()
}

// count counts a subscriber that joined or left.
func (r *representative) count(ct *clientType, n int) {
	if ct.node == r.client {
		r.subscribers += n
	}
}
