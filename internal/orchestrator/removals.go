package orchestrator

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// removals are the deletions of a view that wait (P36: make before break). The builder keeps a
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
	anyAdded atomic.Bool // added is not empty
	swept    uint64      // the value of acked in the last sweep
}

// partName is a name in one of the two parts of a type (see snapshot.Part), or the wildcard itself.
type partName struct {
	wildcard bool
	name     string
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

// ack records that a client acknowledged a generation with nothing NACKed. It reports whether the
// group has something to clean up.
func (r *removals) ack(gen uint64) bool {
	for {
		was := r.acked.Load()
		if gen <= was {
			return false
		}
		if r.acked.CompareAndSwap(was, gen) {
			return r.anyAdded.Load()
		}
	}
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
func (v *View) applyDelayed(u snapshot.Update, delay time.Duration) {
	if v.typ.DelayRemovals {
		v.removals.sweep()
		v.noteAdded(u.Wildcard, u.Changed)
		v.delay(&u, delay)
	}
	if names := v.servedByWildcard(&u); len(names) > 0 {
		v.builder.Apply(snapshot.Update{Type: u.Type, Origin: u.Origin, Domain: u.Domain, Removed: names, Received: u.Received})
	}
	v.builder.Apply(u)
}

// servedByWildcard returns the names that u deletes from the wildcard and that the origin has not
// answered otherwise. Clients that subscribe to them got the wildcard's copy, so the deletion
// concerns them. The stream of names may never report it, because a SotW response deletes only what
// an earlier one on the same stream had (P65).
func (v *View) servedByWildcard(u *snapshot.Update) (names []string) {
	if !u.Wildcard {
		return nil
	}
	named := v.part(false)
	for _, name := range u.Removed {
		if v.names.Has(name) && v.builder.Has(name, true) && !named.Known(name) {
			names = append(names, name)
		}
	}
	return names
}

// noteAdded records the resources that an update brings. One that returns was never deleted.
func (v *View) noteAdded(wildcard bool, changed []*xds.Resource) {
	r, gen := &v.removals, uint64(1)
	if s := v.held.Load(); s != nil {
		gen = s.Gen + 1
	}
	for _, res := range changed {
		if at := (partName{wildcard, res.Name}); !v.omits(at) {
			delete(r.waiting, at)
		}
		if r.acked.Load() == 0 || v.builder.Has(res.Name, wildcard) || v.builder.Has(res.Name, !wildcard) {
			continue
		}
		put(&r.added, res.Name, gen)
		r.anyAdded.Store(true)
	}
}

// delay removes from an update the deletions that have to wait.
func (v *View) delay(u *snapshot.Update, delay time.Duration) {
	r := &v.removals
	all := u.Removed // the caller owns the array
	u.Removed = nil
	for _, name := range all {
		at := partName{u.Wildcard, name}
		waits := r.waiting[at] != nil
		_, added := r.added[name]
		if !waits && (delay <= 0 || added || !v.builder.Retain(name, u.Wildcard)) {
			if !v.builder.Has(name, !u.Wildcard) {
				delete(r.added, name)
			}
			u.Removed = append(u.Removed, name)
			continue
		}
		if !waits {
			r.wait(at, time.Now())
		}
	}
	u.Errors = without(u.Errors, func(err *xds.ResourceError) bool {
		w := r.waiting[partName{u.Wildcard, err.Name}]
		if w != nil {
			w.err = err
		}
		return w != nil
	})
}

// remove applies the deletions that have waited for delay. It reports whether there is a new
// snapshot. That repeats the version of the one before (P61).
func (v *View) remove(now time.Time, delay time.Duration, stateGen uint64) bool {
	r := &v.removals
	r.sweep()
	if len(r.waiting) == 0 || now.Before(r.oldest.Add(delay)) {
		return false
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
	for _, wildcard := range []bool{true, false} {
		origin, domain := v.part(wildcard).Origin()
		// Partial: it is no response, so it says nothing about the rest (P67).
		u := snapshot.Update{Type: v.typ.URL, Origin: origin, Domain: domain, Wildcard: wildcard, Partial: true, Received: now}
		for at, w := range due {
			switch {
			case at.wildcard != wildcard:
				continue
			case v.omits(at): // the origin did not delete it
				v.builder.Forget(v.names.Remove(at.name), at.name)
				changed = true
				continue
			case w.err != nil:
				u.Errors = append(u.Errors, w.err)
			}
			u.Removed = append(u.Removed, at.name)
		}
		v.dropNotRequested(&u)
		if len(u.Removed) == 0 {
			continue
		}
		slices.Sort(u.Removed)
		v.applyDelayed(u, 0)
		changed = true
	}
	return changed && v.snapshot(stateGen)
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
		maps.DeleteFunc(r.waiting, func(at partName, _ *waiting) bool { return at.wildcard })
		clear(r.added)
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

// remove applies the deletions that have waited long enough.
func (g *Group) remove(now time.Time) {
	delay := g.removalDelay()
	for _, v := range g.views {
		if v.typ.DelayRemovals && v.remove(now, delay, g.gen+1) {
			g.publishSoon(now)
		}
	}
}

// expireTTLs drops the resources whose TTL has ended (P62) and publishes that at once: new
// clients do not get them. A client that has one ends the TTL itself.
func (g *Group) expireTTLs(now time.Time) {
	for _, v := range g.views {
		if n := v.builder.Expire(now); n > 0 {
			v.metrics.Dropped[telemetry.Expired].Add(n)
			if v.snapshot(g.gen + 1) {
				g.publishSoon(now)
				g.urgent = true
			}
		}
	}
}

// nextExpiry returns when the next TTL ends; zero: none will.
func (g *Group) nextExpiry() (first time.Time) {
	for _, v := range g.views {
		if at := v.builder.NextExpiry(); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}
