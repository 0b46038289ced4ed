package fanout

import (
	"container/list"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// poller is what one node asks again and again of one type: a list of names.
// It is a member of its group from its first poll until twice long_poll after
// its last one, whatever connections those come by (P70). One node may be many:
// Envoy polls for each cluster's endpoints, and each route, by itself; and one
// that changes its list is another from then on.
type poller struct {
	// Fixed once it is in the table.
	id      uint64
	srv     *Server
	node    *xds.Node
	account string
	address string
	typ     xds.Type
	sub     *xds.Subscription // interned
	member  Member
	meter   // with member
	opened  time.Time

	// Any goroutine's.
	refusal atomic.Pointer[Refusal]       // why it is over; the first counts
	news    atomic.Pointer[chan struct{}] // closed, and replaced, when there may be news

	// Under the table's lock.
	polls   int                // that are being answered
	kept    *list.Element      // in its account's list while there are none
	since   time.Time          // it is kept
	sent    string             // version that was given last
	acked   string             // version that the client had when it came last
	gave    session.SnapshotID // of a snapshot that says what was sent
	has     session.SnapshotID // of one that says what it had then
	refuses bool               // it refused what was sent
	behind  bool               // it came without what was sent, and was given it again
	turned  time.Time          // when it came to stand as it does
	counts  slotCounts
	nack    Nack
}

// Wake implements Waker: all polls that wait look again.
func (p *poller) Wake() {
	next := make(chan struct{})
	close(*p.news.Swap(&next))
}

// End implements Waker.
func (p *poller) End(r *Refusal) {
	if p.refusal.CompareAndSwap(nil, r) {
		p.Wake()
	}
}

// Lack implements Waker: a poller asks for one type.
func (p *poller) Lack(r *Refusal) {
	if r != nil {
		p.End(r)
	}
}

// document is what the newest snapshot says; nil: nothing yet. sub is that of the poller, but
// for whether the client brought state.
func (p *poller) document(sub *xds.Subscription) (*xds.Snapshot, *document) {
	snap := p.member.State().Snapshot(p.typ.URL)
	if snap == nil {
		return nil, nil
	}
	a := documentsOf(snap).document(snap, sub)
	if !a.says {
		return nil, nil
	}
	return snap, a
}

// pollers are all of them. Those with a poll count as streams do, one for each
// poll. What is kept for those without is bounded for each account, in names;
// nor are they more than streams and streams_per_peer. Of one account the one
// longest without goes first: a client makes room for itself, and nobody is
// refused for what is kept.
type pollers struct {
	srv   *Server
	rooms chan struct{} // has one for each answer that is being encoded

	mu       sync.Mutex
	table    map[pollerKey][]*poller // equality of lists is by content
	accounts map[string]*account     // that have something kept
	kept     int                     // pollers without a poll
	closed   bool                    // nothing is kept any more
}

// pollerKey finds candidates.
type pollerKey struct {
	node    *xds.Node
	account string
	address string
	typ     xds.TypeURL
	wild    bool
	sum     uint64 // of the names
}

// account is what is kept for a client's polls to come.
type account struct {
	kept list.List // of *poller, the longest without a poll first
	cost int
}

// pollerCost is what a poller costs besides its names, in names: against
// names_per_stream for what is kept of one account.
const pollerCost = 16

func (p *poller) cost() int { return pollerCost + p.sub.Names.Weight() }

func (p *poller) key() pollerKey {
	return pollerKey{p.node, p.account, p.address, p.typ.URL, p.sub.Wildcard, p.sub.Names.Sum()}
}

func newPollers(s *Server) *pollers {
	return &pollers{
		srv: s,
		// What is encoded costs a core, and a stream's worker may want it.
		rooms:    make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		table:    make(map[pollerKey][]*poller),
		accounts: make(map[string]*account),
	}
}

// enter returns the poller of a question with one more poll, which leave ends.
func (ps *pollers) enter(q *question, c *listener.Caller) (*poller, *Refusal) {
	p := &poller{
		srv: ps.srv, node: q.node, account: c.Account, address: c.Peer.Address, typ: q.typ, sub: q.sub,
		opened: time.Now(),
	}
	news := make(chan struct{})
	p.news.Store(&news)
	if have := ps.poll(p, false); have != nil {
		return have, nil
	}
	if refusal := ps.srv.admission.EnterPoller(); refusal != nil {
		return nil, refusal
	}
	era := ps.srv.mover.era.Load() // before the rules are looked at: see mover
	member, refusal := ps.join(p, c)
	if refusal != nil && (refusal.Reason == telemetry.LimitKeys || refusal.Reason == telemetry.LimitKeysPerPeer) && ps.drop(p.account) {
		member, refusal = ps.join(p, c)
	}
	if refusal != nil {
		return nil, refusal
	}
	// Before anybody can find it, and so end it: nothing may come of a member
	// that has left.
	p.member, p.sub, p.meter = member, member.Intern(q.sub), ps.srv.meter(member.Key(), q.typ.URL)
	member.Subscribe(p.sub)
	p.id = ps.srv.number()
	have := ps.poll(p, true)
	if have != p {
		left([]*poller{p}) // another poll of the same question was faster
	}
	if ps.srv.mover.era.Load() != era {
		if r := have.judge(); r != nil {
			have.End(r)
		}
	}
	return have, nil
}

func (ps *pollers) join(p *poller, c *listener.Caller) (Member, *Refusal) {
	m, err := ps.srv.source.Join(Join{Node: p.node, Peer: c.Peer, Account: p.account, Type: p.typ.URL, Waker: p})
	if err == nil {
		return m, nil
	}
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		refusal = Refuse(codes.Internal, telemetry.KeyError, "join %s: %w", p.typ.URL, err)
	}
	return nil, refusal
}

