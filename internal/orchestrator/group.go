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
)

// Group is everything of one key.
type Group struct {
	// Fixed once made.
	registry       *Registry
	key            xds.Key
	id             uint64 // in States
	representative *xds.Node
	opts           *Options
	log            *slog.Logger
	since          time.Time
	done           chan struct{}      // closed when the goroutine has ended
	cancel         context.CancelFunc // of run's context; set by the registry before the goroutine starts

	// Owned by the registry, under its lock.
	joined int // members that did not leave

	// Safe for concurrent use.
	interned subscriptions.Table
	nacks    *history.Nacks
	mailbox  mailbox
	signals  chan struct{} // one slot: there is mail, or a newer status
	updates  chan update   // unbuffered

	// Published by the goroutine, read by anyone.
	state   atomic.Pointer[xds.State]         // what members see; nil before the first is published
	types   atomic.Pointer[[]*View]           // in the order of first use; the slice is never changed
	handles atomic.Pointer[[]*upstreamHandle] // home, and the second stream if there is one (P50); the slice is never changed
	refusal atomic.Pointer[fanout.Refusal]    // why members lack what they ask for (P53); nil: none does
	counts  atomic.Pointer[counts]
	reached atomic.Bool // a stream was open, at any time
	// routed counts the members of Cluster and ClusterLoadAssignment whose stream has
	// listeners or routes as well (P36).
	routed atomic.Int64

	// Owned by the goroutine.
	ctx             context.Context // of run; nil before it
	wg              sync.WaitGroup  // of the links' goroutines
	views           []*View         // what types points to
	meters          *telemetry.Key
	members         map[*member]struct{}
	otherUserAgents int // members with another user agent than the representative's
	interest        interest
	gen             uint64 // of the newest State

	unpublished bool      // some view's snapshot is newer than the State's
	urgent      bool      // and is not to wait
	publishAt   time.Time // when it has waited long enough; zero: not waiting
	idleSince   time.Time // zero: has members, or was told that one is coming
	idleFrom    time.Time // from when idle_ttl counts; zero: it does not count

	// Of origins that cannot be reached or say nothing (P53, P66).
	wasOpen     bool             // a stream was open at the last look
	answerBy    time.Time        // when the open stream, or the lack of one, counts as silent; zero: not waiting
	unreachable bool             // no origin can be reached
	reported    *upstream.Status // of which members were told; nil: of none
	refusing    bool             // that clients lack something was logged, and is still so
	unevaluated []*member        // that asked for something since the last judge

	stored       map[xds.TypeURL]*store.Stored // what may still be served of it
	serveStored  bool                          // what is stored is served
	recallDue    bool                          // something may have been asked for since the last recall
	recallLogged bool                          // that it is served was logged
	staleTypes   int                           // views that are stale

	traced      traced
	changed     bool // counts are old
	uncacheable bool // something came that is not to be cached
}

// update is an Update on its way to the goroutine.
type update struct {
	xds.Update
	from    *upstreamHandle
	applied chan<- bool     // whether there is another snapshot; room for one
	trace   *tracing.Update // the group's, once there is another snapshot of it; nil: none
}

var groups atomic.Uint64

func newGroup(r *Registry, key xds.Key, representative *xds.Node) *Group {
	g := &Group{
		registry: r, key: key, id: groups.Add(1), representative: representative, opts: &r.opts,
		log:     r.log.With("key", key.String()),
		since:   time.Now(),
		done:    make(chan struct{}),
		signals: make(chan struct{}, 1),
		updates: make(chan update),
		members: make(map[*member]struct{}),
		nacks:   r.history.NewNacks(key),
	}
	g.types.Store(new([]*View))
	g.counts.Store(new(counts))
	g.handles.Store(&[]*upstreamHandle{newUpstreamHandle(g, nil)})
	return g
}

// signal says that there is something to look at.
func (g *Group) signal() {
	select {
	case g.signals <- struct{}{}:
	default:
	}
}

// run is the group's life, until ctx ends or the registry lets it drop its key.
func (g *Group) run(ctx context.Context) {
	g.meters = g.opts.Metrics.Key(g.key)
	defer g.meters.Release()
	g.ctx = ctx
	if g.opts.Store != nil {
		g.stored = g.opts.Store.Load(ctx, g.key) // before the first stream, which lists it (P66)
	}
	g.startUpstream(g.firstUpstream())
	g.loop(ctx)
	g.cancel()
	close(g.done)
	g.wg.Wait()
	g.traced.over()
	g.opts.Metrics.Stale.Add(-g.staleTypes)
	for _, v := range g.views {
		v.close()
	}
	g.nacks.Close()
}

// maxDrain bounds how many updates are applied before they are published.
const maxDrain = 64

