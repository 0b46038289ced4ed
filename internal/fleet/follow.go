package fleet

import (
	"slices"
	"time"

	"xdsrelay/internal/xds"
)

// awaitedAssignment is a load assignment for which clusters wait.
type awaitedAssignment struct {
	since    time.Time
	clusters []string
}

// follow subscribes to the names that the resources of t refer to, and to no others.
func (c *Client) follow(t *typeState) {
	switch c.cfg.Behaviour {
	case Envoy:
		c.followEnvoy(t)
	case GRPC:
		c.followGRPC(t)
	}
}

func (c *Client) followEnvoy(t *typeState) {
	switch t.url {
	case xds.ListenerType:
		var names []string
		for _, e := range t.held {
			names = append(names, e.refs.routes...)
		}
		c.typ(xds.RouteType).setNames(names...)
	case xds.ClusterType:
		var names []string
		for _, e := range t.held {
			if e.refs.endpoint != "" {
				names = append(names, e.refs.endpoint)
			}
		}
		c.typ(xds.EndpointType).setNames(names...)
	}
}

// followGRPC follows references from the listener.
func (c *Client) followGRPC(t *typeState) {
	if decoders[t.url] == nil {
		return
	}
	lds := c.typ(xds.ListenerType)
	var routes, clusters, endpoints []string
	reach := func(names []string) {
		for _, n := range names {
			if !slices.Contains(clusters, n) {
				clusters = append(clusters, n)
			}
		}
	}
	for _, e := range lds.held {
		routes = append(routes, e.refs.routes...)
		reach(e.refs.clusters)
	}
	rds := c.typ(xds.RouteType)
	rds.setNames(routes...)
	for _, e := range rds.held {
		reach(e.refs.clusters)
	}
	cds := c.typ(xds.ClusterType)
	for i := 0; i < len(clusters); i++ { // members of aggregate clusters are added meanwhile
		e := cds.held[clusters[i]]
		if e == nil {
			continue
		}
		reach(e.refs.clusters)
		if e.refs.endpoint != "" {
			endpoints = append(endpoints, e.refs.endpoint)
		}
	}
	cds.setNames(clusters...)
	c.typ(xds.EndpointType).setNames(endpoints...)
}

// startWarming makes a new or changed cluster wait for its load assignment. Envoy requests it again
// in SotW, with the same names. In delta the name is subscribed, and Envoy sends nothing.
func (c *Client) startWarming(before, now *entry) {
	if c.cfg.Behaviour != Envoy {
		return
	}
	c.stopWarming(before)
	name := now.refs.endpoint
	if name == "" {
		return
	}
	eds := c.typ(xds.EndpointType)
	if _, ok := eds.names[name]; ok && c.cfg.Variant == SotW && eds.requested {
		eds.resend = true
	}
	w := c.warming[name]
	if w == nil {
		w = &awaitedAssignment{}
		c.warming[name] = w
	}
	w.since = time.Now()
	w.clusters = append(w.clusters, now.Name)
	if c.warmTimer == nil {
		c.warmTimer = time.AfterFunc(c.cfg.WarmTimeout, c.warmDue)
	}
}

// stopWarming ends the warming of a cluster that was removed or changed.
func (c *Client) stopWarming(e *entry) {
	if e == nil || e.refs == nil {
		return
	}
	w := c.warming[e.refs.endpoint]
	if w == nil {
		return
	}
	w.clusters = slices.DeleteFunc(w.clusters, func(n string) bool { return n == e.Name })
	if len(w.clusters) == 0 {
		delete(c.warming, e.refs.endpoint)
	}
}

// removed drops a resource that the server removed. A removed load assignment warms its clusters,
// as in Envoy: they start without endpoints.
func (c *Client) removed(t *typeState, name string) {
	switch t.url {
	case xds.ClusterType:
		c.stopWarming(t.held[name])
	case xds.EndpointType:
		delete(c.warming, name)
	}
	t.remove(name)
}

// warmDue ends warming that took longer than WarmTimeout.
func (c *Client) warmDue() {
	c.lock()
	defer c.unlock()
	if c.warmTimer == nil {
		return // stopped
	}
	c.warmTimer = nil
	var oldest time.Time
	for name, w := range c.warming {
		switch {
		case time.Since(w.since) >= c.cfg.WarmTimeout:
			delete(c.warming, name)
		case oldest.IsZero() || w.since.Before(oldest):
			oldest = w.since
		}
	}
	if !oldest.IsZero() {
		c.warmTimer = time.AfterFunc(time.Until(oldest.Add(c.cfg.WarmTimeout)), c.warmDue)
	}
	c.sendPending(nil)
}
