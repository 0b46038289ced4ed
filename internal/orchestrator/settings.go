package orchestrator

import (
	"iter"
	"maps"
	"slices"
	"time"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/xds"
)

// Settings are what can change while the registry runs. One is not changed once it
// is in force: who needs two values that belong together loads it once.
type Settings struct {
	Keys Keys
	// Settle is how long a change waits for more; 0: not at all.
	Settle time.Duration
	// RemovalDelay is how long the deletion of a cluster or load assignment waits (P36); 0:
	// not at all.
	RemovalDelay time.Duration
	// Linger is how long what nobody wants any more is still asked for (P52).
	Linger time.Duration
	// IdleTTL is how long a key without clients is kept; 0: not at all.
	IdleTTL time.Duration
	// MaxIdle is how many keys without clients are kept.
	MaxIdle int
	// Limits of which Keys, KeysPerPeer, NamesPerKey and TypesPerKey are
	// enforced here; 0: none.
	Limits config.Limits
}

// settings are those in force.
func (r *Registry) settings() *Settings { return r.now.Load() }

func (g *Group) settings() *Settings { return g.registry.settings() }

// Reconfigure puts other settings in force. Who comes from now on is joined by
// other keys; who is there stays where it is. A limit ends nobody who is there, but
// keys without clients make room.
func (r *Registry) Reconfigure(to Settings) {
	r.now.Store(&to)
	r.mu.Lock()
	var evicted []*Group
	for r.idle.Len() > 0 && (r.idle.Len() > to.MaxIdle || to.Limits.Keys > 0 && len(r.groups) > to.Limits.Keys) {
		evicted = append(evicted, r.evict())
	}
	left := slices.Collect(maps.Values(r.groups))
	r.mu.Unlock()
	for _, g := range left {
		g.signal() // it waits by the times that were
	}
	for _, g := range evicted {
		g.cancel()
		r.opts.Metrics.Keys.Add(-1)
		g.log.Info("key dropped: fewer may be kept now", "max_idle", to.MaxIdle, "limit", to.Limits.Keys)
	}
}

// KeyOf implements fanout.Source.
func (r *Registry) KeyOf(node *xds.Node, peer expr.Peer, typ xds.TypeURL) (xds.Key, error) {
	key, err := r.settings().Keys.Key(node, peer, typ)
	if err != nil {
		return xds.Key{}, unmapped(err)
	}
	return key, nil
}

// Nacks yields the NACKs that are kept of all keys: see history.History.Nacks.
func (r *Registry) Nacks(before uint64) iter.Seq[history.KeyNack] { return r.history.Nacks(before) }
