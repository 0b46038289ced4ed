package subscribertest

import (
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/session/sessiontest"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Joiner is a subscriber.Joiner with one group for each node cluster. It wakes every subscriber
// at every change, which is allowed. The zero value is ready to use.
type Joiner struct {
	Refuse func(Join) *refusal.Refusal // why a client may not join; nil: it may

	Mu     sync.Mutex
	groups map[string]*Group
	Nacks  []subscriber.Nack
	Offers []*snapshot.Offer // of Nacks
	// Rules give the key instead of the node's cluster; nil: none.
	Rules func(n *xds.Node, typ xds.TypeURL) (xds.Key, error)
	// Joined is called, once, before a subscriber is returned; nil: not.
	Joined func()
	// Looked is called after a State was read for a type; nil: not.
	Looked func(xds.TypeURL)
}

// Join is what a client says of one type.
type Join struct {
	subscriber.Info
	Type  xds.TypeURL
	Waker subscriber.Waker
}

// Group is the group of one key.
type Group struct {
	key xds.Key

	Mu           sync.Mutex
	Gen          uint64
	Builders     map[xds.TypeURL]*snapshot.Builder
	Snaps        []*snapshot.Snapshot
	State        *snapshot.State
	Subscribers  map[*Subscriber]bool
	Subs         []*snapshot.Subscription
	Resubscribed []string // names of calls of Subscriber.Resubscribe
}

// Subscriber is a subscriber of a Group. Its fields are under the group's lock, but for Join.
type Subscriber struct {
	Join      Join
	AckedGens []uint64 // with which Acked was called
	// AskedRoutesWait counts the calls of RoutesWait.
	AskedRoutesWait int
	Subscribed      *snapshot.Subscription

	routesWait time.Duration

	joiner *Joiner
	group  *Group
}

// Group returns the group of the key with this one element.
func (s *Joiner) Group(name string) *Group {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.groups[name] == nil {
		if s.groups == nil {
			s.groups = make(map[string]*Group)
		}
		s.groups[name] = &Group{key: xds.NewKey(name), Builders: map[xds.TypeURL]*snapshot.Builder{}, Subscribers: map[*Subscriber]bool{}}
	}
	return s.groups[name]
}

// client is a client that joined.
type client struct {
	subscriber.Info
	joiner      *Joiner
	subscribers []*Subscriber
}

// Join implements subscriber.Joiner.
func (s *Joiner) Join(info subscriber.Info) subscriber.Client {
	return &client{Info: info, joiner: s}
}

// SetNode implements subscriber.Client.
func (c *client) SetNode(n *xds.Node) { c.Node = n }

// Subscribe implements subscriber.Client.
func (c *client) Subscribe(typ xds.TypeURL, w subscriber.Waker) (subscriber.Subscriber, error) {
	s, join := c.joiner, Join{c.Info, typ, w}
	if s.Refuse != nil {
		if r := s.Refuse(join); r != nil {
			return nil, r
		}
	}
	key, err := s.KeyOf(c.Node, c.Peer, typ)
	if err != nil {
		return nil, err
	}
	g := s.Group(strings.Join(key.Elements(), "/"))
	m := &Subscriber{joiner: s, group: g, Join: join, Subscribed: snapshot.Nothing}
	c.subscribers = append(c.subscribers, m)
	g.Mu.Lock()
	g.Subscribers[m] = true
	g.Mu.Unlock()
	s.Mu.Lock()
	joined := s.Joined
	s.Joined = nil
	s.Mu.Unlock()
	if joined != nil {
		joined()
	}
	return m, nil
}

// Leave implements subscriber.Client.
func (c *client) Leave() {
	for _, m := range c.subscribers {
		m.group.Mu.Lock()
		delete(m.group.Subscribers, m)
		m.group.Mu.Unlock()
	}
}

// KeyOf implements subscriber.Joiner: by the node's cluster, unless Rules are set.
func (s *Joiner) KeyOf(n *xds.Node, _ expr.Peer, typ xds.TypeURL) (xds.Key, error) {
	s.Mu.Lock()
	rules := s.Rules
	s.Mu.Unlock()
	if rules == nil {
		return xds.NewKey(n.Cluster), nil
	}
	return rules(n, typ)
}

// SetRules sets Rules that see the decoded node; nil: the key is the cluster. An empty key
// is none.
func (s *Joiner) SetRules(rules func(n *corev3.Node, typ xds.TypeURL) (string, error)) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Rules = nil
	if rules == nil {
		return
	}
	s.Rules = func(n *xds.Node, typ xds.TypeURL) (xds.Key, error) {
		m, err := n.Decode()
		if err != nil {
			return xds.Key{}, err
		}
		key, err := rules(m, typ)
		if err == nil && key == "" {
			err = refusal.New(codes.PermissionDenied, telemetry.Unmapped, "no rule matches")
		}
		return xds.NewKey(key), err
	}
}

// Key implements subscriber.Subscriber.
func (m *Subscriber) Key() xds.Key { return m.group.key }

// State implements subscriber.Subscriber.
func (m *Subscriber) State() *snapshot.State {
	m.group.Mu.Lock()
	state := m.group.State
	m.group.Mu.Unlock()
	m.joiner.Mu.Lock()
	looked := m.joiner.Looked
	m.joiner.Mu.Unlock()
	if looked != nil {
		looked(m.Join.Type)
	}
	return state
}

