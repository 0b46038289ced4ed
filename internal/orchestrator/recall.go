package orchestrator

import (
	"log/slog"
	"strings"
	"time"

	"xdsrelay/internal/xds"
)

// recall serves what is stored of what clients ask for and nothing is known of (P66): while
// no origin can be reached, or the open stream has brought no response for
// first_answer_timeout. The origin's answers replace it name by name.
func (g *Group) recall(now time.Time) {
	if !g.serveStored {
		g.recallDue, g.recallLogged = true, false
		return
	}
	if !g.recallDue {
		return
	}
	g.recallDue = false
	var types []string
	resources := 0
	for _, v := range g.views {
		stored := v.stored.Load()
		if stored == nil {
			continue
		}
		updates := v.missing(stored)
		if len(updates) == 0 {
			continue
		}
		for _, u := range updates {
			v.builder.Recall(u)
			resources += len(u.Changed)
		}
		v.snapshot(g.gen + 1)
		g.publishSoon(now)
		g.urgent = true
		types = append(types, v.typ.Label())
	}
	if len(types) == 0 {
		return
	}
	level, why := slog.LevelDebug, "the origin says nothing"
	if g.unreachable {
		why = "no origin can be reached"
	}
	if !g.recallLogged {
		g.recallLogged, level = true, slog.LevelWarn
	}
	g.log.Log(g.ctx, level, "served from the last known good: "+why, "types", strings.Join(types, " "), "resources", resources)
}

// lacking is what of the stored snapshot is asked for and not known, as updates of the
// origin that said it. A client that asks for a name which only the wildcard brought gets
// that.
func (v *View) missing(stored *xds.Snapshot) (out []xds.Update) {
	held := v.held.Load()
	update := func(wild bool) xds.Update {
		return xds.Update{Type: v.typ.URL, Origin: stored.Origin, Version: stored.Given(), Wildcard: wild, Received: stored.Received}
	}
	wild := v.wildcard && stored.Answered && !answered(held)
	if wild {
		u := update(true)
		for r := range stored.Part(true).Resources {
			if r.Storable() {
				u.Changed = append(u.Changed, r)
			}
		}
		out = append(out, u)
	}
	u := update(false)
	taken := make(map[string]bool)
	for name := range v.names.All() {
		if held.Part(false).Known(name) || held.Part(true).Held(name) != nil {
			continue
		}
		for _, n := range append(stored.Linked(name), name) {
			r := stored.Part(false).Held(n)
			if r == nil && !wild {
				r = stored.Part(true).Held(n)
			}
			if r.Storable() && !taken[n] {
				taken[n] = true
				u.Changed = append(u.Changed, r)
			}
		}
	}
	if len(u.Changed) > 0 {
		out = append(out, u)
	}
	return out
}

// dropStored forgets what was stored and is not to be served any more: it is older than
// store.max_age, or a client acknowledged what took its place on disk.
func (g *Group) dropStored(now time.Time) {
	for typ, s := range g.stored {
		v := find(g.views, typ)
		old := !s.Until.IsZero() && !now.Before(s.Until)
		if !old && (v == nil || v.storeWriter.newest.Load() == nil) {
			continue
		}
		delete(g.stored, typ)
		if v != nil {
			v.stored.Store(nil)
		}
	}
}

// countStale follows how many types are served from the store, and tells when none is any
// more.
func (g *Group) countStale() {
	n := 0
	for _, v := range g.views {
		if s := v.held.Load(); s != nil && s.Stale {
			n++
		}
	}
	if n == 0 && g.staleTypes > 0 {
		g.log.Info("nothing is served from the last known good any more: the origin has spoken")
	}
	g.opts.Metrics.Stale.Add(n - g.staleTypes)
	g.staleTypes = n
}
