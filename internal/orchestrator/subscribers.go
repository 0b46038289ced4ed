package orchestrator

import (
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// changes are the changes of a subscriber that its group has not applied yet. A newer one replaces
// an older one.
type changes struct {
	queued bool
	left   bool
	sub    *snapshot.Subscription // nil: no change
	nacks  *bool                  // whether the client NACKs something; nil: no change
	// requestedAgain has the names that the client requested although the origin could not resolve them
	// (P18) or said that they do not exist (P25). It has no more elements than the subscription.
	requestedAgain map[string]struct{}
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
	ct *clientType
	changes
}

func (b *mailbox) put(ct *clientType, write func(*changes)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	write(&ct.changes)
	if !ct.changes.queued {
		ct.changes.queued = true
		b.queue = append(b.queue, ct)
	}
}

// take empties the mailbox. The slice is valid until the next call, by the same goroutine.
func (b *mailbox) take() []subscriberChanges {
	out := b.spare[:0]
	b.mu.Lock()
	for _, ct := range b.queue {
		out = append(out, subscriberChanges{ct, ct.changes})
		ct.changes = changes{}
	}
	clear(b.queue)
	b.queue = b.queue[:0]
	b.mu.Unlock()
	b.spare = out
	return out
}

// post records changes of m for the group to apply.
func (g *Group) post(ct *clientType, write func(*changes)) {
	g.mailbox.put(ct, write)
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
	ct := c.ct
	if c.left {
		g.removeSubscriber(ct)
		return
	}
	if !ct.known {
		g.addSubscriber(ct)
	}
	if ct.ended {
		return
	}
	if c.sub != nil {
		g.toCheck, g.applyStoredDue = append(g.toCheck, ct), true
		// Nothing is changed before, because a client may come back again and again (P16). If the
		// limit was lowered, it ends only a client that makes the key larger.
		if limit := g.settings().Limits.NamesPerKey; !ct.relay && ct.joined.audience.Exceeds(limit, ct.sub, c.sub) {
			ct.joined.audience.Withdraw(ct, ct.sub)
			ct.sub = snapshot.Nothing
			r := refusal.New(codes.Unavailable, telemetry.LimitNamesPerKey,
				"key %s: %s: more names than downstream.limits.names_per_key allows (%d)", g.key, ct.typ, limit)
			ct.ended, ct.ending = true, time.AfterFunc(refuseAfter, func() { ct.client.End(r) })
			return
		}
		absent := ct.joined.content.Absent(ct.sub, c.sub)
		ct.joined.audience.Subscribe(ct, ct.sub, c.sub)
		was := ct.sub
		ct.sub = c.sub
		if g.opts.SotWOrigins && c.sub.Brought != was.Brought {
			ct.joined.brought = ct.joined.brought.Add(slices.Collect(c.sub.Brought.All())...)
		}
		g.requestAgain(ct.joined, absent)
	}
	if len(c.requestedAgain) > 0 {
		g.requestAgain(ct.joined, slices.Sorted(maps.Keys(c.requestedAgain)))
	}
	if c.nacks != nil {
		ct.joined.audience.SetNacking(ct, *c.nacks)
	}
	if c.sub != nil || c.nacks != nil && *c.nacks {
		ct.waker.Wake()
	}
}

// refuseAfter is when a client is told that its key has too many names. If it came back at once
// with those that it had before, they would cost the key and its origin as much again (P16).
const refuseAfter = 5 * time.Second

// addSubscriber adds a subscriber to its type, which it makes if there is none.
func (g *Group) addSubscriber(ct *clientType) {
	ct.known = true
	g.subscribers[ct] = struct{}{}
	g.represents.count(ct, 1)
	g.bearerJoined(ct)
	g.countUserAgent(ct.node, 1)
	if ct.relay {
		g.addRelay(ct)
		if refused := g.relays.refusal.Load(); refused != nil { // since the registry looked
			ct.ended = true
			ct.client.End(refused)
			return
		}
	}
	t := g.find(ct.typ)
	if t == nil {
		if limit := g.settings().Limits.TypesPerKey; !ct.relay && limit > 0 && len(g.allTypes()) >= limit && !g.makeRoom() {
			ct.ended = true
			ct.client.End(refusal.New(codes.Unavailable, telemetry.LimitTypesPerKey,
				"key %s: %s: more types than downstream.limits.types_per_key allows (%d)", g.key, ct.typ, limit))
			return
		}
		t = g.addType(ct.typ)
	}
	ct.joined = t
	ct.storeWriter.Store(t.storeWriter)
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
func (g *Group) removeSubscriber(ct *clientType) {
	delete(g.subscribers, ct)
	g.bearerLeft(ct)
	if !ct.known {
		return // it left before the group added it
	}
	ct.known = false
	if ct.ending != nil {
		ct.ending.Stop()
	}
	g.represents.count(ct, -1)
	g.countUserAgent(ct.node, -1)
	g.removeRelay(ct)
	if ct.joined != nil {
		ct.joined.audience.Leave(ct, ct.sub)
		ct.sub = snapshot.Nothing
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
