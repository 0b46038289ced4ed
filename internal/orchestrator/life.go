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
func (g *Group) applyMember(l memberChanges) {
	m := l.m
	if l.left {
		g.removeMember(m)
		return
	}
	if !m.known {
		g.addMember(m)
	}
	if m.ended {
		return
	}
	if l.sub != nil {
		g.unevaluated, g.recallDue = append(g.unevaluated, m), true
		before := wanted(g.views)
		m.view.subscribe(m, l.sub)
		now := wanted(g.views)
		// A limit that was lowered ends nobody whose change makes the key no larger.
		if limit := g.settings().Limits.NamesPerKey; limit > 0 && now > limit && now > before {
			m.view.subscribe(m, xds.Nothing)
			g.endMember(m, fanout.Refuse(codes.Unavailable, telemetry.LimitNamesPerKey,
				"key %s: %s: more than downstream.limits.names_per_key allows (%d)", g.key, m.typ, limit))
			return
		}
		g.interest.frozen = false
	}
	if len(l.again) > 0 && m.view.askAgain(slices.Sorted(maps.Keys(l.again)), g.gen+1) {
		g.publishSoon(time.Now())
	}
	if l.sub != nil {
		m.waker.Wake()
	}
}

// in takes a member in.
func (g *Group) addMember(m *member) {
	m.known = true
	g.members[m] = struct{}{}
	if m.node.UserAgent != g.representative.UserAgent { // P58
		g.otherUserAgents++
		g.opts.Metrics.MixedUserAgents.Inc()
	}
	v := find(g.views, m.typ)
	if v == nil {
		if limit := g.settings().Limits.TypesPerKey; limit > 0 && len(g.views) >= limit && !g.makeRoom() {
			g.endMember(m, fanout.Refuse(codes.Unavailable, telemetry.LimitTypesPerKey,
				"key %s: %s: more than downstream.limits.types_per_key allows (%d)", g.key, m.typ, limit))
			return
		}
		v = newView(xds.TypeOf(m.typ), g.meters.Type(m.typ), g.registry.history)
		v.storeWriter = newStoreWriter(g, v)
		if s := g.stored[m.typ]; s != nil {
			v.stored.Store(s.Snapshot)
		}
		g.setViews(append(slices.Clone(g.views), v))
	}
	m.view = v
	m.storeWriter.Store(v.storeWriter)
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
	g.publishSoon(time.Now())
	g.views[i].close()
	g.setViews(slices.Delete(slices.Clone(g.views), i, i+1))
	return true
}

// out lets a member go. From here on its Waker is not called.
func (g *Group) removeMember(m *member) {
	if !m.known {
		return // it left before the group saw it
	}
	m.known = false
	delete(g.members, m)
	if m.node.UserAgent != g.representative.UserAgent {
		g.otherUserAgents--
	}
	if m.view != nil {
		m.view.subscribe(m, xds.Nothing)
		m.view.members--
	}
}

// end ends a member's stream, which will leave by itself.
func (g *Group) endMember(m *member, r *fanout.Refusal) {
	m.ended = true
	m.waker.End(r)
}

func (g *Group) setViews(views []*View) {
	g.views = views
	g.types.Store(&views)
}

// settle draws the conclusions from all the mail that was read.
func (g *Group) countMembers(now time.Time) {
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
			g.publishSoon(now)
		}
	}
	unused := func(v *View) bool { return v.members == 0 && !v.subscribes() }
	if g.interest.frozen || !slices.ContainsFunc(g.views, unused) {
		return
	}
	for _, v := range g.views {
		if unused(v) {
			v.close()
			if v.held.Load() != nil {
				g.publishSoon(now)
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
func (g *Group) subscribes() bool {
	return slices.ContainsFunc(g.upstreams(), func(l *upstreamHandle) bool { return len(l.sent.Types) > 0 })
}

// reach is the status that says whether the origin can be reached: it can if a stream is
// open. If none is, an attempt that failed says that it cannot.
func (g *Group) reach() *upstream.Status {
	for _, is := range []func(*upstream.Status) bool{
		func(s *upstream.Status) bool { return s.Connected },
		func(s *upstream.Status) bool { return s.Failed },
	} {
		for _, l := range g.upstreams() {
			if is(l.seen) {
				return l.seen
			}
		}
	}
	return g.firstUpstream().seen
}

// observe finds out whether an origin can be reached, and whether what is stored is to be
// served.
func (g *Group) observe(now time.Time) {
	for _, l := range g.upstreams() {
		l.seen = l.status.Load()
	}
	s, waits := g.reach(), g.subscribes() && !g.responded()
	if !waits || s.Connected != g.wasOpen {
		g.answerBy = time.Time{}
	}
	g.wasOpen = s.Connected
	if waits && g.answerBy.IsZero() && g.opts.FirstAnswerTimeout > 0 {
		g.answerBy = now.Add(g.opts.FirstAnswerTimeout)
	}
	late := !g.answerBy.IsZero() && !now.Before(g.answerBy)
	g.unreachable = g.subscribes() && !s.Connected && (s.Failed || late)
	g.serveStored = g.unreachable || late
	g.refusing = g.refusing && !g.responded()
}

// judge tells members whether anything that they ask for can be had (P53).
func (g *Group) evaluate() {
	fresh := g.unevaluated
	g.unevaluated = nil
	if !g.unreachable {
		g.reported = nil
		if g.refusal.Swap(nil) != nil {
			for m := range g.members {
				g.setRefused(m, nil)
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
		if m.ended || m.view == nil {
			return
		}
		of := asked{m.view, m.sub}
		is, known := has[of]
		if !known {
			is = m.sub.Empty() || m.view.has(m.sub)
			has[of] = is
		}
		if is {
			g.setRefused(m, nil)
			return
		}
		g.setRefused(m, g.refuse(m.typ))
	}
	if s := g.reach(); s != g.reported {
		g.reported = s
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
func (g *Group) setRefused(m *member, r *fanout.Refusal) {
	if r != nil || m.refused {
		m.refused = r != nil
		m.waker.Lack(r)
	}
}

// refuse is the refusal of clients for lack of an origin. A stream ends by it if it has nothing
// of any type; typ is the first type of which there is nothing.
func (g *Group) refuse(typ xds.TypeURL) *fanout.Refusal {
	if r := g.refusal.Load(); r != nil {
		return r
	}
	s := g.reported
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
	case g.idleSince.IsZero() || g.idleSuspended():
		g.idleFrom = time.Time{}
		return false
	case g.idleFrom.IsZero():
		g.idleFrom = now
	}
	return !now.Before(g.idleFrom.Add(g.settings().IdleTTL))
}

// kept reports whether the time does not count against the key: what is held
// could not be had again (P52).
func (g *Group) idleSuspended() bool {
	return !g.connected() && g.holds()
}
