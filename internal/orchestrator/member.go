package orchestrator

import (
	"sync"
	"sync/atomic"
	"time"

	"xdsrelay/internal/fanout"
	"xdsrelay/internal/xds"
)

// member is one type of one stream in its group.
type member struct {
	// Fixed once Join has returned.
	group *Group
	typ   xds.TypeURL
	node  *xds.Node
	peer  string
	waker fanout.Waker

	// Read by anyone, stored by the group's goroutine once the member is in it.
	// storeWriter is its view's; nil: nothing of it is kept.
	storeWriter atomic.Pointer[storeWriter]

	changes changes // under the mailbox's lock

	// Owned by the stream's receiver.
	routed bool

	// Owned by the group's goroutine.
	view    *View             // nil: not known yet, or refused for types_per_key
	sub     *xds.Subscription // as indexed
	known   bool              // the group has seen it
	ended   bool              // the group ended its stream, which has not left yet
	refused bool              // it was told that nothing of what it asks for can be had (P53)
}

var _ fanout.Member = (*member)(nil)

func (m *member) Key() xds.Key      { return m.group.key }
func (m *member) State() *xds.State { return m.group.state.Load() }

// Newest implements fanout.Member.
func (m *member) Newest() *xds.Snapshot {
	if v := find(*m.group.types.Load(), m.typ); v != nil {
		return v.held.Load()
	}
	return nil
}

func (m *member) Intern(sub *xds.Subscription) *xds.Subscription { return m.group.interned.Intern(sub) }

func (m *member) Subscribe(sub *xds.Subscription) {
	m.group.post(m, func(l *changes) { l.sub = sub })
}

func (m *member) Again(names []string) {
	m.group.post(m, func(l *changes) {
		if l.again == nil {
			l.again = make(map[string]struct{}, len(names))
		}
		for _, n := range names {
			l.again[n] = struct{}{}
		}
	})
}

func (m *member) Nacked(n fanout.Nack) { m.group.nacks.Note(m.typ, n, time.Now()) }

// Acked implements fanout.Member.
func (m *member) Acked(gen uint64, all *xds.Snapshot) {
	if k := m.storeWriter.Load(); k != nil && all != nil {
		k.acked(all)
	}
	if v := find(*m.group.types.Load(), m.typ); v != nil && v.typ.LeavesLast && v.removals.ack(gen) {
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

// Leave counts the member out before the group hears of it: see doc.go.
func (m *member) Leave() {
	if m.group.leaving(m) {
		if m.routed {
			m.group.routed.Add(-1)
		}
		m.group.registry.leave(m)
		m.group.post(m, func(l *changes) { l.left = true })
	}
}

// letter is what a group has yet to hear of a member. The newest word counts.
type changes struct {
	queued  bool
	leaving bool // Leave was called
	left    bool
	sub     *xds.Subscription // nil: no change
	// again are aliases that the client asked for again, though the origin could
	// not resolve them (P18): no more than it asks for.
	again map[string]struct{}
}

// mailbox holds the members that a group has yet to look at, each once: it
// never has more than there are members, and nobody waits to post.
type mailbox struct {
	mu    sync.Mutex
	queue []*member
	spare []memberChanges // of the reader
}

// mail is a letter that was taken out.
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

// take empties the mailbox. The slice is good until the next call, by the same
// goroutine.
func (b *mailbox) take() []memberChanges {
	out := b.spare[:0]
	b.mu.Lock()
	for _, m := range b.queue {
		out = append(out, memberChanges{m, m.changes})
		m.changes = changes{leaving: m.changes.leaving}
	}
	clear(b.queue)
	b.queue = b.queue[:0]
	b.mu.Unlock()
	b.spare = out
	return out
}

// post leaves word of m for the group.
func (g *Group) post(m *member, write func(*changes)) {
	g.mailbox.put(m, write)
	g.signal()
}

// leaving reports whether this is the first call for m.
func (g *Group) leaving(m *member) bool {
	g.mailbox.mu.Lock()
	defer g.mailbox.mu.Unlock()
	first := !m.changes.leaving
	m.changes.leaving = true
	return first
}
