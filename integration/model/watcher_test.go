package model

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/xds"
)

// watcher is a client of a cluster. It answers by itself, and connects to another relay when its
// stream ends. It checks each response as it comes.
type watcher struct {
	id, key string
	only    string // the name of the only relay that it uses; empty: it uses all
	v       xds.Variant
	// features of the node, and refuses: it NACKs such a response. Both may be empty.
	features []string
	refuses  func(proto.Message) bool
	w        *clusterFixture
	cancel   context.CancelFunc
	done     chan struct{}

	mu       sync.Mutex
	subs     map[xds.TypeURL]*watched
	at       *relay // nil: no stream is open
	leave    context.CancelFunc
	answered bool // it received a response on this stream
}

// watched is one type of a watcher.
type watched struct {
	typ      xds.TypeURL
	wild     bool
	names    []string
	holds    map[string]int
	versions map[string]string
	version  string         // SotW: accepted last
	seen     map[string]int // the newest content of each name on this stream
}

func (t *watched) covers(name string) bool {
	return t.lists(name) || t.wild && !hidden(name)
}

// lists reports whether a name is subscribed. Many names are sorted.
func (t *watched) lists(name string) bool {
	if len(t.names) > 100 {
		_, found := slices.BinarySearch(t.names, name)
		return found
	}
	return slices.Contains(t.names, name)
}

// list is the subscription.
func (t *watched) list() []string {
	if t.wild {
		return append(slices.Clone(t.names), "*")
	}
	return t.names
}

// full reports whether a response holds everything that is subscribed to.
func (c *watcher) full(t *watched) bool { return c.v == xds.SotW && (fullState(t.typ) || t.wild) }

// run connects until ctx ends.
func (c *watcher) run(ctx context.Context) {
	defer close(c.done)
	for ctx.Err() == nil {
		if at := c.w.relayFor(c); at != nil {
			stream, leave := context.WithCancel(ctx)
			c.mu.Lock()
			c.at, c.leave, c.answered = at, leave, false
			c.mu.Unlock()
			err := c.serve(stream, at)
			left := stream.Err() != nil
			leave()
			c.mu.Lock()
			c.at = nil
			answered := c.answered
			c.mu.Unlock()
			if !left {
				c.w.streamEnded(c, at, answered, err)
			}
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// move makes the watcher leave its relay for another, perhaps.
func (c *watcher) move() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at != nil {
		c.leave()
	}
}

// serve runs one stream, and returns why it ended.
func (c *watcher) serve(ctx context.Context, at *relay) error {
	cc, err := grpc.NewClient("passthrough:///relay", grpc.WithContextDialer(dialerOf(at.down)), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer cc.Close()
	stream, err := cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, methods[""][c.v])
	if err != nil {
		return err
	}
	node := &corev3.Node{Id: c.id, Cluster: c.key, ClientFeatures: c.features}
	for _, typ := range types {
		t := c.subs[typ]
		if t == nil {
			continue
		}
		t.seen = make(map[string]int)
		var first proto.Message = &discoveryv3.DiscoveryRequest{TypeUrl: string(typ), Node: node, ResourceNames: t.list(), VersionInfo: t.version}
		if c.v == xds.Delta {
			first = &discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(typ), Node: node, ResourceNamesSubscribe: t.list(), InitialResourceVersions: t.versions}
		}
		if err := stream.SendMsg(first); err != nil {
			return stream.RecvMsg(new(discoveryv3.DiscoveryResponse))
		}
		node = nil
	}
	for {
		var m proto.Message = new(discoveryv3.DiscoveryResponse)
		if c.v == xds.Delta {
			m = new(discoveryv3.DeltaDiscoveryResponse)
		}
		if err := stream.RecvMsg(m); err != nil {
			return err
		}
		if ack := c.take(at, m); stream.SendMsg(ack) != nil {
			return stream.RecvMsg(m)
		}
	}
}

var refused = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: "no"}

// take applies a response, and returns the ACK.
func (c *watcher) take(at *relay, m proto.Message) (ack proto.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = true
	if proto.Size(m) < 1<<16 {
		c.w.log("%s at %s <- %v", c.id, at.name, m)
	}
	nacks := c.refuses != nil && c.refuses(m)
	switch m := m.(type) {
	case *discoveryv3.DiscoveryResponse:
		if nacks {
			return &discoveryv3.DiscoveryRequest{TypeUrl: m.TypeUrl, ResourceNames: c.subs[xds.TypeURL(m.TypeUrl)].list(), ResponseNonce: m.Nonce, ErrorDetail: refused}
		}
		t := c.subs[xds.TypeURL(m.TypeUrl)]
		items := make(map[string]int)
		for _, a := range m.Resources {
			name, content, err := readAny(a)
			if err != nil {
				c.w.fail("%s: %v", c.id, err)
			}
			items[name] = content
		}
		if c.full(t) {
			for n := range t.holds {
				if _, in := items[n]; !in {
					c.remove(at, t, n, m.ControlPlane)
				}
			}
		}
		for n, content := range items {
			c.put(at, t, n, content, "", m.ControlPlane)
		}
		t.version = m.VersionInfo
		return &discoveryv3.DiscoveryRequest{TypeUrl: m.TypeUrl, ResourceNames: t.list(), VersionInfo: m.VersionInfo, ResponseNonce: m.Nonce}
	case *discoveryv3.DeltaDiscoveryResponse:
		if nacks {
			return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce, ErrorDetail: refused}
		}
		t := c.subs[xds.TypeURL(m.TypeUrl)]
		for _, n := range m.RemovedResources {
			c.remove(at, t, n, m.ControlPlane)
		}
		for _, r := range m.Resources {
			if r.Resource == nil { // a heartbeat
				continue
			}
			name, content, err := readAny(r.Resource)
			if err != nil || name != r.Name {
				c.w.fail("%s: %s: %v", c.id, r.Name, err)
			}
			c.put(at, t, name, content, r.Version, m.ControlPlane)
		}
		return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce}
	}
	return nil
}

