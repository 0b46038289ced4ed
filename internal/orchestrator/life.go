package orchestrator

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
)

// read is what a member's letter does. Once it is done, no update can pass the
// member by, and it is woken whatever the State holds: what came before it was
// indexed woke it for nothing, or not at all.
func (g *Group) read(l mail) {
	m := l.m
	if l.left {
		g.out(m)
		return
	}
	if !m.known {
		g.in(m)
	}
	if m.over {
		return
	}
	if l.sub != nil {
		g.unjudged, g.recallDue = append(g.unjudged, m), true
		before := wanted(g.views)
		m.view.subscribe(m, l.sub)
		now := wanted(g.views)
		// A limit that was lowered ends nobody whose change makes the key no larger.
		if limit := g.settings().Limits.NamesPerKey; limit > 0 && now > limit && now > before {
			m.view.subscribe(m, xds.Nothing)
			g.end(m, fanout.Refuse(codes.Unavailable, telemetry.LimitNamesPerKey,
				"key %s: %s: more than downstream.limits.names_per_key allows (%d)", g.key, m.typ, limit))
			return
		}
		g.interest.frozen = false
	}
	if len(l.again) > 0 && m.view.askAgain(slices.Sorted(maps.Keys(l.again)), g.gen+1) {
		g.stale(time.Now())
	}
	if l.sub != nil {
		m.waker.Wake()
	}
}

// in takes a member in.
func (g *Group) in(m *member) {
	m.known = true
	g.members[m] = struct{}{}
	if m.node.UserAgent != g.rep.UserAgent { // P58
		g.unlike++
		g.opts.Metrics.MixedUserAgents.Inc()
	}
	v := find(g.views, m.typ)
	if v == nil {
		if limit := g.settings().Limits.TypesPerKey; limit > 0 && len(g.views) >= limit && !g.makeRoom() {
			g.end(m, fanout.Refuse(codes.Unavailable, telemetry.LimitTypesPerKey,
				"key %s: %s: more than downstream.limits.types_per_key allows (%d)", g.key, m.typ, limit))
			return
		}
		v = newView(xds.TypeOf(m.typ), g.meters.Type(m.typ), g.registry.history)
		v.keeper = newKeeper(g, v)
		if s := g.stored[m.typ]; s != nil {
			v.stored.Store(s.Snapshot)
		}
		g.setViews(append(slices.Clone(g.views), v))
	}
	m.view = v
	m.keeper.Store(v.keeper)
	v.members++
}

// makeRoom lets go of a type that nobody wants any more, for one that is wanted. It
// reports false if there is none. What is on disk of it stays.
func (g *Group) makeRoom() bool {
	i := slices.IndexFunc(g.views, func(v *View) bool { return v.members == 0 })
	if i < 0 {
		return false
	}
	g.interest.drop(g.views[i])
	g.stale(time.Now())
	g.views[i].close()
	g.setViews(slices.Delete(slices.Clone(g.views), i, i+1))
	return true
}

// out lets a member go. From here on its Waker is not called.
func (g *Group) out(m *member) {
	if !m.known {
		return // it left before the group saw it
	}
	m.known = false
	delete(g.members, m)
	if m.node.UserAgent != g.rep.UserAgent {
		g.unlike--
	}
	if m.view != nil {
		m.view.subscribe(m, xds.Nothing)
		m.view.members--
	}
}

// end ends a member's stream, which will leave by itself.
func (g *Group) end(m *member, r *fanout.Refusal) {
	m.over = true
	m.waker.End(r)
}

func (g *Group) setViews(views []*View) {
	g.views = views
	g.types.Store(&views)
}

// settle draws the conclusions from all the mail that was read.
func (g *Group) settle(now time.Time) {
	if len(g.members) == 0 {
		// The last one left just now, or left before it was seen.
		g.idleSince, g.idleFrom = now, time.Time{}
		g.interest.frozen = true
		for _, v := range g.views {
			if s := v.held.Load(); s != nil {
				s.Release() // who comes next may be long in coming
			}
		}
		return
	}
	g.idleSince = time.Time{}
}

// expire forgets what has lingered long enough, and the types that nobody has
// anything to do with any more.
func (g *Group) expire(now time.Time) {
	g.interest.update(g.views, now)
	g.interest.run(!g.interest.frozen && (!g.reached.Load() || g.connected()), now)
	for v, gone := range g.interest.expire(g.views, now, g.settings()) {
		g.changed = true
		if v.forget(gone.names, gone.wildcard, g.gen+1) {
			g.stale(now)
		}
	}
	unused := func(v *View) bool { return v.members == 0 && !v.asks() }
	if g.interest.frozen || !slices.ContainsFunc(g.views, unused) {
		return
	}
	for _, v := range g.views {
		if unused(v) {
			v.close()
			if v.held.Load() != nil {
				g.stale(now)
			}
		}
	}
	g.setViews(slices.DeleteFunc(slices.Clone(g.views), unused))
}

// holds reports whether there is anything to serve: a resource, or the origin's word that
// there is none.
func (g *Group) holds() bool {
	return slices.ContainsFunc(g.views, func(v *View) bool {
		s := v.held.Load()
		return s.Len() > 0 || s.Stated() > 0 || s.Failed() > 0 || answered(s)
	})
}

