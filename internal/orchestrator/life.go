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
	if l.track != nil {
		m.track.Store(l.track)
	}
	if l.sub != nil {
		g.fresh = true
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
		g.interest.thaw(g.views)
	}
	if len(l.again) > 0 && m.view.askAgain(slices.Sorted(maps.Keys(l.again)), g.gen+1) {
		g.stale(time.Now())
	}
	if l.sub != nil || l.track != nil {
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
		v = newView(xds.TypeOf(m.typ), g.meters.Type(m.typ), &g.registry.past)
		v.keeper = newKeeper(g, v)
		g.setViews(append(slices.Clone(g.views), v))
	}
	m.view = v
	m.keeper.Store(v.keeper)
	v.members++
	if r := g.refuses(m.typ); r != nil {
		g.end(m, r)
	}
}

// makeRoom lets go of a type that merely waits for a stream, for one that is wanted. It
// reports false if there is none. What is on disk of it stays: it is not forgotten.
func (g *Group) makeRoom() bool {
	v := g.interest.waits()
	if v == nil {
		return false
	}
	g.interest.drop(v)
	g.stale(time.Now())
	g.letGo([]*view{v})
	g.setViews(slices.DeleteFunc(slices.Clone(g.views), func(o *view) bool { return o == v }))
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

// letGo ends the keeping of types that the group has nothing to do with any more. It
// may read the disk, which a group does not wait for.
func (g *Group) letGo(views []*view) {
	for _, v := range views {
		v.close()
		if v.keeper != nil {
			g.wg.Go(v.keeper.release)
		}
	}
}

func (g *Group) setViews(views []*view) {
	g.views = views
	g.types.Store(&views)
}

// settle draws the conclusions from all the mail that was read.
func (g *Group) settle(now time.Time) {
	if len(g.members) == 0 {
		// The last one left just now, or left before it was seen.
		g.idleSince, g.idleFrom = now, time.Time{}
		g.interest.freeze(g.views)
		for _, v := range g.views {
			if s := v.held.Load(); s != nil {
				s.Release() // who comes next may be long in coming
			}
		}
		return
	}
	g.idleSince = time.Time{}
	g.interest.update(g.views, now, g.settings().Linger)
}

// expire forgets what has lingered long enough, and the types that nobody has
// anything to do with any more.
func (g *Group) expire(now time.Time) {
	open := !g.reached.Load() || g.connected()
	switch {
	case open:
		g.interest.back(now, g.settings().Linger)
	case g.interest.open:
		g.interest.lost(now)
	}
	g.interest.open = open
	for v, gone := range g.interest.expire(g.views, now, g.settings().Limits.NamesPerKey, open) {
		g.changed = true
		if v.forget(gone.names, gone.wildcard, g.gen+1) {
			g.stale(now)
		}
	}
	unused := func(v *view) bool { return v.members == 0 && !v.asks() }
	if g.interest.frozen || !slices.ContainsFunc(g.views, unused) {
		return
	}
	if slices.ContainsFunc(g.views, func(v *view) bool { return unused(v) && v.held.Load() != nil }) {
		g.stale(now)
	}
	g.letGo(slices.DeleteFunc(slices.Clone(g.views), func(v *view) bool { return !unused(v) }))
	g.setViews(slices.DeleteFunc(slices.Clone(g.views), unused))
}

// holds reports whether there is anything to serve: a resource, or the origin's
// word that there is none. What nobody has wanted for long, and is kept since no origin
// can be reached, keeps nobody here who wants something else.
func (g *Group) holds() bool {
	return slices.ContainsFunc(g.views, func(v *view) bool { return v.any() && g.interest.holds(v) })
}

// any reports whether anything of a view is held.
func (v *view) any() bool {
	s := v.held.Load()
	return s.Len() > 0 || s.Stated() > 0 || s.Failed() > 0 || answered(s)
}

// proven is for how long an open stream has to stay so before it counts as an
// origin that can be reached again, unless the origin says something: one that
// accepts every stream and then fails it serves nobody.
const proven = time.Second

// wants reports whether the group asks for anything.
func (g *Group) wants() bool {
	return slices.ContainsFunc(g.lines(), func(l *link) bool { return len(l.sent.Types) > 0 })
}

// reach is what the group's streams say of whether the origin can be reached: it
// can if one is open, and if none is, an attempt that failed says that it cannot.
func (g *Group) reach() *link {
	for _, is := range []func(*upstream.Status) bool{
		func(s *upstream.Status) bool { return s.Connected },
		func(s *upstream.Status) bool { return s.Failed },
	} {
		for _, l := range g.lines() {
			if is(l.judged) {
				return l
			}
		}
	}
	return g.home()
}

// speaks reports whether a stream is open and has proven to be one.
func (l *link) speaks(now time.Time) bool {
	return l.judged.Connected && (l.heard == l.judged || !now.Before(l.provenAt))
}

// observe takes note of what the streams have come to, and of whether any origin
// can be reached.
func (g *Group) observe(now time.Time) {
	for _, l := range g.lines() {
		if s := l.status.Load(); s != l.judged {
			l.judged, l.provenAt = s, time.Time{}
			if s.Connected {
				l.provenAt = now.Add(proven)
			}
		}
	}
	s := g.reach().judged
	switch {
	case s.Connected || !g.wants():
		g.openBy = time.Time{}
	case g.openBy.IsZero() && g.opts.FirstAnswerTimeout > 0:
		g.openBy = now.Add(g.opts.FirstAnswerTimeout)
	}
	late := !g.openBy.IsZero() && !now.Before(g.openBy)
	g.away = g.wants() && !s.Connected && (s.Failed || late)
}

// refusal is why clients of a key have to go elsewhere. It is not changed.
type refusal struct {
	*fanout.Refusal
	// none are the types of which there is a file with nothing that may be served, some
	// those of which something is held that nobody here wants.
	none, some map[xds.TypeURL]bool
}

// refuses says why who asks for the type has to go elsewhere; nil: it may stay. Who
// asks for a type of which something is held, or on disk, has to be let in: what others
// of its key ask for, and is not there, says nothing of it (P16). Safe for concurrent use.
func (g *Group) refuses(typ xds.TypeURL) *fanout.Refusal {
	r := g.refusal.Load()
	switch {
	case r == nil, r.some[typ], g.opts.Store != nil && !r.none[typ] && g.opts.Store.Has(g.key, typ):
		return nil
	}
	return r.Refusal
}

// judge decides whether clients have to go elsewhere (P53): only if nothing at
// all is held and the origin cannot be reached. While nothing is wanted nobody
// tries to reach it, and what the last attempt came to says nothing.
func (g *Group) judge(now time.Time) {
	s, was, fresh := g.reach().judged, g.refusal.Load(), g.fresh
	g.fresh = false
	switch {
	case g.recall.recalling():
		g.refusal.Store(nil)
		return
	case !g.wants() || g.holds():
		g.refusal.Store(nil)
		g.refusing = false
		return
	case s.Connected:
		// A silent origin ends nothing, and must not refuse for ever.
		if (was != nil || g.refusing) && slices.ContainsFunc(g.lines(), func(l *link) bool { return l.speaks(now) }) {
			g.refusal.Store(nil)
			g.refusing = false
		}
		return
	case !g.away:
		g.refusal.Store(nil)
		g.refusing = false
		return
	case was != nil && g.told == s:
		if fresh {
			g.sendAway(was.Refusal)
		}
		return
	}
	g.told = s
	why := "no upstream stream could be opened within first_answer_timeout"
	if s.Err != nil {
		why = redact.Text(s.Err.Error()) // clients are told, and operators
	}
	of := ""
	if s.Origin != "" {
		of = "origin " + s.Origin + ": "
	}
	what := "nothing is held"
	if g.outdated() {
		what = "what was held is older than store.max_age"
	}
	r := fanout.Refuse(codes.Unavailable, telemetry.OriginUnreachable,
		"key %s: %s, and no origin can be reached: %s%s", g.key, what, of, why)
	r.Key = g.key.String()
	some := make(map[xds.TypeURL]bool)
	for _, v := range g.views {
		if v.any() {
			some[v.typ.URL] = true
		}
	}
	g.refusal.Store(&refusal{r, g.recall.fruitless(), some})
	g.sendAway(r)
	if !g.refusing {
		g.refusing = true
		args := []any{"origin", s.Origin}
		if !s.Told {
			args = append(args, "error", why)
		}
		g.log.Warn("clients are refused: "+what+", and no origin can be reached", args...)
	}
}

// outdated reports whether there is a last known good of what is asked for that may not
// be served any more.
func (g *Group) outdated() bool {
	return g.opts.Store != nil && slices.ContainsFunc(g.views, func(v *view) bool { return v.lacks() && g.opts.Store.TooOld(g.key, v.typ.URL) })
}

// sendAway ends the members who ask for something. Who has not said yet what it asks
// for is let be, if its type is one of which it may get something.
func (g *Group) sendAway(r *fanout.Refusal) {
	for m := range g.members {
		if !m.over && (!m.sub.Empty() || g.refuses(m.typ) != nil) {
			g.end(m, r)
		}
	}
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
