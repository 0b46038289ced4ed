package orchestrator

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// client is a client that joined. Its types may belong to different groups.
type client struct {
	subscriber.Info // without changes, but for the node; the receiver owns the node
	registry        *Registry

	mu    sync.Mutex
	types []*clientType
}

var _ subscriber.Client = (*client)(nil)

// Join implements subscriber.Joiner.
func (r *Registry) Join(info subscriber.Info) subscriber.Client {
	return &client{Info: info, registry: r}
}

func (c *client) SetNode(node *xds.Node) { c.Node = node }

// Subscribe implements subscriber.Client.
func (c *client) Subscribe(typ xds.TypeURL, w subscriber.Waker) (subscriber.Subscriber, error) {
	key := c.Key
	if key.IsZero() {
		var err error
		if key, err = c.registry.KeyOf(c.Node, c.Peer, typ); err != nil {
			return nil, err
		}
	}
	t := &clientType{client: c, relay: c.Relay, typ: typ, node: c.Node, waker: w, sub: snapshot.Nothing, requestsNothing: true}
	if err := c.registry.enterGroup(key, t); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.types = append(c.types, t)
	c.mu.Unlock()
	c.countRouted()
	t.group.post(t, func(*changes) {})
	return t, nil
}

// countRouted tells the groups of the client's clusters and load assignments if the client has
// listeners or routes as well (P36).
func (c *client) countRouted() {
	if c.Relay || !slices.ContainsFunc(c.types, func(t *clientType) bool { return xds.TypeOf(t.typ).RefersToClusters }) {
		return
	}
	for _, t := range c.types {
		if !t.routed && xds.TypeOf(t.typ).DelayRemovals {
			t.routed = true
			t.group.routed.Add(1)
		}
	}
}

// setUnavailable says that the relay has nothing that the type requests, also not in its store, and
// that no origin can be reached; nil: that is over. The client ends with the refusal once this
// holds for all types that request something (P53).
func (c *client) setUnavailable(t *clientType, r *refusal.Refusal) {
	c.mu.Lock()
	t.unavailable = r != nil
	all := r != nil && !slices.ContainsFunc(c.types, func(o *clientType) bool { return !o.unavailable && !o.requestsNothing })
	c.mu.Unlock()
	if all {
		c.End(r)
	}
}

// Leave implements subscriber.Client. It counts each type out of the registry before it posts to
// the group: see doc.go.
func (c *client) Leave() {
	c.mu.Lock()
	types := c.types
	c.types = nil
	c.mu.Unlock()
	for _, t := range types {
		t.leave()
	}
}

// clientType is one type of one client in its group: a Subscriber. The client's receiver calls its
// methods; the group's goroutine learns of them through the mailbox.
type clientType struct {
	// These fields are constant once Subscribe has returned.
	group  *Group
	relay  bool        // the client is another relay
	nacks  atomic.Bool // the client NACKed something, and has not acknowledged everything since
	typ    xds.TypeURL
	client *client
	node   *xds.Node // the client's, as it was at the type's first request (P1)
	waker  subscriber.Waker

	// storeWriter is that of the type. The group's goroutine sets it when it adds the subscriber.
	// Nil: nothing is stored. Any goroutine reads it.
	storeWriter atomic.Pointer[storeWriter]

	changes changes // protected by the mailbox's lock

	routesWait atomic.Int64 // a time.Duration: see SetRoutesWait

	// The client's lock protects the fields below.
	requestsNothing bool
	unavailable     bool // see setUnavailable

	// The client's receiver owns the field below.
	routed bool // counted in the group's

	// The group's goroutine owns the fields below.
	joined  *groupType             // nil: not added yet, or refused for types_per_key
	sub     *snapshot.Subscription // the one in the index
	known   bool                   // the group has added it
	ended   bool                   // the group ended its stream; it has not left yet
	ending  *time.Timer            // ends its stream; nil: it is not ended, or was ended at once
	refused bool                   // it was told that the relay has nothing that it wants (P53)
}

