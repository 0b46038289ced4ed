package orchestrator

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync/atomic"

	"xdsrelay/internal/store"
	"xdsrelay/internal/xds"
)

// Store keeps the last known good on disk, as store.Store does.
type Store interface {
	// Load returns what is stored of a key and may be served, by type. It may block for
	// a few seconds.
	Load(ctx context.Context, key xds.Key) map[xds.TypeURL]*store.Stored
	// Put says that a client acknowledged a generation; it never blocks.
	Put(key xds.Key, typ xds.TypeURL, s *xds.Snapshot)
}

// storeWriter stores the newest generation of a view that any client acknowledged (P66). It
// is safe for concurrent use.
type storeWriter struct {
	group  *Group
	view   *View
	newest atomic.Pointer[xds.Snapshot] // that was put; nil: none
	// partial is the newest that was acknowledged while the answer to the wildcard was not
	// complete; nil: none.
	partial atomic.Pointer[xds.Snapshot]
}

// newStoreWriter returns nil where nothing is stored: Secrets are on no disk (P6).
func newStoreWriter(g *Group, v *View) *storeWriter {
	if g.opts.Store == nil || v.typ.Secret {
		return nil
	}
	return &storeWriter{group: g, view: v}
}

// acked stores a generation, unless a newer one was stored, or part of it comes from
// the store itself and the origin has said nothing. A generation with the same content,
// such as a heartbeat, is not stored again. A part of an answer to a wildcard (P67) waits until it is complete.
func (k *storeWriter) acked(s *xds.Snapshot) {
	if s.Answered && !s.Complete {
		k.partial.Store(s)
		k.completed()
		return
	}
	for {
		was := k.newest.Load()
		if s == was || s.Stale && !k.group.responded() || was != nil && was.Gen >= s.Gen {
			return
		}
		if !k.newest.CompareAndSwap(was, s) {
			continue
		}
		if was == nil || !s.Alike(was) || s.Answered != was.Answered || s.Given() != was.Given() || s.Origin != was.Origin {
			k.group.opts.Store.Put(k.group.key, k.view.typ.URL, k.newest.Load()) // another may be newer by now
		}
		return
	}
}

// completed stores what is held if the answer to the wildcard is complete by now, and its
// content was acknowledged before it was.
func (k *storeWriter) completed() {
	held := k.view.held.Load()
	if p := k.partial.Load(); p != nil && held.Complete && p.Alike(held) {
		k.partial.Store(nil)
		k.acked(held)
	}
}

// Generations yields what belongs into the store, as store.Run asks for it.
func (r *Registry) Generations() iter.Seq[store.Generation] {
	r.mu.Lock()
	groups := slices.Collect(maps.Values(r.groups))
	r.mu.Unlock()
	return func(yield func(store.Generation) bool) {
		for _, g := range groups {
			for _, v := range *g.types.Load() {
				if v.storeWriter == nil {
					continue
				}
				if s := v.storeWriter.newest.Load(); s != nil && !yield(store.Generation{Key: g.key, Type: v.typ.URL, Snapshot: s, Confirmed: g.responded()}) {
					return
				}
			}
		}
	}
}
