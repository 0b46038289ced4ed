package orchestrator

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"xdsrelay/internal/store"
	"xdsrelay/internal/xds"
)

// recall serves a key from the last known good while no origin can be reached: only then, since what is on disk is older than what the origin has, and may be older
// than what clients have from another replica. It is asked for what the origin has
// not spoken of; what is held always counts more. Once an origin answers, its word
// takes the place of what was recalled, and only differences go on, as when another
// origin takes over (P55).
type recall struct {
	// Owned by the group's goroutine.
	records map[xds.TypeURL]*remembered // of the types that were looked for; nil: there is none
	loading *reading                    // nil: nothing is being read
	failed  int                         // times in a row that something could not be read
	due     bool                        // something may have been asked for since
	stale   int                         // views that are
	told    bool                        // in this outage
	served  time.Time                   // since when something of it is; zero: nothing is
	spoken  bool                        // the origin has since
	until   time.Time                   // from when some of what was recalled is too old; zero: never
	look    time.Time                   // when what is on disk may be another matter; zero: it is not
	weigh   time.Time                   // when what was recalled by a clock that may be wrong is held against it again; zero: nothing was
}

// remembered is a record with its resources by all that they go by.
type remembered struct {
	*store.Record
	wild, named map[string]*xds.Resource
	until       time.Time // zero: for ever
	guess       bool      // by a clock that is wrong, or was
}

func remember(r *store.Record, until time.Time, guess bool) *remembered {
	out := &remembered{Record: r, wild: make(map[string]*xds.Resource), named: make(map[string]*xds.Resource), until: until, guess: guess}
	for _, e := range r.Entries {
		into := out.named
		if e.Wild {
			into = out.wild
		}
		into[e.Resource.Name] = e.Resource
		for _, h := range e.Resource.Handles() {
			if into[h] == nil {
				into[h] = e.Resource
			}
		}
	}
	return out
}

// tooOld reports whether there is a record that is not to be served any more.
func (r *remembered) tooOld(now time.Time) bool {
	return r != nil && !r.until.IsZero() && !now.Before(r.until)
}

// weigh holds a record of a time that is to come against the clock as it is now.
func (g *Group) weigh(rec *remembered) {
	if rec != nil && rec.guess {
		var until time.Time
		until, rec.guess = g.opts.Store.Expires(rec.Record)
		rec.until = earlier(rec.until, until)
	}
}

// weighAgain does so with what was recalled, for as long as the clock may be wrong.
func (g *Group) weighAgain(now time.Time) {
	r := &g.recall
	r.weigh = time.Time{}
	for _, v := range g.views {
		if v.guessed == nil {
			continue
		}
		if g.weigh(v.guessed); !v.staleUntil.IsZero() {
			v.staleUntil = earlier(v.staleUntil, v.guessed.until)
			r.until = earlier(r.until, v.guessed.until)
		}
		if !v.guessed.guess || v.staleUntil.IsZero() {
			v.guessed = nil
			continue
		}
		r.weigh = now.Add(lookEvery)
	}
}

// lookEvery is how often it is looked whether what is on disk and may not be served
// now may be later: it could not be read, or is too old by a clock that is set right.
const lookEvery = time.Minute

// What cannot be read is tried again after a second, and then after twice as long each
// time. Clients wait for as many tries: a disk or a table of files that is in trouble
// for a moment is to send nobody away, and one that is gone is to keep nobody.
const (
	lookSoon = time.Second
	maxTries = 5
)

// recalling reports whether it is being found out what there is to serve, and is to be
// waited for.
func (r *recall) recalling() bool {
	if r.loading != nil {
		return !r.loading.hung
	}
	return r.failed > 0 && r.failed < maxTries
}

// fruitless are the types that were looked for and of which nothing may be served, or
// not yet.
func (r *recall) fruitless() map[xds.TypeURL]bool {
	out := make(map[xds.TypeURL]bool)
	if r.loading != nil {
		for _, typ := range r.loading.types {
			out[typ] = true
		}
	}
	for typ, rec := range r.records {
		if rec == nil {
			out[typ] = true
		}
	}
	return out
}

// read takes over what was read, unless the origin has spoken since it was looked for:
// there may be something newer on disk.
func (r *recall) read(l *loaded, now time.Time) {
	r.loading, r.due = nil, true
	if r.records == nil {
		return
	}
	maps.Copy(r.records, l.records)
	switch {
	case l.failed:
		r.look = now.Add(min(lookSoon<<min(r.failed, 10), lookEvery))
		r.failed++
	case r.look.IsZero(): // else there is more that could not be read
		r.failed = 0
	}
}

