package orchestrator

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// clientType is one type of one client in its group: a Subscriber. The stream's receiver calls its
// methods; the group's goroutine learns of them through the mailbox.
type clientType struct {
	// These fields are constant once Join has returned.
	group *Group
	typ   xds.TypeURL
	node  *xds.Node
	peer  string
	waker subscriber.Waker

	// storeWriter is that of the type. The group's goroutine sets it when it adds the subscriber.
	// Nil: nothing is stored. Any goroutine reads it.
	storeWriter atomic.Pointer[storeWriter]

	changes changes     // protected by the mailbox's lock
	leaving atomic.Bool // Leave was called

	routesWait atomic.Int64 // a time.Duration: see SetRoutesWait

	// nacks: the client NACKed something, and has not acknowledged everything since.
	nacks atomic.Bool

	// The stream's receiver owns the field below.
	routed bool

	// The group's goroutine owns the fields below.
	joined  *groupType             // nil: not added yet, or refused for types_per_key
	sub     *snapshot.Subscription // the one in the index
	known   bool                   // the group has added it
	ended   bool                   // the group ended its stream; it has not left yet
	ending  *time.Timer            // ends its stream; nil: it is not ended, or was ended at once
	refused bool                   // it was told that the relay has nothing that it wants (P53)
}

var _ subscriber.Subscriber = (*clientType)(nil)

func (m *clientType) Key() xds.Key { return m.group.key }

func (m *clientType) State() *snapshot.State { return m.group.state.Load() }

// Newest implements subscriber.Subscriber.
func (m *clientType) Newest() *snapshot.Snapshot {
	return m.group.Newest(m.typ)
}

func (m *clientType) Intern(sub *snapshot.Subscription) *snapshot.Subscription {
	return m.group.interned.Intern(sub)
}

func (m *clientType) Subscribe(sub *snapshot.Subscription) {
	m.group.post(m, func(c *changes) { c.sub = sub })
}

func (m *clientType) Resubscribe(names []string) {
	m.group.post(m, func(c *changes) {
		if c.again == nil {
			c.again = make(map[string]struct{})
		}
		for _, n := range names {
			c.again[n] = struct{}{}
		}
	})
}