// poll counts one more poll for the poller that is equal to p and returns it;
// if there is none, p is put into the table if add says so.
func (ps *pollers) poll(p *poller, add bool) *poller {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	k := p.key()
	// One that is over stays until its last poll has seen it, or it is due.
	i := slices.IndexFunc(ps.table[k], func(o *poller) bool { return o.refusal.Load() == nil && o.sub.Equal(p.sub) })
	switch {
	case i >= 0:
		p = ps.table[k][i]
	case add:
		ps.table[k] = append(ps.table[k], p)
		ps.srv.meters.Streams[telemetry.REST].Add(1)
	default:
		return nil
	}
	p.polls++
	ps.unkeep(p)
	return p
}

// leave ends a poll of p. Without any, p is kept for a while, unless it is over.
func (ps *pollers) leave(p *poller, now time.Time) {
	var out []*poller
	ps.mu.Lock()
	if p.polls--; p.polls == 0 {
		if p.refusal.Load() != nil || ps.closed {
			ps.remove(p)
			out = append(out, p)
		} else {
			out = ps.keep(p, now)
		}
	}
	ps.mu.Unlock()
	left(out)
}

// keep keeps p without a poll, and returns what has to make room for it: those
// of its own account that have been without for longest. Under the lock.
func (ps *pollers) keep(p *poller, now time.Time) (out []*poller) {
	a := ps.accounts[p.account]
	if a == nil {
		a = new(account)
		ps.accounts[p.account] = a
	}
	p.since = now
	p.kept = a.kept.PushBack(p)
	a.cost += p.cost()
	ps.kept++
	l := &ps.srv.settings().Limits
	over := func(n, limit int) bool { return limit > 0 && n > limit }
	for over(a.cost, l.NamesPerStream) || over(a.kept.Len(), l.StreamsPerPeer) || over(ps.kept, l.Streams) {
		oldest := a.kept.Front()
		if oldest == nil {
			break
		}
		o := oldest.Value.(*poller)
		ps.remove(o)
		out = append(out, o)
	}
	return out
}

// unkeep ends keep: p has a poll, or goes. Under the lock.
func (ps *pollers) unkeep(p *poller) {
	if p.kept == nil {
		return
	}
	a := ps.accounts[p.account]
	a.kept.Remove(p.kept)
	p.kept = nil
	ps.kept--
	if a.cost -= p.cost(); a.kept.Len() == 0 {
		delete(ps.accounts, p.account)
	}
}

