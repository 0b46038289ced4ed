package orchestrator

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"xdsrelay/internal/fanout"
	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/orchestrator/subscriptions"
	"xdsrelay/internal/store"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tracing"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Group is one key: its members, its views of the resource types, and its upstream streams.
//
// One goroutine owns a Group. Its loop waits for one of four events: a member changed, an upstream
// status changed, an Update arrived, or time passed. An Update is applied to the View of its type
// at once. Then step brings everything else up to date, in a fixed order: the members'
// subscriptions, expiry, the interest, publication, and refusals. So no event handler has to know
// its consequences.
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

	// The registry owns the field below, under its lock.
	joined int // members that have not left

	// The fields below are safe for concurrent use.
	interned subscriptions.Table
	nacks    *history.Nacks
	mailbox  mailbox
	signals  chan struct{} // capacity one: the mailbox, an upstream status or loaded changed
	updates  chan update   // unbuffered

	// The group's goroutine publishes the fields below. Any goroutine reads them.
	state        atomic.Pointer[snapshot.State]    // what members see; nil before the first is published
	types        atomic.Pointer[[]*View]           // in the order of first use; the slice is never changed
	handles      atomic.Pointer[[]*upstreamHandle] // the first stream, and the second if there is one (P50); the slice is never changed
	refusal      atomic.Pointer[fanout.Refusal]    // why members are refused (P53); nil: no member is refused
	counts       atomic.Pointer[Status]            // without what is published elsewhere
	wasEverOpen  atomic.Bool                       // a stream has been open at some time
	everAnswered atomic.Bool                       // the origin has answered a stream at some time
	// loaded has what the store has of the key. The goroutine that reads the store sets it.
	loaded atomic.Pointer[map[xds.TypeURL]*store.Stored]
	// routed counts the members of Cluster and ClusterLoadAssignment whose stream has
	// listeners or routes as well (P36).
	routed atomic.Int64
	// routesWait says whether listeners and routes wait for clusters (P67).
	routesWait routesWait

	// The group's goroutine owns the fields below.
	ctx        context.Context // run's; nil before it
	wg         sync.WaitGroup  // of the goroutines of upstream streams, and of the one that reads the store
	views      []*View         // the same views as in types
	node       *xds.Node       // what the streams send (P58)
	represents representative
	metrics    *telemetry.Key
	members    map[*member]struct{}
	userAgents subscriptions.UserAgents
	linger     linger
	gen        uint64 // the newest State's

	unpublished bool      // a view has a snapshot that is newer than the State's
	urgent      bool      // and it must not wait
	publishAt   time.Time // when to publish it at the latest
	idleSince   time.Time // zero: there are members, or one is about to join
	idleFrom    time.Time // when IdleTTL began to count; zero: it does not count

	// The fields below are for origins that are unreachable or do not respond (P53, P66).
	wasOpen       bool             // a stream was open in the last step
	answerBy      time.Time        // when FirstAnswerTimeout ends; zero: the group waits for no first answer
	unreachable   bool             // no origin can be reached, and something is subscribed
	reported      *upstream.Status // the status that the present refusal is about; nil: none
	refusalLogged bool             // the log says that clients are refused, and they still are
	toCheck       []*member        // members with a new subscription since the last updateRefusals

	loading            bool                          // the store is being read
	stored             map[xds.TypeURL]*store.Stored // the stored snapshots of the key that may still be served
	serveStored        bool                          // serve the stored snapshots
	applyStoredDue     bool                          // something may have been subscribed since the last applyStored
	servedStoredLogged bool                          // the log says that stored resources are served
	staleTypes         int                           // views with stored resources

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

