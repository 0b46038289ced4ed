package rest

import (
	"container/list"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Poller is a node that polls one list of names of one type repeatedly. It is a subscriber of its
// group from its first poll until twice long_poll after its last one, on whatever connections
// (P70). One node may be several pollers: Envoy polls the endpoints of each cluster separately. A
// node that changes its list becomes another poller. So do its polls that resume (see
// pollers.resumes).
type Poller struct {
	// Fixed once it is in the table.
	id         uint64
	srv        *Server
	node       *xds.Node
	caller     *listener.Caller // of its first poll
	typ        xds.Type
	sub        *snapshot.Subscription // interned
	client     subscriber.Client
	subscriber subscriber.Subscriber
	perKey     *telemetry.Key         // released when the subscriber has left
	metrics    *telemetry.TypeMetrics // of perKey
	opened     time.Time

	// Any goroutine's.
	refusal atomic.Pointer[refusal.Refusal] // why it is over; the first counts
	news    atomic.Pointer[chan struct{}]   // closed, and replaced, when there may be news

	// Under the table's lock.
	polls      int             // that are being answered now
	kept       *list.Element   // its entry in its peer's list while there are none
	since      time.Time       // when it came into that list
	sent       string          // version that it was sent last
	acked      string          // version that the client had when it polled last
	sentMark   snapshot.ID     // of a snapshot from which sent was made
	ackedMark  snapshot.ID     // of a snapshot from which acked was made
	nacked     bool            // the client rejected what was sent
	behind     bool            // the client polled without the version sent, and was sent it again
	stateSince time.Time       // when its state began
	nack       subscriber.Nack // the last one
	// How many responses it was sent, and how many ACKs and NACKs it sent.
	given, acks, nacks uint64
}

// Wake implements subscriber.Waker: all polls that wait look again.
func (p *Poller) Wake() {
	next := make(chan struct{})
	close(*p.news.Swap(&next))
}

// End ends the poller. The first refusal counts.
func (p *Poller) End(r *refusal.Refusal) {
	if p.refusal.CompareAndSwap(nil, r) {
		p.Wake()
	}
}

// document is the document of the newest snapshot; nil: there is no answer yet.
func (p *Poller) document() (*snapshot.Snapshot, *document) {
	snap := p.subscriber.State().Snapshot(p.typ.URL)
	if snap == nil {
		return nil, nil
	}
	a := p.srv.opts.DocumentsOf(snap).document(snap, p.sub)
	if !a.ready {
		return nil, nil
	}
	return snap, a
}

// pollers is the table of all pollers. Each poll of a poller counts as a stream. Pollers without a
// poll are kept for the next one, within bounds: in names for each peer, and by the limits
// streams and streams_per_peer. Over a bound, the poller that has been without a poll for longest
// is removed. It is of the same peer, so a client makes room for itself. No client is refused
// because of kept pollers.
type pollers struct {
	srv *Server
	// encoders has a slot for each answer that is being encoded.
	encoders chan struct{}

	mu     sync.Mutex
	table  map[pollerKey][]*Poller // equality of lists is by content
	byPeer map[string]*keptPollers // that have something kept
	kept   int                     // pollers without a poll
	closed bool                    // nothing is kept any more
}

// pollerKey finds candidates.
type pollerKey struct {
	node    *xds.Node
	peerID  string
	address string
	names   string    // that the client's certificate or token proves
	expires time.Time // of the token: a new one is another poller, which may open the key's next stream
	typ     xds.TypeURL
	wild    bool
	sum     uint64 // of the names
}

// keptPollers has the pollers of one peer that are kept without a poll.
type keptPollers struct {
	list list.List // of *Poller, the longest without a poll first
	cost int
}

// pollerCost is the cost of a poller besides its names, in names. The cost of a peer is
// bounded by names_per_stream.
const pollerCost = 16

func (p *Poller) cost() int { return pollerCost + p.sub.Names.Weight() }

func (p *Poller) key() pollerKey {
	peer := &p.caller.Peer
	k := pollerKey{node: p.node, peerID: p.caller.PeerID, address: peer.Address, typ: p.typ.URL, wild: p.sub.Wildcard, sum: p.sub.Names.Sum()}
	if p.caller.Identity() != "" {
		k.names = fmt.Sprintf("%q %q %q %q", peer.URISANs, peer.DNSSANs, peer.Subject, peer.Token)
	}
	if t := p.caller.Token; t != nil {
		k.expires = t.Expires
	}
	return k
}

func newPollers(s *Server) *pollers {
	return &pollers{
		srv: s,
		// Half of the cores, so that streams can be served meanwhile.
		encoders: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		table:    make(map[pollerKey][]*Poller),
		byPeer:   make(map[string]*keptPollers),
	}
}

// enter returns the poller of a request, with one more poll. leave ends that poll.
func (ps *pollers) enter(q *request, c *listener.Caller) (*Poller, *refusal.Refusal) {
	p := &Poller{
		srv: ps.srv, node: q.node, caller: c, typ: q.typ, sub: q.sub,
		opened: time.Now(),
	}
	news := make(chan struct{})
	p.news.Store(&news)
	if ps.resumes(p, q) {
		p.sub = &snapshot.Subscription{Wildcard: q.sub.Wildcard, Resumes: true, Names: q.sub.Names}
	}
	if have := ps.poll(p, false); have != nil {
		return have, nil
	}
	if refused := ps.srv.opts.Admission.EnterPoller(); refused != nil {
		return nil, refused
	}
	rulesVersion := ps.srv.opts.RulesVersion() // before the rules are read
	p.client = ps.srv.opts.Joiner.Join(subscriber.Info{Node: p.node, Peer: p.caller.Peer, PeerID: p.caller.PeerID, Token: p.caller.Token, End: p.End})
	sub, refused := ps.subscribe(p)
	if refused != nil && (refused.Reason == telemetry.LimitKeys || refused.Reason == telemetry.LimitKeysPerPeer) && ps.drop(p.caller.PeerID) {
		sub, refused = ps.subscribe(p)
	}
	if refused != nil {
		return nil, refused
	}
	// All of this before another goroutine can find the poller and end it.
	p.subscriber, p.sub, p.perKey = sub, sub.Intern(p.sub), ps.srv.opts.Metrics.Key(sub.Key())
	p.metrics = p.perKey.Type(q.typ.URL)
	p.setRoutesWait(true, nil)
	sub.Request(p.sub)
	p.id = ps.srv.opts.NextID()
	have := ps.poll(p, true)
	if have != p {
		leaveGroups([]*Poller{p}) // another poll of the same request was faster
	}
	// The rules may have changed while the poller could not be found yet.
	if ps.srv.opts.RulesVersion() != rulesVersion {
		if r := have.CheckKey(); r != nil {
			have.End(r)
		}
	}
	return have, nil
}

func (ps *pollers) subscribe(p *Poller) (subscriber.Subscriber, *refusal.Refusal) {
	sub, err := p.client.Subscribe(p.typ.URL, p)
	if err == nil {
		return sub, nil
	}
	var refused *refusal.Refusal
	if !errors.As(err, &refused) {
		refused = refusal.New(codes.Internal, telemetry.KeyError, "join %s: %w", p.typ.URL, err)
	}
	return nil, refused
}

// poll counts one more poll for the poller that is equal to p and returns it. If there is none,
// it adds p to the table if add is set, and returns nil otherwise.
func (ps *pollers) poll(p *Poller, add bool) *Poller {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	have := ps.find(p)
	if have == nil {
		if !add {
			return nil
		}
		have = p
		ps.table[p.key()] = append(ps.table[p.key()], p)
		ps.srv.opts.Metrics.Streams[telemetry.REST].Add(1)
	}
	have.polls++
	ps.unkeep(have)
	return have
}

// find returns the poller in the table that is equal to p; nil if there is none. The caller holds
// the lock.
func (ps *pollers) find(p *Poller) *Poller {
	for _, o := range ps.table[p.key()] {
		// A poller that is over stays until its last poll has seen that, or until it expires.
		if o.refusal.Load() == nil && o.sub.Equal(p.sub) {
			return o
		}
	}
	return nil
}

// leave ends a poll of p. Without polls, p is kept for a while, unless it is over.
func (ps *pollers) leave(p *Poller, now time.Time) {
	var out []*Poller
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
	leaveGroups(out)
}

// keep keeps p without a poll. It returns the pollers of the same peer that it removed to make
// room. The lock is held.
func (ps *pollers) keep(p *Poller, now time.Time) (out []*Poller) {
	kept := ps.byPeer[p.caller.PeerID]
	if kept == nil {
		kept = new(keptPollers)
		ps.byPeer[p.caller.PeerID] = kept
	}
	p.since = now
	p.kept = kept.list.PushBack(p)
	kept.cost += p.cost()
	ps.kept++
	limits := ps.srv.opts.Limits()
	over := func(n, limit int) bool { return limit > 0 && n > limit }
	for over(kept.cost, limits.NamesPerStream) || over(kept.list.Len(), limits.StreamsPerPeer) || over(ps.kept, limits.Streams) {
		oldest := kept.list.Front()
		if oldest == nil {
			break
		}
		o := oldest.Value.(*Poller)
		ps.remove(o)
		out = append(out, o)
	}
	return out
}

// unkeep undoes keep: p has a poll again, or is removed. The lock is held.
func (ps *pollers) unkeep(p *Poller) {
	if p.kept == nil {
		return
	}
	kept := ps.byPeer[p.caller.PeerID]
	kept.list.Remove(p.kept)
	p.kept = nil
	ps.kept--
	if kept.cost -= p.cost(); kept.list.Len() == 0 {
		delete(ps.byPeer, p.caller.PeerID)
	}
}

// remove takes p out of the table. The caller has it leave its group. The lock is held.
func (ps *pollers) remove(p *Poller) {
	ps.unkeep(p)
	k := p.key()
	if left := slices.DeleteFunc(ps.table[k], func(o *Poller) bool { return o == p }); len(left) > 0 {
		ps.table[k] = left
	} else {
		delete(ps.table, k)
	}
	ps.srv.opts.Metrics.Streams[telemetry.REST].Add(-1)
}

// leaveGroups has pollers that were removed leave their groups.
func leaveGroups(ps []*Poller) {
	for _, p := range ps {
		p.client.Leave()
		p.perKey.Release()
	}
}

// drop removes the kept pollers of a peer, and reports whether there were any.
func (ps *pollers) drop(peerID string) bool {
	ps.mu.Lock()
	var out []*Poller
	if kept := ps.byPeer[peerID]; kept != nil {
		for e := kept.list.Front(); e != nil; e = e.Next() {
			out = append(out, e.Value.(*Poller))
		}
	}
	for _, p := range out {
		ps.remove(p)
	}
	ps.mu.Unlock()
	leaveGroups(out)
	return len(out) > 0
}

// expire removes the pollers that have been without a poll for twice long_poll (P70), or are over.
func (ps *pollers) expire(now time.Time) {
	ps.removeKept(func(p *Poller) bool { return now.Sub(p.since) >= ps.keepFor() || p.refusal.Load() != nil })
}

// close removes all kept pollers, and keeps none from now on.
func (ps *pollers) close() {
	ps.mu.Lock()
	ps.closed = true
	ps.mu.Unlock()
	ps.removeKept(func(*Poller) bool { return true })
}

func (ps *pollers) removeKept(goes func(*Poller) bool) {
	var out []*Poller
	ps.mu.Lock()
	for _, kept := range ps.byPeer {
		for e := kept.list.Front(); e != nil; e = e.Next() {
			if p := e.Value.(*Poller); goes(p) {
				out = append(out, p)
			}
		}
	}
	for _, p := range out {
		ps.remove(p)
	}
	ps.mu.Unlock()
	leaveGroups(out)
}

// keepFor is how long a poller is kept without a poll (P70).
func (ps *pollers) keepFor() time.Duration { return 2 * ps.srv.opts.LongPoll() }

// noteAnswer records what a poll says about the last answer: an ACK or a NACK.
func (ps *pollers) noteAnswer(p *Poller, q *request) {
	ps.mu.Lock()
	nack := p.answered(q)
	if nack == nil {
		ps.mu.Unlock()
		return
	}
	rejected := p.offered()
	ps.mu.Unlock()
	// Not under the lock, since redaction takes time.
	nack.Message = subscriber.NackMessage(p.typ, q.said, p.subscriber, rejected)
	ps.mu.Lock()
	if p.nack.At.Equal(nack.At) {
		p.nack.Message = nack.Message
	}
	ps.mu.Unlock()
	p.subscriber.Nacked(*nack, rejected)
	subscriber.LogNack(ps.srv.opts.Log, p.subscriber, p.typ.URL, nack, q.nonce)
}

// offered is what the last response offered. The table's lock is held.
func (p *Poller) offered() *snapshot.Offer {
	o := &snapshot.Offer{Lineage: p.sentMark.Lineage, Of: p.sentMark.Gen, Sub: p.sub}
	if p.ackedMark.Lineage == o.Lineage {
		o.Has = p.ackedMark.Gen
	}
	return o
}

// answered records an ACK or a NACK. It returns the NACK; nil: it is none. Envoy sends no NACKs in
// polls: it polls again with the version that it had, and is sent the same again. The table's lock
// is held.
func (p *Poller) answered(q *request) *subscriber.Nack {
	switch {
	case q.isNACK && (q.nonce == "" || q.nonce != p.sent):
		p.metrics.Stale.Inc() // P13
	case q.isNACK:
		p.nacks++
		p.metrics.Nacks.Inc()
		n := subscriber.Nack{Version: p.sent, Code: q.code, Node: p.node.ID, At: time.Now(), Gen: p.sentMark.Gen}
		p.nacked, p.nack, p.stateSince = true, n, n.At
		return &n
	case q.version != "" && q.version == p.sent:
		p.behind = false
		p.ackedMark = p.sentMark
		if p.acked == p.sent {
			break
		}
		p.acks++
		p.metrics.Acks.Inc()
		p.acked, p.nacked, p.stateSince = p.sent, false, time.Now()
	}
	return nil
}

// noteCurrentVersion records that a poll came with the current version, which is the version of s.
// The client may have it from another replica, or from this one before a restart.
func (ps *pollers) noteCurrentVersion(p *Poller, version string, s *snapshot.Snapshot) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p.sentMark, p.ackedMark = s.ID(), s.ID()
	if p.acked == version && p.sent == version && !p.behind {
		return
	}
	p.sent, p.acked, p.behind, p.nacked, p.stateSince = version, version, false, false, time.Now()
}