// Offered implements subscriber.Subscriber.
func (m *clientType) Offered(o *snapshot.Offer, maxNames int) (out []*xds.Resource, all bool) {
	if o == nil {
		return nil, false
	}
	whole := *o
	whole.Has = 0 // what the client has is in the response too
	of, more, known := m.group.Differences(m.typ, &whole, maxNames)
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
func (m *clientType) Nacked(n subscriber.Nack, offer *snapshot.Offer) {
	m.setNacks(true)
	m.group.nacks.Note(m.typ, n, time.Now(), func() *history.Rejected {
		if offer == nil || xds.TypeOf(m.typ).Secret {
			return nil
		}
		return history.NewRejected(m.group.Differences(m.typ, offer, history.MaxRejectedNames))
	})
}

// setNacks tells the group whether the client NACKs something (P15: see audience.Type.Affected).
func (m *clientType) setNacks(nacks bool) {
	if m.nacks.Swap(nacks) || nacks {
		m.group.post(m, func(c *changes) { c.nacks = &nacks })
	}
}

// Acked implements subscriber.Subscriber.
func (m *clientType) Acked(gen uint64, all *snapshot.Snapshot) {
	m.setNacks(false)
	if k := m.storeWriter.Load(); k != nil && all != nil {
		k.acked(all)
	}
	if t := m.group.find(m.typ); t != nil && t.content.Acked(gen) {
		m.group.signal()
	}
}

// Routed implements subscriber.Subscriber.
func (m *clientType) Routed() {
	if !m.routed {
		m.routed = true
		m.group.routed.Add(1)
	}
}

// Leave implements subscriber.Subscriber. It counts the subscriber out of the registry before it
// posts to the group: see doc.go.
func (m *clientType) Leave() {
	if !m.leaving.Swap(true) {
		if m.routed {
			m.group.routed.Add(-1)
		}
		m.SetRoutesWait(0)
		m.group.registry.leave(m)
		m.group.post(m, func(c *changes) { c.left = true })
	}
}

// changes are the changes of a subscriber that its group has not applied yet. A newer one replaces
// an older one.
type changes struct {
	queued bool
	left   bool
	sub    *snapshot.Subscription // nil: no change
	nacks  *bool                  // whether the client NACKs something; nil: no change
	// again has the names that the client requested although the origin could not resolve them
	// (P18) or said that they do not exist (P25). It has no more elements than the subscription.
	again map[string]struct{}
}

// mailbox holds each subscriber with changes once. So it never has more elements than there are
// subscribers, and posting never blocks.
type mailbox struct {
	mu    sync.Mutex
	queue []*clientType
	spare []subscriberChanges // reused by take
}

// subscriberChanges are the changes of a subscriber, taken out of the mailbox.
type subscriberChanges struct {
	m *clientType
	changes
}

func (b *mailbox) put(m *clientType, write func(*changes)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	write(&m.changes)
	if !m.changes.queued {
		m.changes.queued = true
		b.queue = append(b.queue, m)
	}
}

// take empties the mailbox. The slice is valid until the next call, by the same goroutine.
func (b *mailbox) take() []subscriberChanges {
	out := b.spare[:0]
	b.mu.Lock()
	for _, m := range b.queue {
		out = append(out, subscriberChanges{m, m.changes})
		m.changes = changes{}
	}
	clear(b.queue)
	b.queue = b.queue[:0]
	b.mu.Unlock()
	b.spare = out
	return out
}

// post records changes of m for the group to apply.
func (g *Group) post(m *clientType, write func(*changes)) {
	g.mailbox.put(m, write)
	g.signal()
}

// applySubscribers applies the changes that subscribers posted.
func (g *Group) applySubscribers(now time.Time) {
	posted := g.mailbox.take()
	for _, c := range posted {
		g.applySubscriber(c)
	}
	if len(posted) > 0 {
		g.countSubscribers(now)
		g.changed = true
	}
	clear(posted) // the slice is reused, and must keep no subscriber alive
}

// applySubscriber applies the changes of a subscriber. A subscriber with a new subscription or a
// NACK is woken in any case, because an update that came before the group knew of it has not woken
// it.
func (g *Group) applySubscriber(c subscriberChanges) {
	m := c.m
	if c.left {
		g.removeSubscriber(m)
		return
	}
	if !m.known {
		g.addSubscriber(m)
	}
	if m.ended {
		return
	}
	if c.sub != nil {
		g.toCheck, g.applyStoredDue = append(g.toCheck, m), true
		// Nothing is changed before, because a client may come back again and again (P16). If the
		// limit was lowered, it ends only a client that makes the key larger.
		if limit := g.settings().Limits.NamesPerKey; m.joined.audience.Exceeds(limit, m.sub, c.sub) {
			m.joined.audience.Withdraw(m, m.sub)
			m.sub = snapshot.Nothing
			r := refusal.New(codes.Unavailable, telemetry.LimitNamesPerKey,
				"key %s: %s: more names than downstream.limits.names_per_key allows (%d)", g.key, m.typ, limit)
			m.ended, m.ending = true, time.AfterFunc(refuseAfter, func() { m.waker.End(r) })
			return
		}
		absent := m.joined.content.Absent(m.sub, c.sub)
		m.joined.audience.Subscribe(m, m.sub, c.sub)
		m.sub = c.sub
		g.requestAgain(m.joined, absent)
	}
	if len(c.again) > 0 {
		g.requestAgain(m.joined, slices.Sorted(maps.Keys(c.again)))
	}
	if c.nacks != nil {
		m.joined.audience.SetNacking(m, *c.nacks)
	}
	if c.sub != nil || c.nacks != nil && *c.nacks {
		m.waker.Wake()
	}
}

// refuseAfter is when a client is told that its key has too many names. If it came back at once
// with those that it had before, they would cost the key and its origin as much again (P16).
const refuseAfter = 5 * time.Second

// addSubscriber adds a subscriber to its type, which it makes if there is none.
func (g *Group) addSubscriber(m *clientType) {
	m.known = true
	g.subscribers[m] = struct{}{}
	g.represents.count(m, 1)
	g.countUserAgent(m.node, 1)
	t := g.find(m.typ)
	if t == nil {
		if limit := g.settings().Limits.TypesPerKey; limit > 0 && len(g.allTypes()) >= limit && !g.makeRoom() {
			m.ended = true
			m.waker.End(refusal.New(codes.Unavailable, telemetry.LimitTypesPerKey,
				"key %s: %s: more types than downstream.limits.types_per_key allows (%d)", g.key, m.typ, limit))
			return
		}
		t = g.addType(m.typ)
	}
	m.joined = t
	m.storeWriter.Store(t.storeWriter)
	t.audience.Join()
}

// countUserAgent counts the user agent of a subscriber or of the representative, and shows whether
// they differ.
func (g *Group) countUserAgent(of *xds.Node, n int) {
	switch {
	case !g.audience.UserAgents.Count(of.UserAgent, n, time.Now()):
	case n < 0:
		g.opts.Metrics.MixedUserAgentKeys.Add(-1)
	default:
		g.opts.Metrics.MixedUserAgentKeys.Add(1)
		names := g.audience.UserAgents.Mixed.Names
		g.log.Warn("clients of a key differ in user agent", "user_agent", names[0], "other_user_agent", names[1], "node", history.ClipName(of.ID))
	}
}

// makeRoom drops a type without subscribers to make room for a wanted one. It reports false if
// there is none. The stored content of the type stays on disk.
func (g *Group) makeRoom() bool {
	all := g.allTypes()
	i := slices.IndexFunc(all, func(t *groupType) bool { return t.audience.Subscribers() == 0 })
	return i >= 0 && g.removeTypes(func(t *groupType) bool { return t == all[i] })
}

// removeSubscriber removes a subscriber. Its Waker is not called from here on.
func (g *Group) removeSubscriber(m *clientType) {
	if !m.known {
		return // it left before the group added it
	}
	m.known = false
	if m.ending != nil {
		m.ending.Stop()
	}
	delete(g.subscribers, m)
	g.represents.count(m, -1)
	g.countUserAgent(m.node, -1)
	if m.joined != nil {
		m.joined.audience.Leave(m, m.sub)
		m.sub = snapshot.Nothing
	}
}

// countSubscribers records since when the group has no subscribers, after changes were applied.
func (g *Group) countSubscribers(now time.Time) {
	if len(g.subscribers) == 0 {
		// The last subscriber left in this step, or left before it was added.
		g.idleSince, g.idleFrom = now, time.Time{}
		g.audience.Freeze()
		for _, t := range g.allTypes() {
			if s := t.content.Newest(); s != nil {
				s.Release() // the next subscriber may come much later
			}
		}
		return
	}
	g.idleSince = time.Time{}
}
