package orchestrator

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout"
	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// member is one type of one client stream in its group. The stream's receiver calls its methods;
// the group's goroutine learns of them through the mailbox.
type member struct {
	// These fields are constant once Join has returned.
	group *Group
	typ   xds.TypeURL
	node  *xds.Node
	peer  string
	waker fanout.Waker

	// storeWriter is that of the type. The group's goroutine sets it when it adds the member. Nil:
	// nothing is stored. Any goroutine reads it.
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

var _ fanout.Member = (*member)(nil)

func (m *member) Key() xds.Key { return m.group.key }

func (m *member) State() *snapshot.State { return m.group.state.Load() }

// Newest implements fanout.Member.
func (m *member) Newest() *snapshot.Snapshot {
	return m.group.Newest(m.typ)
}

func (m *member) Intern(sub *snapshot.Subscription) *snapshot.Subscription {
	return m.group.interned.Intern(sub)
}

func (m *member) Subscribe(sub *snapshot.Subscription) {
	m.group.post(m, func(c *changes) { c.sub = sub })
}

func (m *member) Resubscribe(names []string) {
	m.group.post(m, func(c *changes) {
		if c.again == nil {
			c.again = make(map[string]struct{})
		}
		for _, n := range names {
			c.again[n] = struct{}{}
		}
	})
}

// Offered implements fanout.Member.
func (m *member) Offered(o *snapshot.Offer, maxNames int) (out []*xds.Resource, all bool) {
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

// Nacked implements fanout.Member. The relay keeps no Secrets that were replaced.
func (m *member) Nacked(n fanout.Nack, offer *snapshot.Offer) {
	m.setNacks(true)
	m.group.nacks.Note(m.typ, n, time.Now(), func() *history.Rejected {
		if offer == nil || xds.TypeOf(m.typ).Secret {
			return nil
		}
		return history.NewRejected(m.group.Differences(m.typ, offer, history.MaxRejectedNames))
	})
}

// setNacks tells the group whether the client NACKs something (P15: see audience.Type.Affected).
func (m *member) setNacks(nacks bool) {
	if m.nacks.Swap(nacks) || nacks {
		m.group.post(m, func(c *changes) { c.nacks = &nacks })
	}
}

// Acked implements fanout.Member.
func (m *member) Acked(gen uint64, all *snapshot.Snapshot) {
	m.setNacks(false)
	if k := m.storeWriter.Load(); k != nil && all != nil {
		k.acked(all)
	}
	if t := m.group.find(m.typ); t != nil && t.content.Acked(gen) {
		m.group.signal()
	}
}

// Routed implements fanout.Member.
func (m *member) Routed() {
	if !m.routed {
		m.routed = true
		m.group.routed.Add(1)
	}
}

// Leave implements fanout.Member. It counts the member out of the registry before it posts to the
// group: see doc.go.
func (m *member) Leave() {
	if !m.leaving.Swap(true) {
		if m.routed {
			m.group.routed.Add(-1)
		}
		m.SetRoutesWait(0)
		m.group.registry.leave(m)
		m.group.post(m, func(c *changes) { c.left = true })
	}
}

// changes are the changes of a member that its group has not applied yet. A newer one replaces
// an older one.
type changes struct {
	queued bool
	left   bool
	sub    *snapshot.Subscription // nil: no change
	nacks  *bool                  // whether the client NACKs something; nil: no change
	// again has the names that the client requested although the origin could not resolve them (P18)
	// or said that they do not exist (P25). It has no more elements than the subscription.
	again map[string]struct{}
}

// mailbox holds each member with changes once. So it never has more elements than there are
// members, and posting never blocks.
type mailbox struct {
	mu    sync.Mutex
	queue []*member
	spare []memberChanges // reused by take
}

// memberChanges are the changes of a member, taken out of the mailbox.
type memberChanges struct {
	m *member
	changes
}

func (b *mailbox) put(m *member, write func(*changes)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	write(&m.changes)
	if !m.changes.queued {
		m.changes.queued = true
		b.queue = append(b.queue, m)
	}
}

// take empties the mailbox. The slice is valid until the next call, by the same goroutine.
func (b *mailbox) take() []memberChanges {
	out := b.spare[:0]
	b.mu.Lock()
	for _, m := range b.queue {
		out = append(out, memberChanges{m, m.changes})
		m.changes = changes{}
	}
	clear(b.queue)
	b.queue = b.queue[:0]
	b.mu.Unlock()
	b.spare = out
	return out
}

// post records changes of m for the group to apply.
func (g *Group) post(m *member, write func(*changes)) {
	g.mailbox.put(m, write)
	g.signal()
}

// applyMembers applies the changes that members posted.
func (g *Group) applyMembers(now time.Time) {
	posted := g.mailbox.take()
	for _, c := range posted {
		g.applyMember(c)
	}
	if len(posted) > 0 {
		g.countMembers(now)
		g.changed = true
	}
	clear(posted) // the slice is reused, and must keep no member alive
}

// applyMember applies the changes of a member. A member with a new subscription or a NACK is woken
// in any case, because an update that came before the group knew of it has not woken it.
func (g *Group) applyMember(c memberChanges) {
	m := c.m
	if c.left {
		g.removeMember(m)
		return
	}
	if !m.known {
		g.addMember(m)
	}
	if m.ended {
		return
	}
	if c.sub != nil {
		g.toCheck, g.applyStoredDue = append(g.toCheck, m), true
		// Nothing is changed before, because a client may come back again and again (P16). If the limit
		// was lowered, it ends only a client that makes the key larger.
		if limit := g.settings().Limits.NamesPerKey; m.joined.audience.Exceeds(limit, m.sub, c.sub) {
			m.joined.audience.Withdraw(m, m.sub)
			m.sub = snapshot.Nothing
			r := fanout.Refuse(codes.Unavailable, telemetry.LimitNamesPerKey,
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

// refuseAfter is when a client is told that its key has too many names. If it came back at once with
// those that it had before, they would cost the key and its origin as much again (P16).
const refuseAfter = 5 * time.Second

// addMember adds a member to its type, which it makes if there is none.
func (g *Group) addMember(m *member) {
	m.known = true
	g.members[m] = struct{}{}
	g.represents.count(m, 1)
	g.countUserAgent(m.node, 1)
	t := g.find(m.typ)
	if t == nil {
		if limit := g.settings().Limits.TypesPerKey; limit > 0 && len(g.allTypes()) >= limit && !g.makeRoom() {
			m.ended = true
			m.waker.End(fanout.Refuse(codes.Unavailable, telemetry.LimitTypesPerKey,
				"key %s: %s: more types than downstream.limits.types_per_key allows (%d)", g.key, m.typ, limit))
			return
		}
		t = g.addType(m.typ)
	}
	m.joined = t
	m.storeWriter.Store(t.storeWriter)
	t.audience.Join()
}

// countUserAgent counts the user agent of a member or of the representative, and shows whether they
// differ.
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

// makeRoom drops a type without members to make room for a wanted one. It reports false if there is
// none. The stored content of the type stays on disk.
func (g *Group) makeRoom() bool {
	all := g.allTypes()
	i := slices.IndexFunc(all, func(t *groupType) bool { return t.audience.Members() == 0 })
	return i >= 0 && g.removeTypes(func(t *groupType) bool { return t == all[i] })
}

// removeMember removes a member. Its Waker is not called from here on.
func (g *Group) removeMember(m *member) {
	if !m.known {
		return // it left before the group added it
	}
	m.known = false
	if m.ending != nil {
		m.ending.Stop()
	}
	delete(g.members, m)
	g.represents.count(m, -1)
	g.countUserAgent(m.node, -1)
	if m.joined != nil {
		m.joined.audience.Leave(m, m.sub)
		m.sub = snapshot.Nothing
	}
}

// countMembers records since when the group has no members, after changes were applied.
func (g *Group) countMembers(now time.Time) {
	if len(g.members) == 0 {
		// The last member left in this step, or left before it was added.
		g.idleSince, g.idleFrom = now, time.Time{}
		g.audience.Freeze()
		for _, t := range g.allTypes() {
			if s := t.content.Newest(); s != nil {
				s.Release() // the next member may come much later
			}
		}
		return
	}
	g.idleSince = time.Time{}
}
