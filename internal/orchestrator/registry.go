package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"

	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// Registry has the group of each key in use. It is a subscriber.Joiner.
type Registry struct {
	opts            Options
	log             *slog.Logger
	nodes           xds.NodeTable // of representatives
	currentSettings atomic.Pointer[Settings]

	running chan struct{} // closed by Run
	opens   *rate.Limiter // paces new keys
	history *history.History

	mu     sync.Mutex
	ctx    context.Context // Run's; nil before it and after its end
	wg     sync.WaitGroup  // of groups; added to only while ctx is not nil
	groups map[xds.Key]*Group
	idle   *simplelru.LRU[xds.Key, *Group] // groups without subscribers; the registry bounds it
	peers  map[string]map[xds.Key]int      // number of subscribers of each peer, by key
	// relayed counts the groups whose subscribers are other relays only. They do not count for limits.
	relayed int
}

var _ subscriber.Joiner = (*Registry)(nil)

// Bounds of the keys that are opened, for each core. Opening a key takes about 0.4 ms of a core. If
// thousands were opened at once, the changes of other keys would wait for all of them (P16).
const opensPerSecond, opensAtOnce = 1500, 10

// New makes a Registry; it starts nothing.
func New(opts Options) (*Registry, error) {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	idle, err := simplelru.NewLRU[xds.Key, *Group](math.MaxInt, nil)
	if err != nil {
		return nil, fmt.Errorf("orchestrator: %w", err)
	}
	r := &Registry{
		opts:    opts,
		log:     opts.Log,
		history: history.New(opts.Metrics.HistoryDropped.Add, opts.Metrics.NacksDropped.Add),
		running: make(chan struct{}),
		groups:  make(map[xds.Key]*Group),
		opens:   rate.NewLimiter(rate.Limit(opensPerSecond*runtime.GOMAXPROCS(0)), opensAtOnce*runtime.GOMAXPROCS(0)),
		idle:    idle,
		peers:   make(map[string]map[xds.Key]int),
	}
	r.currentSettings.Store(&opts.Settings)
	return r, nil
}

// Run owns the groups. When ctx ends, it waits for their goroutines and returns nil. Subscribe
// refuses clients before Run and after it. Run is called once.
func (r *Registry) Run(ctx context.Context) error {
	r.mu.Lock()
	r.ctx = ctx
	r.mu.Unlock()
	close(r.running)
	<-ctx.Done()
	r.mu.Lock()
	r.ctx = nil
	r.mu.Unlock()
	r.wg.Wait()
	return nil
}

// Running returns a channel that is closed once Run was called. Wait for it before accepting
// clients: otherwise Subscribe refuses the first ones.
func (r *Registry) Running() <-chan struct{} { return r.running }

func (r *Registry) settings() *Settings { return r.currentSettings.Load() }

// Reconfigure puts other settings in force. They give new subscribers their keys; present
// subscribers stay where they are. Lower limits end no subscriber, but keys without subscribers are
// dropped.
func (r *Registry) Reconfigure(to Settings) {
	r.currentSettings.Store(&to)
	r.mu.Lock()
	var evicted []*Group
	for r.idle.Len() > 0 && (r.idle.Len() > to.MaxIdle || to.Limits.Keys > 0 && len(r.groups)-r.relayed > to.Limits.Keys) {
		evicted = append(evicted, r.evict())
	}
	left := slices.Collect(maps.Values(r.groups))
	r.mu.Unlock()
	for _, g := range left {
		g.signal() // its timer follows the old settings
	}
	for _, g := range evicted {
		r.dropped(g, "the new settings allow fewer keys", "max_idle", to.MaxIdle, "limit", to.Limits.Keys)
	}
}

// KeyOf implements subscriber.Joiner.
func (r *Registry) KeyOf(node *xds.Node, peer expr.Peer, typ xds.TypeURL) (xds.Key, error) {
	key, err := r.settings().Keys.Key(node, peer, typ)
	if err != nil {
		return xds.Key{}, unmapped(err)
	}
	return key, nil
}

// enterGroup counts ct in, and sets its group: that of the key, which it makes if there is none.
// The error is a *refusal.Refusal.
func (r *Registry) enterGroup(key xds.Key, ct *clientType) error {
	g, refused := r.enter(key, ct, nil)
	if g == nil && refused == nil {
		// The first client of its key. Making the group may take a while, so it happens
		// outside the lock. The group is discarded if another client was faster.
		time.Sleep(r.opens.Reserve().Delay())
		node, err := r.representativeOf(ct)
		if err != nil {
			return refusal.New(codes.PermissionDenied, telemetry.KeyError, "key %s: upstream.node: %w", key, err)
		}
		made := newGroup(r, key, ct.node, node)
		made.bearerJoined(ct)
		g, refused = r.enter(key, ct, made)
	}
	if refused != nil {
		return refused
	}
	ct.group = g
	return nil
}

// unmapped returns the refusal of a node that has no key (P5).
func unmapped(err error) *refusal.Refusal {
	reason := telemetry.Unmapped
	if why := (*aggregator.Error)(nil); errors.As(err, &why) && why.Reason == aggregator.Failed {
		reason = telemetry.KeyError
	}
	return &refusal.Refusal{Code: codes.PermissionDenied, Reason: reason, Err: err}
}