// resumes reports whether the version of a poll is from another replica, or from this one before a
// restart. Such a client gets nothing from the store (P66) and no partial answer (P67). p is the
// poller of the same names that does not resume: a version that this poller sent does not count.
func (ps *pollers) resumes(p *Poller, q *request) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	have := ps.find(p)
	return q.version != "" && (have == nil || have.sent == "")
}

// waitsForNames reports whether a poll waits until all names are answered (P67): the client
// resumes, and no poll of it was answered yet.
func (ps *pollers) waitsForNames(p *Poller) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return p.sub.Resumes && p.typ.FullState && p.sent == ""
}

// setRoutesWait tells the group whether a poll for clusters waits, because the client resumes
// (P67). a is the answer so far; nil: there is none.
func (p *Poller) setRoutesWait(waits bool, a *document) {
	switch {
	case p.typ.URL != xds.ClusterType || !p.sub.Resumes:
	case !waits:
		p.subscriber.SetRoutesWait(0)
	case a == nil:
		p.subscriber.SetRoutesWait(p.sub.RoutesWait())
	default:
		p.subscriber.SetRoutesWait(snapshot.NamesWait)
	}
}

// clustersWait returns how long at most a poll for listeners or routes waits for clusters, because
// the client resumes (P67); zero or less: it does not wait.
func (p *Poller) clustersWait(now time.Time) time.Duration {
	if !p.typ.RefersToClusters || !p.sub.Resumes || now.Sub(p.opened) >= snapshot.WildcardWait {
		return 0
	}
	return p.opened.Add(p.subscriber.RoutesWait()).Sub(now)
}