func (g *Group) loop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.signals:
		case <-timer.C:
		case u := <-g.updates:
			g.apply(u)
			g.drain()
		}
		now := time.Now()
		if g.step(now) {
			return
		}
		timer.Reset(g.wait(now)) // the same time: what came due since is still to be done
	}
}

// drain applies what else has come. It is apart from loop, where a group waits all
// its life on a stack that holds what loop needs.
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

// step brings everything up to date with what was heard, and with the time. It
// reports whether the group is over.
func (g *Group) step(now time.Time) (over bool) {
	mail := g.mailbox.take()
	for _, l := range mail {
		g.applyMember(l)
	}
	if len(mail) > 0 {
		g.countMembers(now)
		g.changed = true
	}
	clear(mail) // it is used again, and is to keep no member alive
	if len(mail) > 0 || g.uncacheable {
		g.uncacheable = false
		g.dropUnwanted(now)
	}
	g.expire(now)
	g.expireTTLs(now)
	g.remove(now)
	g.completeWildcards(now)
	g.dropStored(now)
	g.assign()
	g.recall(now) // before what is asked for with it
	g.sendInterest()
	g.observe(now)
	g.recall(now)
	if g.unpublished && (g.urgent || !now.Before(g.publishAt)) {
		g.publish()
	}
	g.evaluate()
	if g.idle(now) {
		if g.registry.drop(g) {
			return true
		}
		g.idleSince, g.idleFrom = time.Time{}, time.Time{} // a member is on its way
	}
	if g.changed {
		g.changed = false
		g.counts.Store(g.count())
		g.countStale()
	}
	return false
}

// ask tells the streams what is wanted of them, if that changed.
func (g *Group) sendInterest() {
	for _, l := range g.upstreams() {
		if now := interestOn(g.views, l); !equalInterest(now, l.sent) {
			l.sent, g.changed = now, true
			l.stream.SetInterest(now)
		}
	}
	for _, v := range g.views {
		v.again = nil
	}
}

// apply takes an update over; it is published later, or at once.
func (g *Group) apply(u update) {
	changed, first := false, false
	defer func() { u.applied <- changed }()
	if !u.Ended {
		u.from.responded.Store(true)
	}
	began := u.trace.Now()
	v := find(g.views, u.Type)
	if v == nil {
		return // nobody asks for the type any more
	}
	g.uncacheable = g.uncacheable || hasUncacheable(&u.Update)
	if changed, first = v.apply(u.from, u.Update, g.removalDelay(), g.gen+1); changed {
		g.publishSoon(time.Now())
		g.traced.applied(u.trace, began)
		// Somebody may be waiting for a first answer, and for nothing else.
		g.urgent = g.urgent || first
	}
}

// stale notes that some view has a snapshot to be published. The first such
// waits for more, and what comes meanwhile goes with it.
func (g *Group) publishSoon(now time.Time) {
	if !g.unpublished {
		g.unpublished = true
		g.publishAt = now.Add(g.settings().Settle)
	}
}

// publish makes the newest snapshots the State of the group, and then wakes the members for which
// something is different.
func (g *Group) publish() {
	g.unpublished, g.urgent, g.changed = false, false, true
	g.gen++
	began := g.traced.now()
	var snapshots []*xds.Snapshot
	for _, v := range g.views {
		if s := v.held.Load(); s != nil {
			snapshots = append(snapshots, s)
		}
	}
	next := xds.NewState(g.id, g.gen, snapshots)
	prev := g.state.Swap(next)
	woken := 0
	for _, v := range g.views {
		woken += v.wake(prev.Snapshot(v.typ.URL), next.Snapshot(v.typ.URL))
	}
	g.traced.published(began, g.gen, woken)
}

// wait is how long until the time alone changes something.
func (g *Group) wait(now time.Time) time.Duration {
	next := now.Add(time.Hour)
	before := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	before(g.interest.next(g.settings().Linger))
	before(g.nextExpiry())
	if g.unpublished {
		before(g.publishAt)
	}
	if now.Before(g.answerBy) {
		before(g.answerBy)
	}
	delay := g.removalDelay()
	for _, s := range g.stored {
		before(s.Until)
	}
	for _, v := range g.views {
		before(v.removals.due(delay))
		before(v.completion.at)
	}
	if !g.idleFrom.IsZero() {
		before(g.idleFrom.Add(g.settings().IdleTTL))
	}
	return next.Sub(now)
}

// find returns the view of typ; nil if there is none.
func find(views []*View, typ xds.TypeURL) *View {
	i := slices.IndexFunc(views, func(v *View) bool { return v.typ.URL == typ })
	if i < 0 {
		return nil
	}
	return views[i]
}