// put is a resource of a response. Contents of the origin only grow. If the type has both wildcard and
// names under the key, these come on two streams, of which one may be behind (P50).
func (c *watcher) put(at *relay, t *watched, n string, content int, version string, from *corev3.ControlPlane) {
	if !t.covers(n) {
		c.w.fail("P51: %s at %s: %s %s is not subscribed", c.id, at.name, t.typ, n)
	}
	differ := c.w.hasBoth(c.key, t.typ) || !fullState(t.typ) && c.w.variant == xds.SotW && !c.w.has(c, t, n) ||
		t.typ != lds && c.w.removedLately(t.typ, n)
	if content < t.seen[n] && !differ && !c.w.behind(c.key, from, t.typ, n) {
		c.w.fail("%s at %s: %s %s has content %d after %d on the same stream", c.id, at.name, t.typ, n, content, t.seen[n])
	}
	if content < t.holds[n] && !differ && !c.w.disturbed() {
		c.w.fail("%s at %s: %s %s has content %d after %d on another stream, long after the last event", c.id, at.name, t.typ, n, content, t.holds[n])
	}
	t.seen[n], t.holds[n], t.versions[n] = content, content, version
}

// remove is a deletion of a response. In the first responses of a stream it may be that the relay has
// older content than the one before. Even then what the origin always had is not deleted, with one
// exception: a SotW client that names clusters or listeners waits for 5 s until all are answered (P67). A
// source that is behind, and has older content for that reason, deletes what the origin added since.
func (c *watcher) remove(at *relay, t *watched, n string, from *corev3.ControlPlane) {
	held, removed := t.holds[n], c.w.removedAfter(t.typ, n, t.holds[n])
	first := t.seen[n] == 0 && c.w.disturbed()
	older := first && (n[0] != 'p' && !slices.Contains(permanent, n) || c.v == xds.SotW && !t.wild)
	older = older || !slices.Contains(permanent, n) && c.w.behind(c.key, from, t.typ, n)
	if removed == 0 && held != 0 && !older {
		c.w.fail("%s at %s: %s %s is deleted, and the origin has not deleted it since content %d", c.id, at.name, t.typ, n, held)
	}
	switch {
	case first: // which of the deletions it is, is not known
		t.seen[n] = 1
	case held != 0:
		t.seen[n] = max(removed, 1) // what was there before is older
	}
	delete(t.holds, n)
	delete(t.versions, n)
}

// differs describes how a watcher differs from what it should hold.
func (c *watcher) differs() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		return errors.New("it has no stream")
	}
	o := c.w.o
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range c.subs {
		for _, n := range slices.Concat(names, slices.Collect(maps.Keys(t.holds))) {
			has, there := o.has[t.typ][n]
			holds, held := t.holds[n]
			// P60: not every combination can express that an endpoint is gone.
			silent := !fullState(t.typ) && (o.sotwSeen || c.v == xds.SotW && !t.wild)
			// P65: a relay that asked a SotW origin for a name only after it was removed learns nothing.
			if at := o.removals[string(t.typ)+n]; o.sotwSeen && t.lists(n) && len(at) > 0 {
				silent = silent || !at[len(at)-1].After(c.w.quietSince())
			}
			switch {
			case !t.covers(n), c.leftOut(t, n):
			case there && holds != has, !there && held && !silent:
				return fmt.Errorf("at %s: %s: holds %v, want %v: %s", c.at.name, t.typ, t.holds, o.has[t.typ], n)
			}
		}
	}
	return nil
}

// leftOut reports whether a SotW origin is not asked for endpoints, because it has no cluster that leads
// to them (P52). The caller holds the origin's lock.
func (c *watcher) leftOut(t *watched, n string) bool {
	_, led := c.w.o.has[cds][n]
	return t.typ == eds && c.w.o.sotwSeen && !led && (!t.wild || hidden(n))
}

// text is an error as a failed test shows it.
func text(err error) string {
	return fmt.Sprintf("%s: %s", status.Code(err), status.Convert(err).Message())
}