// noteGiven records that p is sent the answer of this version, which is made from s.
func (ps *pollers) noteGiven(p *Poller, version string, s *snapshot.Snapshot) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p.given++
	p.sentMark = s.ID()
	p.behind = p.sent == version
	if !p.behind {
		p.sent, p.nacked, p.stateSince = version, false, time.Now()
	}
}

func (ps *pollers) all() (out []*Poller) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, same := range ps.table {
		out = append(out, same...)
	}
	return out
}

func (ps *pollers) openPolls() (n int) {
	for _, p := range ps.all() {
		ps.mu.Lock()
		n += p.polls
		ps.mu.Unlock()
	}
	return n
}

// Refusal says why the poller is over; nil: it is not.
func (p *Poller) Refusal() *refusal.Refusal { return p.refusal.Load() }

func (p *Poller) Peer() string { return p.caller.Peer.Address }

// Identity is the identity that the client's certificate proves; empty without one.
func (p *Poller) Identity() string { return p.caller.Identity() }

// CheckKey returns why the poller has to end by the rules that are in force now; nil: it keeps its
// key. Each poll itself asks the policies, when it comes and before it is answered.
func (p *Poller) CheckKey() *refusal.Refusal {
	switch c := p.Change(p.srv.opts.Joiner.KeyOf); {
	case c.Refused != nil:
		return subscriber.AsRefusal(c.Refused)
	case c.From != c.To:
		return c.KeyChanged("poll")
	}
	return nil
}

// Change returns the key that the poller would have by these rules.
func (p *Poller) Change(keyOf subscriber.KeyOf) subscriber.Change {
	c := subscriber.Change{Type: p.typ.URL, From: p.subscriber.Key()}
	c.Apply(keyOf, p.node, p.caller.Peer)
	return c
}
