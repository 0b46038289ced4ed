package content

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// removals are the deletions of a type that wait (P36: make before break). The builder keeps a
// waiting resource, so it exists for all readers until the deletion takes effect. The upstream
// stream sees it as well: a SotW response that omits it again reports the same deletion again,
// which does not restart the wait.
//
// The group's goroutine owns all fields except acked and anyAdded.
type removals struct {
	waiting map[partName]*waiting
	oldest  time.Time // since when the one that waits longest does, or earlier
	// acked is the newest generation that any client acknowledged with nothing NACKed. Any
	// goroutine may raise it.
	acked atomic.Uint64
	// added has the resources that came in a generation newer than acked, with that generation. No
	// client uses them yet, so their deletion does not wait. It has none that came before the first
	// acknowledgement: clients that connect again may use them since before a restart of the relay.
	added    map[string]uint64
	anyAdded atomic.Bool // added was not empty at the last sweep or later
	swept    uint64      // the value of acked in the last sweep
}

// partName is a name in one of the two parts of a type (see snapshot.Part), or the wildcard itself.
type partName struct {
	scope snapshot.Scope
	name  string
}

// waiting is a deletion that waits.
type waiting struct {
	since time.Time          // when it was first seen
	err   *xds.ResourceError // the error that the origin gave in place of the resource; nil: none
}

// wait makes the deletion of a name wait, from now on.
func (r *removals) wait(at partName, now time.Time) {
	if len(r.waiting) == 0 {
		r.oldest = now
	}
	put(&r.waiting, at, &waiting{since: now})
}

// Acked records that a client acknowledged a generation with nothing NACKed. It reports whether
// Remove has something to clean up. Any goroutine may call it.
func (t *TypeContent) Acked(gen uint64) bool {
	r := &t.removals
	for t.typ.DelayRemovals {
		was := r.acked.Load()
		if gen <= was {
			return false
		}
		if r.acked.CompareAndSwap(was, gen) {
			return r.anyAdded.Load()
		}
	}
	return false
}

// sweep forgets which resources were added up to the newest acknowledged generation.
func (r *removals) sweep() {
	acked := r.acked.Load()
	if acked == r.swept {
		return
	}
	r.swept = acked
	maps.DeleteFunc(r.added, func(_ string, gen uint64) bool { return gen <= acked })
	r.anyAdded.Store(len(r.added) > 0)
}

// applyDelayed applies an update. Deletions of clusters and load assignments wait if delay is
// positive; additions and changes never wait.
func (t *TypeContent) applyDelayed(u snapshot.Update, now time.Time, delay time.Duration) {
	if t.typ.DelayRemovals {
		t.removals.sweep()
		t.noteAdded(u.Scope(), u.Changed)
		t.delay(&u, now, delay)
	}
	if names := t.servedByWildcard(&u); len(names) > 0 {
		t.builder.Apply(snapshot.Update{Type: u.Type, Origin: u.Origin, Domain: u.Domain, Removed: names, Received: u.Received})
	}
	t.builder.Apply(u)
}

// servedByWildcard returns the names that u deletes from the wildcard and that the origin has not
// answered otherwise. Clients that subscribe to them got the wildcard's copy, so the deletion
// concerns them. The stream of names may never report it, because a SotW response deletes only what
// an earlier one on the same stream had (P65).
func (t *TypeContent) servedByWildcard(u *snapshot.Update) (names []string) {
	if !u.Wildcard {
		return nil
	}
	named := t.part(snapshot.ByName)
	for _, name := range u.Removed {
		if t.names.Has(name) && t.builder.Has(name, snapshot.ByWildcard) && !named.Known(name) {
			names = append(names, name)
		}
	}
	return names
}

// noteAdded records the resources that an update brings. One that returns was never deleted.
func (t *TypeContent) noteAdded(scope snapshot.Scope, changed []*xds.Resource) {
	r, gen := &t.removals, uint64(1)
	if s := t.Newest(); s != nil {
		gen = s.Gen + 1
	}
	for _, res := range changed {
		if at := (partName{scope, res.Name}); !t.omits(at) {
			delete(r.waiting, at)
		}
		if r.acked.Load() == 0 || t.builder.Has(res.Name, scope) || t.builder.Has(res.Name, scope.Other()) {
			continue
		}
		put(&r.added, res.Name, gen)
		r.anyAdded.Store(true)
	}
}

// delay removes from an update the deletions that have to wait.
func (t *TypeContent) delay(u *snapshot.Update, now time.Time, delay time.Duration) {
	r := &t.removals
	all := u.Removed // the caller owns the array
	u.Removed = nil
	for _, name := range all {
		at := partName{u.Scope(), name}
		waits := r.waiting[at] != nil
		_, added := r.added[name]
		if !waits && (delay <= 0 || added || !t.builder.Retain(name, u.Scope())) {
			if !t.builder.Has(name, u.Scope().Other()) {
				delete(r.added, name)
			}
			u.Removed = append(u.Removed, name)
			continue
		}
		if !waits {
			r.wait(at, now)
		}
	}
	u.Errors = without(u.Errors, func(err *xds.ResourceError) bool {
		w := r.waiting[partName{u.Scope(), err.Name}]
		if w != nil {
			w.err = err
		}
		return w != nil
	})
}

// Remove applies the deletions that have waited for delay. The snapshot repeats the version of the
// one before (P61).
func (t *TypeContent) Remove(now time.Time, delay time.Duration) {
	r := &t.removals
	r.sweep()
	if len(r.waiting) == 0 || now.Before(r.oldest.Add(delay)) {
		return
	}
	due := make(map[partName]*waiting)
	r.oldest = now
	for at, w := range r.waiting {
		if now.Before(w.since.Add(delay)) {
			if w.since.Before(r.oldest) {
				r.oldest = w.since
			}
			continue
		}
		due[at] = w
		delete(r.waiting, at)
	}
	changed := false
	for _, scope := range []snapshot.Scope{snapshot.ByWildcard, snapshot.ByName} {
		origin, domain := t.part(scope).Origin()
		// Partial: it is no response, so it says nothing about the rest (P67).
		u := snapshot.Update{Type: t.typ.URL, Origin: origin, Domain: domain, Wildcard: scope == snapshot.ByWildcard, Partial: true, Received: now}
		for at, w := range due {
			switch {
			case at.scope != scope:
				continue
			case t.omits(at): // the origin did not delete it
				t.builder.Forget(t.names.Remove(at.name), at.name)
				changed = true
				continue
			case w.err != nil:
				u.Errors = append(u.Errors, w.err)
			}
			u.Removed = append(u.Removed, at.name)
		}
		t.dropNotRequested(&u)
		if len(u.Removed) == 0 {
			continue
		}
		slices.Sort(u.Removed)
		t.applyDelayed(u, now, 0)
		changed = true
	}
	if changed {
		t.snapshot()
	}
}

// due returns when the next deletion takes effect; zero: none waits.
func (r *removals) due(delay time.Duration) time.Time {
	if len(r.waiting) == 0 {
		return time.Time{}
	}
	return r.oldest.Add(delay)
}

// forget drops the deletions of names that are no longer subscribed, or of the wildcard.
func (r *removals) forget(names []string, wildcard bool) {
	for _, name := range names {
		delete(r.waiting, partName{name: name})
		delete(r.added, name)
	}
	if wildcard {
		maps.DeleteFunc(r.waiting, func(at partName, _ *waiting) bool { return at.scope == snapshot.ByWildcard })
		clear(r.added)
	}
}