// GroupStates implements subscriber.Subscriber.
func (m *Subscriber) GroupStates() subscriber.States { return m }

// Newest implements subscriber.Subscriber.
func (m *Subscriber) Newest() *snapshot.Snapshot {
	m.group.Mu.Lock()
	defer m.group.Mu.Unlock()
	for _, s := range m.group.Snaps {
		if s.Type.URL == m.Join.Type {
			return s
		}
	}
	return nil
}

// Intern implements subscriber.Subscriber.
func (m *Subscriber) Intern(s *snapshot.Subscription) *snapshot.Subscription {
	return m.group.Intern(s)
}

// Intern returns the group's one value that equals sub.
func (g *Group) Intern(sub *snapshot.Subscription) *snapshot.Subscription {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	for _, have := range g.Subs {
		if have.Equal(sub) {
			return have
		}
	}
	g.Subs = append(g.Subs, sub)
	return sub
}

// Request implements subscriber.Subscriber.
func (m *Subscriber) Request(s *snapshot.Subscription) {
	m.group.Mu.Lock()
	m.Subscribed = s
	m.group.Mu.Unlock()
	m.Join.Waker.Wake()
}

// SetRoutesWait implements subscriber.Subscriber.
func (m *Subscriber) SetRoutesWait(wait time.Duration) {
	m.group.Mu.Lock()
	var woken []*Subscriber
	for o := range m.group.Subscribers {
		if wait < m.routesWait && o.Subscribed != nil && o.Subscribed.Resumes {
			woken = append(woken, o)
		}
	}
	m.routesWait = wait
	m.group.Mu.Unlock()
	for _, o := range woken {
		o.Join.Waker.Wake()
	}
}

// RoutesWait implements subscriber.Subscriber.
func (m *Subscriber) RoutesWait() (longest time.Duration) {
	m.group.Mu.Lock()
	defer m.group.Mu.Unlock()
	m.AskedRoutesWait++
	for o := range m.group.Subscribers {
		longest = max(longest, o.routesWait)
	}
	return longest
}

// Resubscribe implements subscriber.Subscriber.
func (m *Subscriber) Resubscribe(names []string) {
	m.group.Mu.Lock()
	defer m.group.Mu.Unlock()
	m.group.Resubscribed = append(m.group.Resubscribed, names...)
}

// Offered implements subscriber.Subscriber. A response offers what is held.
func (m *Subscriber) Offered(o *snapshot.Offer, _ int) (out []*xds.Resource, all bool) {
	if s := m.Newest(); s != nil && o != nil {
		s.Resources(func(r *xds.Resource) bool {
			out = append(out, r)
			return true
		})
	}
	return out, true
}

// Nacked implements subscriber.Subscriber.
func (m *Subscriber) Nacked(n subscriber.Nack, rejected *snapshot.Offer) {
	m.joiner.Mu.Lock()
	defer m.joiner.Mu.Unlock()
	m.joiner.Nacks, m.joiner.Offers = append(m.joiner.Nacks, n), append(m.joiner.Offers, rejected)
}

// Acked implements subscriber.Subscriber.
func (m *Subscriber) Acked(gen uint64, _ *snapshot.Snapshot) {
	m.group.Mu.Lock()
	defer m.group.Mu.Unlock()
	m.AckedGens = append(m.AckedGens, gen)
}

// Count returns the number of subscribers.
func (g *Group) Count() int {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	return len(g.Subscribers)
}

// Settle applies updates and publishes nothing.
func (g *Group) Settle(us ...snapshot.Update) {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	g.apply(us)
}

// Publish applies updates as one State.
func (g *Group) Publish(us ...snapshot.Update) {
	g.Mu.Lock()
	g.apply(us)
	g.State = snapshot.NewState(1, g.Gen, g.Snaps)
	var subscribers []*Subscriber
	for m := range g.Subscribers {
		subscribers = append(subscribers, m)
	}
	g.Mu.Unlock()
	for _, m := range subscribers {
		m.Join.Waker.Wake()
	}
}

// apply makes the newest snapshots. The lock is held.
func (g *Group) apply(us []snapshot.Update) {
	g.Gen++
	for _, u := range us {
		b := g.Builders[u.Type]
		at := len(g.Snaps)
		for i, s := range g.Snaps {
			if s.Type.URL == u.Type {
				at = i
			}
		}
		if b == nil {
			b = snapshot.NewBuilder(xds.TypeOf(u.Type))
			g.Builders[u.Type] = b
			g.Snaps = append(g.Snaps, nil)
		}
		u.Origin, u.Received = "origin", time.Now()
		b.Apply(u)
		was := g.Snaps[at]
		now, names := b.Snapshot(was, g.Gen)
		if now != was {
			snapshot.NoteVersion(was, now, names, u.Received)
		}
		g.Snaps[at] = now
	}
}

// Update makes an Update of plain resources of a type: "name", "name=content", or "-name"
// for a removal.
func Update(t testing.TB, url xds.TypeURL, specs ...string) snapshot.Update {
	w := sessiontest.New(t, url)
	u := snapshot.Update{Type: url, Wildcard: url == xds.ClusterType || url == xds.ListenerType}
	for _, s := range specs {
		if s[0] == '-' {
			u.Removed = append(u.Removed, s[1:])
		} else {
			u.Changed = append(u.Changed, w.Resource(s))
		}
	}
	return u
}
