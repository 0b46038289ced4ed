package orchestrator

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/orchestrator/audience"
	"xdsrelay/internal/orchestrator/content"
	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/store"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tracing"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Group is one key: what its subscribers want (audience), what origins sent (content), and its
// upstream streams.
//
// One goroutine owns a Group. Its loop waits for one of four events: a subscriber changed, an
// upstream status changed, an Update arrived, or time passed. An Update is applied to the content
// at once. Then step brings everything else up to date, in a fixed order: the subscribers'
// subscriptions, the content, the interest, publication, and refusals. So no event handler has to
// know its consequences.
type Group struct {
	// These fields are constant.
	registry *Registry
	key      xds.Key
	id       uint64 // used in States
	opts     *Options
	log      *slog.Logger
	since    time.Time
	done     chan struct{}      // closed when the goroutine has ended
	cancel   context.CancelFunc // cancels run's context; set by the registry before the goroutine starts

	// The registry owns the fields below, under its lock.
	joined       int // subscribers that have not left
	joinedRelays int // of them, other relays

	// The fields below are safe for concurrent use.
	interned audience.Table
	nacks    *history.Nacks
	mailbox  mailbox
	signals  chan struct{} // capacity one: the mailbox, an upstream status or loaded changed
	updates  chan update   // unbuffered

	// The group's goroutine publishes the fields below. Any goroutine reads them.
	state        atomic.Pointer[snapshot.State]    // what clients see; nil before the first is published
	relayState   atomic.Pointer[snapshot.State]    // what other relays see; nil: there is none yet, or there are no relays
	types        atomic.Pointer[[]*groupType]      // in the order of first use; the slice is never changed
	handles      atomic.Pointer[[]*upstreamHandle] // the first stream, and the second if there is one (P50); the slice is never changed
	refusal      atomic.Pointer[refusal.Refusal]   // why subscribers are refused (P53); nil: no subscriber is refused
	counts       atomic.Pointer[Status]            // without what is published elsewhere
	wasEverOpen  atomic.Bool                       // a stream has been open at some time
	everAnswered atomic.Bool                       // the origin has answered a stream at some time
	// loaded has what the store has of the key. The goroutine that reads the store sets it.
	loaded atomic.Pointer[map[xds.TypeURL]*store.Stored]
	// seeds has what other members hold of the key. The goroutine that asks them sets it.
	seeds atomic.Pointer[map[xds.TypeURL]*store.Stored]
	// bearer is the client whose node and token the next stream has; nil: Options.ByToken is off, or
	// no client is connected. It is the subscriber whose token expires last.
	bearer atomic.Pointer[clientType]
	// routed counts the subscribers of Cluster and ClusterLoadAssignment whose stream has
	// listeners or routes as well (P36).
	routed atomic.Int64
	// relays has the other relays among the subscribers (relays.go).
	relays relays
	// routesWait says whether listeners and routes wait for clusters (P67).
	routesWait routesWait

	// The group's goroutine owns the fields below.
	ctx         context.Context // run's; nil before it
	wg          sync.WaitGroup  // of the goroutines of upstream streams, and of the one that reads the store
	node        *xds.Node       // what the streams send (P58)
	represents  representative
	demandAt    time.Time // see demandToken
	metrics     *telemetry.Key
	subscribers map[*clientType]struct{}
	audience    audience.Audience[*clientType]
	content     *content.Content

	publishAt time.Time // when to publish the content at the latest; zero: it is published
	idleSince time.Time // zero: there are subscribers, or one is about to join
	idleFrom  time.Time // when IdleTTL began to count; zero: it does not count

	// The fields below are for origins that are unreachable or do not respond (P53, P66).
	wasOpen       bool             // a stream was open in the last step
	answerBy      time.Time        // when FirstAnswerTimeout ends; zero: the group waits for no first answer
	unreachable   bool             // no origin can be reached, and something is subscribed
	reported      *upstream.Status // the status that the present refusal is about; nil: none
	refusalLogged bool             // the log says that clients are refused, and they still are
	toCheck       []*clientType    // subscribers with a new subscription since the last updateRefusals

	seedsAsked         time.Time                     // when the other members were asked for seeds; zero: not in this outage
	seeding            bool                          // they have not answered yet
	loading            bool                          // the store is being read
	stored             map[xds.TypeURL]*store.Stored // the stored snapshots of the key that may still be served
	serveStored        bool                          // serve the stored snapshots
	applyStoredDue     bool                          // something may have been subscribed since the last applyStored
	servedStoredLogged bool                          // the log says that stored resources are served
	staleTypes         int                           // types with stored resources

	traces      tracing.Batch
	changed     bool // counts have to be published
	hadClusters bool // the last State had a complete answer to the wildcard of clusters
}