var _ subscriber.Subscriber = (*clientType)(nil)

func (ct *clientType) Key() xds.Key { return ct.group.key }

func (ct *clientType) State() *snapshot.State { return ct.GroupStates().State() }

// GroupStates implements subscriber.Subscriber.
func (ct *clientType) GroupStates() subscriber.States {
	if ct.relay {
		return (*relayStates)(ct.group)
	}
	return (*clientStates)(ct.group)
}

// clientStates and relayStates are what clients and other relays see of a group.
type (
	clientStates Group
	relayStates  Group
)

func (g *clientStates) State() *snapshot.State { return g.state.Load() }
func (g *relayStates) State() *snapshot.State  { return g.relayState.Load() }

// Newest implements subscriber.Subscriber.
func (ct *clientType) Newest() *snapshot.Snapshot {
	if ct.relay {
		return ct.State().Snapshot(ct.typ)
	}
	return ct.group.Newest(ct.typ)
}

func (ct *clientType) Intern(sub *snapshot.Subscription) *snapshot.Subscription {
	return ct.group.interned.Intern(sub)
}

// Request implements subscriber.Subscriber.
func (ct *clientType) Request(sub *snapshot.Subscription) {
	ct.client.mu.Lock()
	ct.requestsNothing = sub.Empty()
	ct.client.mu.Unlock()
	ct.group.post(ct, func(c *changes) { c.sub = sub })
}

func (ct *clientType) Resubscribe(names []string) {
	ct.group.post(ct, func(c *changes) {
		if c.requestedAgain == nil {
			c.requestedAgain = make(map[string]struct{})
		}
		for _, n := range names {
			c.requestedAgain[n] = struct{}{}
		}
	})
}

// Offered implements subscriber.Subscriber.
func (ct *clientType) Offered(o *snapshot.Offer, maxNames int) (out []*xds.Resource, all bool) {
	if o == nil {
		return nil, false
	}
	whole := *o
	whole.Has = 0 // what the client has is in the response too
	of, more, known := ct.group.Differences(ct.typ, &whole, maxNames)
	all = known && more == 0
	for i := range of {
		if r := of[i].Offered; r.HasBody() {
			out = append(out, r)
		}
		all = all && !of[i].OfferedGone
	}
	return out, all
}

// Nacked implements subscriber.Subscriber. The relay keeps no Secrets that were replaced.
func (ct *clientType) Nacked(n subscriber.Nack, offer *snapshot.Offer) {
	ct.setNacks(true)
	ct.group.nacks.Note(ct.typ, n, time.Now(), func() *history.Rejected {
		if offer == nil || xds.TypeOf(ct.typ).Secret {
			return nil
		}
		return history.NewRejected(ct.group.Differences(ct.typ, offer, history.MaxRejectedNames))
	})
}

// setNacks tells the group whether the client NACKs something (P15: see audience.TypeAudience.Affected).
func (ct *clientType) setNacks(nacks bool) {
	if ct.nacks.Swap(nacks) || nacks {
		ct.group.post(ct, func(c *changes) { c.nacks = &nacks })
	}
}

// Acked implements subscriber.Subscriber.
func (ct *clientType) Acked(gen uint64, all *snapshot.Snapshot) {
	ct.setNacks(false)
	if ct.relay {
		return
	}
	if k := ct.storeWriter.Load(); k != nil && all != nil {
		k.acked(all)
	}
	if of := ct.group.find(ct.typ); of != nil && of.content.Acked(gen) {
		ct.group.signal()
	}
}

// leave counts the subscriber out.
func (ct *clientType) leave() {
	if ct.routed {
		ct.group.routed.Add(-1)
	}
	ct.SetRoutesWait(0)
	ct.group.registry.leave(ct)
	ct.group.post(ct, func(c *changes) { c.left = true })
}