// recallAway reads what there is once no origin can be reached, and applies it to
// what is asked for and not known.
func (g *Group) recallAway(now time.Time) {
	r := &g.recall
	if g.opts.Store == nil {
		return
	}
	if !r.weigh.IsZero() && !now.Before(r.weigh) {
		g.weighAgain(now)
	}
	if !r.until.IsZero() && !now.Before(r.until) {
		g.tooOld(now)
	}
	if r.loading != nil {
		if l := r.loading.come(now); l != nil {
			r.read(l, now)
		}
	}
	if !g.away {
		r.due = true
		if slices.ContainsFunc(g.lines(), func(l *link) bool { return l.speaks(now) }) {
			r.records, r.told, r.failed, r.look = nil, false, 0, time.Time{}
		}
		return
	}
	if r.loading != nil && (r.records == nil || !r.due) {
		return
	}
	if r.records == nil {
		r.records = make(map[xds.TypeURL]*remembered)
		r.due = true
	}
	for typ, rec := range r.records {
		if g.weigh(rec); rec.tooOld(now) { // nothing of it may have been asked for yet
			r.records[typ], r.due = nil, true
		}
	}
	if r.loading == nil && !r.look.IsZero() && !now.Before(r.look) {
		g.lookAgain()
	}
	if !r.due {
		return
	}
	r.due = false
	if r.loading == nil {
		g.load()
	}
	if r.look.IsZero() && r.loading == nil {
		r.failed = 0 // nobody asks any more for what could not be read
		if g.mayChange() {
			r.look = now.Add(lookEvery)
		}
	}
	g.remindAll(r.records, now, "no origin can be reached", &r.told)
}

// remindAll applies of records what is asked for and not known. The first time in an outage is told.
func (g *Group) remindAll(records map[xds.TypeURL]*remembered, now time.Time, why string, told *bool) {
	var types []string
	resources := 0
	for _, v := range g.views {
		if n, any := g.remind(v, records[v.typ.URL], now); any {
			types, resources = append(types, v.typ.Label()), resources+n
		}
	}
	if len(types) == 0 {
		return
	}
	r := &g.recall
	if r.spoken = false; r.served.IsZero() {
		r.served = now
	}
	level := slog.LevelDebug
	if !*told {
		*told, level = true, slog.LevelWarn
	}
	g.log.Log(g.ctx, level, "served from the last known good: "+why, "types", strings.Join(types, " "), "resources", resources)
}

// back tells, once, that what was served from the last known good is the origin's word
// again, all of it.
func (g *Group) back(now time.Time) {
	r := &g.recall
	stale := func(v *view) bool { s := v.held.Load(); return s != nil && s.Stale }
	if r.served.IsZero() || !r.spoken || slices.ContainsFunc(g.views, stale) {
		return
	}
	g.log.Info("nothing is served from the last known good any more: the origin has spoken", "after", now.Sub(r.served).Round(time.Millisecond))
	r.served = time.Time{}
}

// load has another goroutine read the types that were not looked for yet.
func (g *Group) load() {
	r := &g.recall
	var types []xds.TypeURL
	for _, v := range g.views {
		if _, looked := r.records[v.typ.URL]; looked || !v.lacks() {
			continue
		}
		r.records[v.typ.URL] = nil
		if g.opts.Store.Has(g.key, v.typ.URL) {
			types = append(types, v.typ.URL)
		}
	}
	if len(types) == 0 {
		return
	}
	r.loading = g.fetch(g.ctx, types)
}

// lacks reports whether anything is asked for that is not known.
func (v *view) lacks() bool { return v.lacksAll() || v.lacksName() }

func (v *view) lacksAll() bool { return v.wildcard && !answered(v.held.Load()) }

func (v *view) lacksName() bool {
	held := v.held.Load()
	for name := range v.names.All() {
		if !held.Part(false).Known(name) {
			return true
		}
	}
	return false
}

