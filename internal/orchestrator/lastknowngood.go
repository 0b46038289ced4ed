package orchestrator

import (
	"context"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"xdsrelay/internal/store"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Store keeps the last known good on disk, as store.Store does.
type Store interface {
	// Load returns the stored snapshots of a key that may be served, by type. It may block for a
	// few seconds.
	Load(ctx context.Context, key xds.Key) map[xds.TypeURL]*store.Stored
	// Put stores a generation that a client acknowledged. It never blocks.
	Put(key xds.Key, typ xds.TypeURL, s *snapshot.Snapshot)
}

// storeWriter stores the newest generation of a type that any client acknowledged (P66). It is
// safe for concurrent use.
type storeWriter struct {
	group  *Group
	typ    *groupType
	newest atomic.Pointer[snapshot.Snapshot] // the newest stored one; nil: none
	// partial is the newest that was acknowledged while the answer to the wildcard was not
	// complete; nil: none.
	partial atomic.Pointer[snapshot.Snapshot]
}

// newStoreWriter returns nil if nothing is stored: Secrets are never written to disk (P6).
func newStoreWriter(g *Group, t *groupType) *storeWriter {
	if g.opts.Store == nil || t.Secret {
		return nil
	}
	return &storeWriter{group: g, typ: t}
}

// acked stores a generation that a client acknowledged. It does not store an older one, or one with
// the same content, such as a heartbeat. It does not store one that comes in part from the store
// while the origin has not responded. A part of an answer to a wildcard waits until the answer is
// complete (P67).
func (k *storeWriter) acked(s *snapshot.Snapshot) {
	if s.Answered && !s.Complete {
		k.partial.Store(s)
		k.completed()
		return
	}
	k.partial.Store(nil)
	for {
		was := k.newest.Load()
		if s == was || s.Stale && !k.group.responded() || was != nil && was.Gen >= s.Gen {
			return
		}
		if !k.newest.CompareAndSwap(was, s) {
			continue
		}
		if was == nil || !s.SameResources(was) || s.Answered != was.Answered || s.OriginVersion() != was.OriginVersion() || s.Origin != was.Origin {
			k.group.opts.Store.Put(k.group.key, k.typ.URL, k.newest.Load()) // a newer one may have been noted since
		}
		return
	}
}

// completed stores the held snapshot, if the answer to the wildcard is complete by now and a client
// acknowledged the same content before it was.
func (k *storeWriter) completed() {
	held := k.typ.content.Newest()
	p := k.partial.Load()
	if p == nil || !held.Complete {
		return
	}
	k.partial.CompareAndSwap(p, nil)
	if p.SameResources(held) {
		k.acked(held)
	}
}

// StoreEntries yields the generations to store, for store.Run.
func (r *Registry) StoreEntries() iter.Seq[store.Entry] {
	groups := r.Groups()
	return func(yield func(store.Entry) bool) {
		for _, g := range groups {
			for _, t := range g.allTypes() {
				if t.storeWriter == nil {
					continue
				}
				if s := t.storeWriter.newest.Load(); s != nil && !yield(store.Entry{Key: g.key, Type: t.URL, Snapshot: s, Confirmed: g.responded()}) {
					return
				}
			}
		}
	}
}

// maxLoadWait is how long the upstream streams of a new key wait for the store. The first requests
// list what was read by then (P66). A slow disk must not delay the clients of a healthy origin.
const maxLoadWait = time.Second

// load starts to read the store.
func (g *Group) load() {
	g.loading = true
	g.wg.Go(func() {
		stored := g.opts.Store.Load(g.ctx, g.key)
		g.loaded.Store(&stored)
		g.signal()
	})
}

// openBy returns until when the upstream streams wait for the store; zero: they do not wait.
func (g *Group) openBy() time.Time {
	if !g.loading {
		return time.Time{}
	}
	return g.since.Add(maxLoadWait)
}

// takeLoaded takes over what was read from the store.
func (g *Group) takeLoaded() {
	stored := g.loaded.Swap(nil)
	if stored == nil {
		return
	}
	g.loading, g.stored = false, *stored
	for typ, s := range g.stored {
		if t := g.find(typ); t != nil {
			t.content.SetStored(s.Snapshot)
		}
	}
	g.applyStoredDue = true
	g.reported = nil // subscribers may have been refused for want of it
}

// applyStored puts stored resources into the content, for subscribed names that are unknown (P66).
// It does so while the origin is unreachable, or while the open stream has had no response for
// FirstAnswerTimeout. The origin's answers replace them name by name.
func (g *Group) applyStored() {
	if !g.serveStored {
		g.applyStoredDue, g.servedStoredLogged = true, false
		return
	}
	if !g.applyStoredDue {
		return
	}
	g.applyStoredDue = false
	var types []string
	resources := 0
	for _, t := range g.allTypes() {
		if n, applied := t.content.ApplyStored(); applied {
			resources += n
			types = append(types, t.Label())
		}
	}
	if len(types) == 0 {
		return
	}
	level, why := slog.LevelDebug, "the origin does not respond"
	if g.unreachable {
		why = "no origin answers"
	}
	if !g.servedStoredLogged {
		g.servedStoredLogged, level = true, slog.LevelWarn
	}
	g.log.Log(g.ctx, level, "served from the last known good: "+why, "types", strings.Join(types, " "), "resources", resources)
}

// seedAgain is the time between two attempts to get seeds: other members may hold the key later.
const seedAgain = 10 * time.Second

// askForSeeds asks other members for what they hold if nothing is held and the stored would be served.
// Until they have answered, the stored is not served.
func (g *Group) askForSeeds(now time.Time) {
	switch {
	case !g.serveStored:
		g.seedsAsked = time.Time{}
	case g.opts.Seeds != nil && !g.seeding && !g.content.Holds() && now.Sub(g.seedsAsked) >= seedAgain:
		g.seedsAsked, g.seeding = now, true
		g.wg.Go(func() {
			seeds := g.opts.Seeds(g.ctx, g.key)
			g.seeds.Store(&seeds)
			g.signal()
		})
	}
}

// takeSeeds takes over what other members hold and is younger than the stored.
func (g *Group) takeSeeds() {
	seeds := g.seeds.Swap(nil)
	if seeds == nil {
		return
	}
	g.seeding = false
	for typ, s := range *seeds {
		if have := g.stored[typ]; have != nil && !have.Snapshot.Received.Before(s.Snapshot.Received) {
			continue
		}
		if g.stored == nil {
			g.stored = make(map[xds.TypeURL]*store.Stored)
		}
		g.stored[typ] = s
		if t := g.find(typ); t != nil {
			t.content.SetStored(s.Snapshot)
		}
	}
	g.applyStoredDue, g.reported = true, nil // as in takeLoaded
}

// dropStored forgets stored snapshots that must not be served any more. Either they are older than
// store.max_age, or a client acknowledged the generation that replaced them in the store.
func (g *Group) dropStored(now time.Time) {
	for typ, s := range g.stored {
		t := g.find(typ)
		old := !s.Until.IsZero() && !now.Before(s.Until)
		if !old && (t == nil || !t.replacesStored(g)) {
			continue
		}
		delete(g.stored, typ)
		if t != nil {
			t.content.SetStored(nil)
		}
	}
}

// replacesStored reports whether what is held replaces the stored snapshot of the type for good. Without
// a store, that is a seed, which the origin's first response replaces.
func (t *groupType) replacesStored(g *Group) bool {
	if t.storeWriter == nil {
		return g.responded()
	}
	return t.storeWriter.newest.Load() != nil
}

// countStale counts the types that are served from the store, and logs when none is left.
func (g *Group) countStale() {
	n := 0
	for _, t := range g.allTypes() {
		if s := t.content.Newest(); s != nil && s.Stale {
			n++
		}
	}
	if n == 0 && g.staleTypes > 0 {
		g.log.Info("no longer served from the last known good: the origin has responded")
	}
	g.opts.Metrics.Stale.Add(n - g.staleTypes)
	g.staleTypes = n
}