// enter counts ct in and returns the group of its key. If there is none, candidate becomes the
// group. Without a candidate it returns neither group nor refusal.
func (r *Registry) enter(key xds.Key, ct *clientType, candidate *Group) (*Group, *refusal.Refusal) {
	r.mu.Lock()
	g, evicted, refused := r.admit(key, ct, candidate)
	r.mu.Unlock()
	if evicted != nil {
		r.dropped(evicted, "downstream.limits.keys is reached", "limit", r.settings().Limits.Keys)
	}
	if g != nil && g == candidate {
		r.opts.Metrics.Keys.Add(1)
		g.log.Info("key in use", "node", history.ClipName(ct.node.ID))
	}
	return g, refused
}

// admit is enter under the lock. The caller has to cancel the evicted group.
func (r *Registry) admit(key xds.Key, ct *clientType, candidate *Group) (g, evicted *Group, refused *refusal.Refusal) {
	if r.ctx == nil || r.ctx.Err() != nil {
		return nil, nil, refusal.New(codes.Unavailable, telemetry.Draining, "the relay is not serving")
	}
	g = r.groups[key]
	if g != nil && ct.relay {
		if refused := g.relays.refusal.Load(); refused != nil {
			return nil, nil, refused
		}
	}
	limits := &r.settings().Limits
	if keys := r.peers[ct.client.PeerID]; !ct.relay && limits.KeysPerPeer > 0 && keys[key] == 0 && len(keys) >= limits.KeysPerPeer {
		return nil, nil, refusal.New(codes.ResourceExhausted, telemetry.LimitKeysPerPeer,
			"key %s: peer %s would have more keys than downstream.limits.keys_per_peer allows (%d)", key, ct.client.PeerID, limits.KeysPerPeer)
	}
	full := !ct.relay && limits.Keys > 0 && len(r.groups)-r.relayed >= limits.Keys
	if full = full && (g == nil || g.isRelayed()); full && r.idle.Len() == 0 {
		return nil, nil, refusal.New(codes.Unavailable, telemetry.LimitKeys, "key %s: the relay would have more keys than downstream.limits.keys allows (%d)", key, limits.Keys)
	}
	if g == nil && candidate == nil {
		return nil, nil, nil
	}
	if full {
		evicted = r.evict()
	}
	if g == nil {
		g = candidate
		ctx, cancel := context.WithCancel(r.ctx)
		g.cancel = cancel
		r.groups[key] = g
		r.wg.Go(func() {
			defer cancel()
			g.run(ctx)
		})
	}
	r.count(g, ct, 1)
	r.idle.Remove(key)
	if r.peers[ct.client.PeerID] == nil {
		r.peers[ct.client.PeerID] = make(map[xds.Key]int)
	}
	r.peers[ct.client.PeerID][key]++
	return g, evicted, nil
}

// count counts a subscriber of a group. The caller has the lock.
func (r *Registry) count(g *Group, ct *clientType, n int) {
	if g.isRelayed() {
		r.relayed--
	}
	if g.joined += n; ct.relay {
		g.joinedRelays += n
	}
	if g.isRelayed() {
		r.relayed++
	}
}

// isRelayed reports whether the group's subscribers are other relays only. The caller has the
// registry's lock.
func (g *Group) isRelayed() bool { return g.joined > 0 && g.joined == g.joinedRelays }

// evict removes the idle group that was used longest ago. The caller has the lock.
func (r *Registry) evict() *Group {
	key, g, _ := r.idle.RemoveOldest()
	delete(r.groups, key)
	return g
}

// dropped ends a group that has been removed.
func (r *Registry) dropped(g *Group, why string, args ...any) {
	g.cancel()
	r.opts.Metrics.Keys.Add(-1)
	g.log.Info("key dropped: "+why, args...)
}

// leave counts ct out. A key without subscribers is idle. If there are more than MaxIdle, the one
// that was used longest ago is dropped.
func (r *Registry) leave(ct *clientType) {
	g := ct.group
	r.mu.Lock()
	keys := r.peers[ct.client.PeerID]
	if keys[g.key]--; keys[g.key] == 0 {
		delete(keys, g.key)
	}
	if len(keys) == 0 {
		delete(r.peers, ct.client.PeerID)
	}
	most := r.settings().MaxIdle
	var evicted *Group
	if r.count(g, ct, -1); g.joined == 0 {
		r.idle.Add(g.key, g)
		if r.idle.Len() > most {
			evicted = r.evict()
		}
	}
	r.mu.Unlock()
	if evicted != nil {
		r.dropped(evicted, "upstream.max_idle is reached", "max_idle", most)
	}
}

// drop removes a group that has been idle for long enough. It reports false if a subscriber has
// joined.
func (r *Registry) drop(g *Group) bool {
	r.mu.Lock()
	if g.joined > 0 {
		r.mu.Unlock()
		return false
	}
	evicted := r.groups[g.key] != g // another key took its room
	if !evicted {
		delete(r.groups, g.key)
		r.idle.Remove(g.key)
	}
	r.mu.Unlock()
	if !evicted {
		why, setting := "no clients for upstream.idle_ttl", "idle_ttl"
		if !g.owns() {
			why, setting = "no clients for upstream.linger, and another member owns it", "linger"
		}
		r.dropped(g, why, setting, g.idleTTL())
	}
	return true
}