// remove takes p out of the table; the caller has it leave its group. Under the
// lock.
func (ps *pollers) remove(p *poller) {
	ps.unkeep(p)
	k := p.key()
	if left := slices.DeleteFunc(ps.table[k], func(o *poller) bool { return o == p }); len(left) > 0 {
		ps.table[k] = left
	} else {
		delete(ps.table, k)
	}
	ps.srv.meters.Streams[telemetry.REST].Add(-1)
}

// left has pollers that were removed leave their groups.
func left(ps []*poller) {
	for _, p := range ps {
		p.member.Leave()
		p.perKey.Release()
	}
}

// drop drops all that is kept of an account, and reports whether there was any.
func (ps *pollers) drop(who string) bool {
	return ps.weed(func(p *poller) bool { return p.account == who }) > 0
}

// expire drops the pollers that have been without a poll for twice long_poll
// (P70), or are over.
func (ps *pollers) expire(now time.Time) {
	ps.weed(func(p *poller) bool { return now.Sub(p.since) >= ps.keepFor() || p.refusal.Load() != nil })
}

// close drops all that is kept, and keeps nothing from now on.
func (ps *pollers) close() {
	ps.mu.Lock()
	ps.closed = true
	ps.mu.Unlock()
	ps.weed(func(*poller) bool { return true })
}

// weed drops, of what is kept, what is to go.
func (ps *pollers) weed(goes func(*poller) bool) int {
	var out []*poller
	ps.mu.Lock()
	for _, a := range ps.accounts {
		for e := a.kept.Front(); e != nil; e = e.Next() {
			if p := e.Value.(*poller); goes(p) {
				out = append(out, p)
			}
		}
	}
	for _, p := range out {
		ps.remove(p)
	}
	ps.mu.Unlock()
	left(out)
	return len(out)
}

// keepFor is how long a poller is kept without a poll (P70).
func (ps *pollers) keepFor() time.Duration { return 2 * ps.srv.settings().LongPoll }

// hear notes what a poll says of what its poller was given last.
func (ps *pollers) hear(p *poller, q *question) {
	ps.mu.Lock()
	nack := p.hear(q)
	ps.mu.Unlock()
	if nack == nil {
		return
	}
	p.member.Nacked(*nack)
	ps.srv.logNack(p.member, p.typ.URL, nack, q.nonce)
}

// hear returns the refusal, if it is one. Envoy's polls tell of none: it asks again with the version
// that it had, and is given the same again. Under the table's lock.
func (p *poller) hear(q *question) *Nack {
	switch {
	case q.refused && (q.nonce == "" || q.nonce != p.sent):
		p.meters.Stale.Inc() // P13
	case q.refused:
		p.counts.nacks++
		p.meters.Nacks.Inc()
		n := Nack{Version: p.sent, Code: q.code, Message: q.message, Node: p.node.ID, At: time.Now(), Gen: p.gave.Gen}
		p.refuses, p.nack, p.turned = true, n, n.At
		return &n
	case q.version != "" && q.version == p.sent:
		p.behind = false
		p.has = p.gave
		if p.acked == p.sent {
			break
		}
		p.counts.acks++
		p.meters.Acks.Inc()
		p.acked, p.refuses, p.turned = p.sent, false, time.Now()
	}
	return nil
}

// brought notes that a poll came with the version that is current, of s. Be it that
// another relay gave it, or this one before it was started anew: nothing is to be
// given, and the client has it.
func (ps *pollers) brought(p *poller, version string, s *xds.Snapshot) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p.gave, p.has = session.IDOf(s), session.IDOf(s)
	if p.acked == version && p.sent == version && !p.behind {
		return
	}
	p.sent, p.acked, p.behind, p.refuses, p.turned = version, version, false, false, time.Now()
}

