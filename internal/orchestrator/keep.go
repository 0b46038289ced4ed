package orchestrator

import (
	"sync/atomic"
	"time"

	"xdsrelay/internal/store"
	"xdsrelay/internal/xds"
)

// Store keeps the last known good on disk, as store.Store does.
type Store interface {
	// Touch says that src may have something new; it never blocks.
	Touch(key xds.Key, typ xds.TypeURL, src store.Source)
	// Release: src is not asked any more once it has returned.
	Release(key xds.Key, typ xds.TypeURL, src store.Source)
	// Has reports whether there may be something to load; no I/O.
	Has(key xds.Key, typ xds.TypeURL) bool
	// Load reads from disk; nil if there is nothing that may be served.
	Load(key xds.Key, typ xds.TypeURL) (*store.Record, error)
}

// keeper says what of a view is to be written down (store.Source).
type keeper struct {
	group *Group
	view  *view
	began time.Time
	good  xds.Good

	// recalled is what the view was given from disk; nil: nothing.
	recalled atomic.Pointer[store.Record]

	// Of the store's goroutine.
	seeded bool
	since  time.Time // until then the seed was confirmed

	// Of the group's.
	touched bool
}

// newKeeper is nil where nothing is kept: Secrets are on no disk (P6).
func newKeeper(g *Group, v *view) *keeper {
	if g.opts.Store == nil || v.typ.Secret {
		return nil
	}
	return &keeper{group: g, view: v, began: time.Now()}
}

// touch says that something new is good, or may be.
func (k *keeper) touch() { k.group.opts.Store.Touch(k.group.key, k.view.typ.URL, k) }

// answered: the origin has spoken of the type. What was written down before the
// relay started may be confirmed by it, though no client has anything to acknowledge
// (P27).
func (k *keeper) answered() {
	if k != nil && !k.touched {
		k.touched = true
		k.touch()
	}
}

// release ends the keeping; what is on disk stays.
func (k *keeper) release() { k.group.opts.Store.Release(k.group.key, k.view.typ.URL, k) }

// Good implements store.Source.
func (k *keeper) Good() *store.Record {
	g, v := k.group, k.view
	if !k.seeded {
		k.seeded = true
		// What cannot be read was reported by the store, and is nothing to go by.
		if was, _ := g.opts.Store.Load(g.key, v.typ.URL); was != nil {
			k.since = was.Confirmed
			k.good.Seed(tookOf(was), was.Wildcard)
		}
	}
	held := v.held.Load()
	// What was good before the relay started stays for as long as a key without
	// clients does: they come back one by one, and ask for one type after the other.
	took, wildcard := k.good.Collect(held, time.Since(k.began) < g.settings().IdleTTL)
	if len(took) == 0 && !wildcard {
		return nil
	}
	r := &store.Record{
		Key: g.key, Type: v.typ.URL, Node: g.rep.Bytes(), Wildcard: wildcard, Confirmed: k.confirmed(held),
		Entries: make([]store.Entry, 0, len(took)),
	}
	if held != nil {
		r.Origin, r.Version, r.Received = held.Origin, held.Given(), held.Received
	}
	for _, t := range took {
		r.Entries = append(r.Entries, store.Entry{Resource: t.Resource, Wild: t.Wild})
	}
	return r
}

// confirmed is when what is held was last known to be the origin's newest.
func (k *keeper) confirmed(held *xds.Snapshot) time.Time {
	if was := k.recalled.Load(); was != nil && held != nil && held.Stale {
		return was.Confirmed
	}
	g := k.group
	switch at := g.connectedAt.Load(); {
	case g.home().connected():
		return time.Now()
	case at > 0:
		return time.Unix(0, at)
	}
	return k.since
}

func tookOf(r *store.Record) []xds.Took {
	out := make([]xds.Took, 0, len(r.Entries))
	for _, e := range r.Entries {
		out = append(out, xds.Took{Resource: e.Resource, Wild: e.Wild})
	}
	return out
}