// remind applies of a record what is asked for and not known, and reports how many resources that was, and whether there is
// another snapshot.
func (g *Group) remind(v *view, rec *remembered, now time.Time) (n int, any bool) {
	if g.weigh(rec); rec == nil || rec.tooOld(now) || v.move.Load() != nil {
		return 0, false
	}
	us := v.forgotten(rec)
	if len(us) == 0 {
		return 0, false
	}
	if s := v.held.Load(); s == nil || !s.Stale {
		v.staleUntil, v.guessed = time.Time{}, nil // that was of an outage before
	}
	for _, u := range us {
		v.builder.Recall(u)
	}
	v.snapshot(g.gen + 1)
	// A stream that was opened meanwhile may have asked without knowing of this, and
	// so would not be told what of it is gone: it is taken back, and the origin's
	// word is to come. One that opens from here on sees it. Of two, the other may be
	// open all the while.
	var late []xds.Update
	us = slices.DeleteFunc(us, func(u xds.Update) bool {
		is := v.at(u.Wildcard).connected()
		if is {
			late = append(late, u)
		}
		return is
	})
	if len(late) > 0 {
		v.builder.Recant(late...)
		v.snapshot(g.gen + 1)
		g.recall.due = true // should the stream come to nothing
	}
	if len(us) == 0 {
		return 0, false
	}
	for _, u := range us {
		n += len(u.Changed)
	}
	if v.keeper != nil {
		v.keeper.recalled.Store(rec.Confirmed.UnixNano())
	}
	v.staleUntil = earlier(v.staleUntil, rec.until)
	g.recall.until = earlier(g.recall.until, rec.until)
	if rec.guess && (v.guessed == nil || rec.Confirmed.Before(v.guessed.Confirmed)) {
		v.guessed = rec
		g.recall.weigh = earlier(g.recall.weigh, now.Add(lookEvery))
	}
	g.stale(now)
	g.urgent = true
	return n, true
}

// mayChange reports whether there is something on disk of which it may be another
// matter later whether it is served.
func (g *Group) mayChange() bool {
	for typ, rec := range g.recall.records {
		if rec == nil && g.opts.Store.Has(g.key, typ) {
			return true
		}
	}
	return false
}

// lookAgain has what was not to be served be looked for again.
func (g *Group) lookAgain() {
	r := &g.recall
	r.look, r.due = time.Time{}, true
	for typ, rec := range r.records {
		if rec == nil && g.opts.Store.Has(g.key, typ) {
			delete(r.records, typ)
		}
	}
}

// earlier is the earlier of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// tooOld lets go of what was recalled and is older than it may be (store.max_age):
// nobody is told that it is gone, and nobody new is given it.
func (g *Group) tooOld(now time.Time) {
	g.recall.until = time.Time{}
	for _, v := range g.views {
		if v.staleUntil.IsZero() || now.Before(v.staleUntil) {
			g.recall.until = earlier(g.recall.until, v.staleUntil)
			continue
		}
		v.staleUntil = time.Time{}
		if _, looked := g.recall.records[v.typ.URL]; looked {
			g.recall.records[v.typ.URL] = nil
			g.recall.due = true
		}
		if s := v.held.Load(); s == nil || !s.Stale {
			continue
		}
		v.builder.Recant()
		v.snapshot(g.gen + 1)
		g.stale(now)
		g.log.Warn("the last known good is older than store.max_age, and is not served any more", "type", v.typ.Label())
	}
}

// forgotten is what of a record is asked for and not known, as updates of the
// origin that said it. Who asks by a name that the wildcard brought gets that: there
// is nobody to ask for its own (P50), and what is on disk by name may be from long before, of a
// time when somebody asked for it, while who asks now has seen the wildcard's.
func (v *view) forgotten(rec *remembered) (out []xds.Update) {
	held := v.held.Load()
	update := func(wild bool) xds.Update {
		return xds.Update{Type: v.typ.URL, Origin: rec.Origin, Version: rec.Version, Wildcard: wild, Received: rec.Received}
	}
	wild := v.wildcard && rec.Wildcard && !answered(held)
	if wild {
		u := update(true)
		for _, e := range rec.Entries {
			if e.Wild {
				u.Changed = append(u.Changed, e.Resource)
			}
		}
		out = append(out, u)
	}
	u := update(false)
	taken := make(map[string]bool)
	for name := range v.names.All() {
		if held.Part(false).Known(name) || held.Part(true).Held(name) != nil || wild && rec.wild[name] != nil {
			continue
		}
		r := rec.named[name]
		if r == nil {
			r = rec.wild[name]
		}
		if r != nil && !taken[r.Name] {
			taken[r.Name] = true
			u.Changed = append(u.Changed, r)
		}
	}
	if len(u.Changed) > 0 {
		out = append(out, u)
	}
	return out
}

// countStale keeps the number of types that are served from the last known good.
func (g *Group) countStale() {
	n := 0
	for _, v := range g.views {
		if s := v.held.Load(); s != nil && s.Stale {
			n++
		}
	}
	g.opts.Metrics.Stale.Add(n - g.recall.stale)
	g.recall.stale = n
}