// asked is the subscription that a poll is answered by. A client whose version is of another
// relay, or of this one before its restart, brings state: it gets nothing from the store (P66),
// and no part of an answer (P67).
func (ps *pollers) asked(p *poller, q *question) *xds.Subscription {
	ps.mu.Lock()
	brings := q.version != "" && p.sent == ""
	ps.mu.Unlock()
	if !brings {
		return p.sub
	}
	return p.member.Intern(&xds.Subscription{Wildcard: p.sub.Wildcard, HasState: true, Names: p.sub.Names})
}

// said notes that p is given the answer of this version, which s says.
func (ps *pollers) said(p *poller, version string, s *xds.Snapshot) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p.counts.sent++
	p.gave = session.IDOf(s)
	p.behind = p.sent == version
	if !p.behind {
		p.sent, p.refuses, p.turned = version, false, time.Now()
	}
}

// all returns all pollers.
func (ps *pollers) all() (out []*poller) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, same := range ps.table {
		out = append(out, same...)
	}
	return out
}

// client is a poller as people read it: a stream of one type.
func (ps *pollers) client(p *poller) ClientStatus {
	at := p.reads()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ClientStatus{
		Stream: p.id, Node: p.node.ID, Cluster: p.node.Cluster, UserAgent: p.node.UserAgent,
		Peer: p.address, Variant: telemetry.REST.String(), Since: p.opened, Types: []TypeStatus{p.status(&at)},
	}
}

// standing is where a poller stands. What it polled for it has once it comes again.
func (ps *pollers) standing(p *poller) Standing {
	at := p.reads()
	out := Standing{Key: p.member.Key(), Type: p.typ.URL, Stream: p.id, Node: p.node.ID, Host: listener.Host(p.address)}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	t := p.status(&at)
	out.State, out.Since = t.State, t.Since
	if at.newest != nil {
		out.Lineage = at.newest.Lineage
		switch {
		case p.sent == p.acked && !p.behind && (!at.says || p.acked == at.version):
			out.Has = at.newest.Gen
		case p.has.Lineage == at.newest.Lineage:
			out.Has = p.has.Gen
		}
	}
	if t.State == Refused {
		out.Nack, out.Final = t.Nack, !t.Unsent
	}
	return out
}

// reading is what there is for a poller; says: there is an answer, of this version.
// awaits: of some of what it asks for nobody has spoken.
type reading struct {
	newest  *xds.Snapshot
	says    bool
	awaits  bool
	version string
	now     time.Time
}

func (p *poller) reads() reading {
	at := reading{newest: p.member.Newest(), now: time.Now()}
	if at.newest != nil {
		a := documentsOf(at.newest).document(at.newest, p.sub)
		at.says, at.version, at.awaits = a.says, a.version, a.awaits
	} else {
		at.awaits = session.AwaitsAny(p.sub, nil)
	}
	return at
}

// status under the table's lock.
func (p *poller) status(at *reading) TypeStatus {
	t := TypeStatus{
		Type: string(p.typ.URL), Key: p.member.Key().String(), Wildcard: p.sub.Wildcard, Names: p.sub.Names.Len(),
		Sends: p.counts.sent, Acks: p.counts.acks, Nacks: p.counts.nacks, Sent: p.sent, Acked: p.acked,
		Since: p.turned, Unsent: at.says && at.version != p.sent,
	}
	if p.counts.nacks > 0 {
		n := p.nack
		t.Nack = &n
	}
	switch {
	case p.sent == "" && !t.Unsent && !at.awaits:
		t.State, t.Since = Synced, p.opened // there is nothing for it
	case p.sent == "":
		t.State, t.Since = NotSent, p.opened
	case p.refuses:
		t.State = Refused
	case p.behind, p.acked != p.sent: // there is no answer but the next poll, which may be long in coming
		since := p.turned
		t.State, t.Unanswered, t.UnansweredFor = Unanswered, &since, at.now.Sub(since).Seconds()
	case t.Unsent:
		t.State = Unanswered
	case at.awaits:
		t.State, t.Since = NotSent, p.opened
	default:
		t.State = Synced
	}
	return t
}