// update is an Update on its way to the group's goroutine.
type update struct {
	snapshot.Update
	from    *upstreamHandle
	applied chan<- bool     // whether there is a new snapshot; has room for one
	trace   *tracing.Update // the group ends it if there is a new snapshot; nil: not traced
}

var groups atomic.Uint64

// newGroup makes the group of a key. client is the node of its first client, node what is sent for
// it.
func newGroup(r *Registry, key xds.Key, client, node *xds.Node) *Group {
	g := &Group{
		registry: r, key: key, id: groups.Add(1), node: node, opts: &r.opts,
		log:         r.log.With("key", key.String()),
		since:       time.Now(),
		done:        make(chan struct{}),
		signals:     make(chan struct{}, 1),
		updates:     make(chan update),
		subscribers: make(map[*clientType]struct{}),
		nacks:       r.history.NewNacks(key),
		content:     content.New(r.opts.SotWOrigins),
	}
	if r.opts.Node == nil { // the representative is the first client's node
		g.audience.UserAgents.Count(node.UserAgent, 1, g.since)
	}
	g.relays.all = make(map[*clientType]struct{})
	g.represents = representative{client: client, until: g.since.Add(r.opts.FirstAnswerTimeout)}
	g.types.Store(new([]*groupType))
	g.counts.Store(g.count())
	g.handles.Store(&[]*upstreamHandle{newUpstreamHandle(g, nil)})
	return g
}

// run runs the group until ctx ends or the registry lets it drop its key.
func (g *Group) run(ctx context.Context) {
	g.metrics = g.opts.Metrics.Key(g.key)
	defer g.metrics.Release()
	g.ctx = ctx
	if g.opts.Store != nil {
		g.load()
	}
	g.loop(ctx)
	g.cancel()
	close(g.done)
	g.wg.Wait()
	g.traces.Drop()
	g.opts.Metrics.Stale.Add(-g.staleTypes)
	if g.audience.UserAgents.Mixed != nil {
		g.opts.Metrics.MixedUserAgentKeys.Add(-1)
	}
	for _, t := range g.allTypes() {
		t.history.Close()
	}
	g.nacks.Close()
}

// loop waits for events and runs a step after each.
func (g *Group) loop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.signals:
		case <-timer.C:
			g.drain() // a response that has come already may add a name (P67)
		case u := <-g.updates:
			g.apply(u)
			g.drain()
		}
		now := time.Now()
		if g.step(now) {
			return
		}
		timer.Reset(g.wait(now)) // the same now: changes that became due since then are still handled
	}
}

// drain applies the updates that are already waiting. It is not inlined into loop, so that the
// stack on which a group waits stays small.
func (g *Group) drain() {
	for n := 1; n < maxDrain; n++ {
		select {
		case u := <-g.updates:
			g.apply(u)
		default:
			return
		}
	}
}

// maxDrain bounds the number of updates that are applied before a step.
const maxDrain = 64

// step brings everything up to date with the changes of subscribers, the updates and the time. It
// reports whether the group has ended.
func (g *Group) step(now time.Time) (over bool) {
	g.applySubscribers(now)
	g.takeLoaded()
	g.takeSeeds()
	g.mergeSubscriptions(now)
	g.advanceContent(now)
	g.dropStored(now)
	g.replaceRepresentative(now)
	g.demandToken(now)
	g.assign(now)
	g.applyStored() // before sendInterest, so that the first request lists what is stored
	g.sendInterest()
	g.startUpstreams(now)
	g.updateReachability(now)
	g.updateRelays(now)
	g.applyStored()
	g.publishIfDue(now)
	g.wakeRoutes()
	g.updateRefusals()
	if g.dropIfIdle(now) {
		return true
	}
	g.publishCounts()
	return false
}

// wait returns how long until time alone changes something.
func (g *Group) wait(now time.Time) time.Duration {
	next := now.Add(time.Hour)
	before := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	before(g.audience.Next(g.settings().Linger))
	before(g.content.Next(g.removalDelay()))
	before(g.publishAt)
	before(g.relays.next())
	if now.Before(g.answerBy) {
		before(g.answerBy)
	}
	if now.Before(g.openBy()) {
		before(g.openBy())
	}
	if g.lacksRepresentative() {
		before(g.represents.until)
	}
	if g.lacksToken(now) {
		before(g.demandAt)
	}
	for _, s := range g.stored {
		before(s.Until)
	}
	if !g.idleFrom.IsZero() {
		before(g.idleFrom.Add(g.idleTTL()))
	}
	return next.Sub(now)
}