// newGroup makes the group of a key. client is the node of its first client, node what is sent for it.
func newGroup(r *Registry, key xds.Key, client, node *xds.Node) *Group {
	g := &Group{
		registry: r, key: key, id: groups.Add(1), node: node, opts: &r.opts,
		log:     r.log.With("key", key.String()),
		since:   time.Now(),
		done:    make(chan struct{}),
		signals: make(chan struct{}, 1),
		updates: make(chan update),
		members: make(map[*member]struct{}),
		nacks:   r.history.NewNacks(key),
	}
	if r.opts.Node == nil { // the representative is the first client's node
		g.userAgents.Count(node.UserAgent, 1, g.since)
	}
	g.represents = representative{client: client, until: g.since.Add(r.opts.FirstAnswerTimeout)}
	g.types.Store(new([]*View))
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
	if g.userAgents.Mixed != nil {
		g.opts.Metrics.MixedUserAgentKeys.Add(-1)
	}
	for _, v := range g.views {
		v.history.Close()
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

// step brings everything up to date with the changes of members, the updates and the time. It
// reports whether the group has ended.
func (g *Group) step(now time.Time) (over bool) {
	posted := g.mailbox.take()
	for _, c := range posted {
		g.applyMember(c)
	}
	if len(posted) > 0 {
		g.countMembers(now)
		g.changed = true
	}
	clear(posted) // the slice is reused, and must keep no member alive
	g.takeLoaded()
	g.dropUnwanted(now)
	g.expire(now)
	g.expireTTLs(now)
	g.remove(now)
	g.completeWildcards(now)
	g.dropStored(now)
	g.replaceRepresentative(now)
	g.assign()
	g.applyStored(now) // before sendInterest, so that the first request lists what is stored
	g.sendInterest()
	g.startUpstreams(now)
	g.updateReachability(now)
	g.applyStored(now)
	if g.unpublished && (g.urgent || !now.Before(g.publishAt)) {
		g.publish()
	}
	g.wakeRoutes()
	g.updateRefusals()
	if g.idle(now) {
		if g.registry.drop(g) {
			return true
		}
		g.idleSince, g.idleFrom = time.Time{}, time.Time{} // a member is about to join
	}
	if g.changed {
		g.changed = false
		g.counts.Store(g.count())
		g.countStale()
	}
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
	before(g.linger.next(g.settings().Linger))
	before(g.nextExpiry())
	if g.unpublished {
		before(g.publishAt)
	}
	if now.Before(g.answerBy) {
		before(g.answerBy)
	}
	if now.Before(g.openBy()) {
		before(g.openBy())
	}
	if g.lacksRepresentative() {
		before(g.represents.until)
	}
	delay := g.removalDelay()
	for _, s := range g.stored {
		before(s.Until)
	}
	for _, v := range g.views {
		before(v.removals.due(delay))
		before(v.completion.due)
	}
	if !g.idleFrom.IsZero() {
		before(g.idleFrom.Add(g.settings().IdleTTL))
	}
	return next.Sub(now)
}

// apply applies an update to its view. The step that follows publishes it, now or later.
func (g *Group) apply(u update) {
	changed, first := false, false
	defer func() { u.applied <- changed }()
	if !u.Ended {
		g.everAnswered.Store(true)
	}
	began := u.trace.Now()
	v := find(g.views, u.Type)
	if v == nil {
		return // the type is no longer wanted
	}
	if changed, first = g.applyToView(v, u.from, u.Update); changed {
		g.publishSoon(time.Now())
		g.traces.Applied(u.trace, began)
		// A client may be waiting for a first answer.
		g.urgent = g.urgent || first
	}
}

// publishSoon records that a view has a snapshot that is not published. The first one waits for
// Settle, and later ones are published with it.
func (g *Group) publishSoon(now time.Time) {
	if !g.unpublished {
		g.unpublished = true
		g.publishAt = now.Add(g.settings().Settle)
	}
}

// publish makes the newest snapshots the State of the group. Then it wakes the members that are
// affected.
func (g *Group) publish() {
	g.unpublished, g.urgent, g.changed = false, false, true
	g.gen++
	began := g.traces.Now()
	var snapshots []*snapshot.Snapshot
	for _, v := range g.views {
		if s := v.held.Load(); s != nil {
			snapshots = append(snapshots, s)
		}
	}
	next := snapshot.NewState(g.id, g.gen, snapshots)
	prev := g.state.Swap(next)
	woken := 0
	for _, v := range g.views {
		woken += v.wake(prev.Snapshot(v.typ.URL), next.Snapshot(v.typ.URL))
	}
	g.traces.Published(began, g.gen, woken)
}

func (g *Group) setViews(views []*View) {
	g.views = views
	g.types.Store(&views)
}

// settings returns the settings in force.
func (g *Group) settings() *Settings { return g.registry.settings() }

// signal makes the loop run a step. It never blocks.
func (g *Group) signal() {
	select {
	case g.signals <- struct{}{}:
	default:
	}
}

// find returns the view of a type; nil if there is none.
func find(views []*View, typ xds.TypeURL) *View {
	i := slices.IndexFunc(views, func(v *View) bool { return v.typ.URL == typ })
	if i < 0 {
		return nil
	}
	return views[i]
}