// wants reports whether the group asks for anything.
func (g *Group) wants() bool {
	return slices.ContainsFunc(g.lines(), func(l *link) bool { return len(l.sent.Types) > 0 })
}

// reach is the status that says whether the origin can be reached: it can if a stream is
// open. If none is, an attempt that failed says that it cannot.
func (g *Group) reach() *upstream.Status {
	for _, is := range []func(*upstream.Status) bool{
		func(s *upstream.Status) bool { return s.Connected },
		func(s *upstream.Status) bool { return s.Failed },
	} {
		for _, l := range g.lines() {
			if is(l.seen) {
				return l.seen
			}
		}
	}
	return g.home().seen
}

// observe finds out whether an origin can be reached, and whether what is stored is to be
// served.
func (g *Group) observe(now time.Time) {
	for _, l := range g.lines() {
		l.seen = l.status.Load()
	}
	s, waits := g.reach(), g.wants() && !g.spoken()
	if !waits || s.Connected != g.wasOpen {
		g.answerBy = time.Time{}
	}
	g.wasOpen = s.Connected
	if waits && g.answerBy.IsZero() && g.opts.FirstAnswerTimeout > 0 {
		g.answerBy = now.Add(g.opts.FirstAnswerTimeout)
	}
	late := !g.answerBy.IsZero() && !now.Before(g.answerBy)
	g.away = g.wants() && !s.Connected && (s.Failed || late)
	g.serving = g.away || late
	g.refusing = g.refusing && !g.spoken()
}

// judge tells members whether anything that they ask for can be had (P53).
func (g *Group) judge() {
	fresh := g.unjudged
	g.unjudged = nil
	if !g.away {
		g.told = nil
		if g.refusal.Swap(nil) != nil {
			for m := range g.members {
				g.lack(m, nil)
			}
		}
		return
	}
	// Members of a view share a subscription, and members of several views may.
	type asked struct {
		view *View
		sub  *xds.Subscription
	}
	has := make(map[asked]bool)
	check := func(m *member) {
		if m.over || m.view == nil {
			return
		}
		of := asked{m.view, m.sub}
		is, known := has[of]
		if !known {
			is = m.sub.Empty() || m.view.has(m.sub)
			has[of] = is
		}
		if is {
			g.lack(m, nil)
			return
		}
		g.lack(m, g.refuse(m.typ))
	}
	if s := g.reach(); s != g.told {
		g.told = s
		g.refusal.Store(nil) // the reason may be another one now
		for m := range g.members {
			check(m)
		}
		return
	}
	for _, m := range fresh {
		if m.known {
			check(m)
		}
	}
}

// lack tells a member, if that is news to it.
func (g *Group) lack(m *member, r *fanout.Refusal) {
	if r != nil || m.lacks {
		m.lacks = r != nil
		m.waker.Lack(r)
	}
}

// refuse is the refusal of clients for lack of an origin. A stream ends by it if it has nothing
// of any type; typ is the first type of which there is nothing.
func (g *Group) refuse(typ xds.TypeURL) *fanout.Refusal {
	if r := g.refusal.Load(); r != nil {
		return r
	}
	s := g.told
	why := "no upstream stream could be opened within first_answer_timeout"
	if s.Err != nil {
		why = redact.Text(s.Err.Error()) // clients are told, and operators
	}
	of := ""
	if s.Origin != "" {
		of = "origin " + s.Origin + ": "
	}
	r := fanout.Refuse(codes.Unavailable, telemetry.OriginUnreachable,
		"key %s: nothing is held or stored of what is asked for, and no origin can be reached: %s%s", g.key, of, why)
	r.Key = g.key.String()
	g.refusal.Store(r)
	if !g.refusing {
		g.refusing = true
		args := []any{"type", typ, "origin", s.Origin}
		if !s.Told {
			args = append(args, "error", why)
		}
		g.log.Warn("no origin can be reached, and nothing is held or stored of what clients ask for", args...)
	}
	return r
}

// has reports whether anything that a client with sub asks for is held, answered or stored.
func (v *View) has(sub *xds.Subscription) bool {
	held, stored := v.held.Load(), v.stored.Load()
	if sub.Wildcard && (answered(held) || answered(stored)) {
		return true
	}
	for name := range sub.Names.All() {
		if !held.Part(false).Silent(name) || serves(held, name) || serves(stored, name) {
			return true
		}
	}
	return false
}

// idle reports whether the key has been without members for long enough. The
// time counts anew once its origin is back: it was not to be had meanwhile.
func (g *Group) idle(now time.Time) bool {
	switch {
	case g.idleSince.IsZero() || g.kept():
		g.idleFrom = time.Time{}
		return false
	case g.idleFrom.IsZero():
		g.idleFrom = now
	}
	return !now.Before(g.idleFrom.Add(g.settings().IdleTTL))
}

// kept reports whether the time does not count against the key: what is held
// could not be had again (P52).
func (g *Group) kept() bool {
	return !g.connected() && g.holds()
}