// apply applies an update to the content. The step that follows publishes it, now or later.
func (g *Group) apply(u update) {
	changed := false
	defer func() { u.applied <- changed }()
	if !u.Ended {
		g.everAnswered.Store(true)
	}
	began := time.Now()
	t := g.find(u.Type)
	switch {
	case t == nil: // the type is no longer wanted
		return
	case u.from != t.streamOf(u.Wildcard): // another stream carries the part now
		t.metrics.NotRequested.Add(len(u.Changed))
		return
	}
	did := t.content.Apply(u.Update, u.from.stream(), time.Now(), g.removalDelay())
	if u.Ended && did.Changed { // other relays drop what they have of it, too (P63)
		g.endRelays(refusal.New(codes.Unavailable, telemetry.OriginUnreachable, "key %s: the stream to the origin has ended", g.key))
	}
	t.metrics.NotRequested.Add(did.NotRequested)
	t.metrics.Failures[telemetry.Kept].Add(did.KeptErrors)
	t.metrics.Failures[telemetry.NoRoom].Add(did.DroppedErrors)
	if changed = did.Changed; changed {
		g.traces.Applied(u.trace, began)
	}
}

// advanceContent applies what time alone changes in the content.
func (g *Group) advanceContent(now time.Time) {
	delay := g.removalDelay()
	for _, t := range g.allTypes() {
		t.metrics.Dropped[telemetry.Expired].Add(t.content.Expire(now))
		t.content.Remove(now, delay)
		if h := t.wildcardOn; h != nil {
			t.content.Complete(h.stream(), now)
		}
		if t.storeWriter != nil {
			t.storeWriter.completed()
		}
	}
}

// removalDelay returns how long deletions wait. They do not wait while no stream with clusters
// or load assignments of the key also has listeners or routes.
func (g *Group) removalDelay() time.Duration {
	if g.routed.Load() == 0 {
		return 0
	}
	return g.settings().RemovalDelay
}

// publishIfDue publishes the content if it is newer than the State. A change waits for Settle, and
// later ones are published with it.
func (g *Group) publishIfDue(now time.Time) {
	unpublished, urgent := g.content.Unpublished()
	if unpublished && g.publishAt.IsZero() {
		g.publishAt = now.Add(g.settings().Settle)
	}
	switch {
	case urgent || unpublished && !now.Before(g.publishAt):
		g.publish()
	case g.content.SourceChanged() && len(g.relays.all) > 0:
		if unpublished { // the State is of the source before
			g.publish()
		} else {
			g.publishToRelays()
		}
	}
}

// publish makes the newest content the State of the group. Then it wakes the subscribers that are
// affected.
func (g *Group) publish() {
	g.publishAt, g.changed = time.Time{}, true
	began := time.Now()
	next := g.content.Publish(g.id)
	prev := g.state.Swap(next)
	woken := 0
	wake := func(ct *clientType) {
		ct.waker.Wake()
		woken++
	}
	for _, t := range g.allTypes() {
		t.audience.Affected(prev.Snapshot(t.URL), next.Snapshot(t.URL), wake)
	}
	g.publishToRelays()
	g.traces.Published(began, next.Number, woken)
}

// dropIfIdle drops the key if it has been without subscribers for long enough. It reports whether
// it did.
func (g *Group) dropIfIdle(now time.Time) bool {
	if !g.idle(now) {
		return false
	}
	if g.registry.drop(g) {
		return true
	}
	g.idleSince, g.idleFrom = time.Time{}, time.Time{} // a subscriber is about to join
	return false
}

// idle reports whether the key has been without subscribers for IdleTTL. The time does not count
// while the origin could not send the held resources again (P52), and starts again when a stream
// opens.
func (g *Group) idle(now time.Time) bool {
	switch {
	case g.idleSince.IsZero() || !g.connected() && g.content.Holds():
		g.idleFrom = time.Time{}
		return false
	case g.idleFrom.IsZero():
		g.idleFrom = now
	}
	return !now.Before(g.idleFrom.Add(g.idleTTL()))
}

// idleTTL is how long the key is kept without subscribers.
func (g *Group) idleTTL() time.Duration {
	if !g.owns() {
		return g.settings().Linger // its owner keeps it
	}
	return g.settings().IdleTTL
}

// owns reports whether this relay owns the key in its cluster.
func (g *Group) owns() bool { return g.opts.Owns == nil || g.opts.Owns(g.key) }

// publishCounts publishes the Status if it changed.
func (g *Group) publishCounts() {
	if g.changed {
		g.changed = false
		g.counts.Store(g.count())
		g.countStale()
	}
}

func (g *Group) settings() *Settings { return g.registry.settings() }

// signal makes the loop run a step. It never blocks.
func (g *Group) signal() {
	select {
	case g.signals <- struct{}{}:
	default:
	}
}
