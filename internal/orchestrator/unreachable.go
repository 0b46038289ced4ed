package orchestrator

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// updateReachability reads the status of the streams. It decides whether the origin counts as
// unreachable (P53), and whether the last known good is served (P66).
func (g *Group) updateReachability(now time.Time) {
	for _, l := range g.upstreams() {
		l.seen = l.status.Load()
	}
	s, waits := g.reachStatus(), g.subscribes() && !g.responded()
	if !waits || s.Connected != g.wasOpen {
		g.answerBy = time.Time{}
	}
	g.wasOpen = s.Connected
	if waits && g.answerBy.IsZero() && g.opts.FirstAnswerTimeout > 0 {
		g.answerBy = now.Add(g.opts.FirstAnswerTimeout)
	}
	late := !g.answerBy.IsZero() && !now.Before(g.answerBy)
	// What is being read may be all that clients need.
	failed := s.Failed && (!g.loading || late)
	excluding := slices.ContainsFunc(g.upstreams(), func(h *upstreamHandle) bool { return h.source.Excluding() })
	g.unreachable = g.subscribes() && !s.Connected && (failed || late && !excluding)
	g.serveStored = g.unreachable || late
	if g.askForSeeds(now); g.seeding { // they may be all that clients need
		g.unreachable, g.serveStored = false, false
	}
	g.refusalLogged = g.refusalLogged && !g.responded()
}

// updateRefusals tells subscribers whether the relay has anything that they want while the origin
// is unreachable (P53).
func (g *Group) updateRefusals() {
	changed := g.toCheck
	g.toCheck = nil
	if !g.unreachable {
		g.reported = nil
		if g.refusal.Swap(nil) != nil {
			for ct := range g.subscribers {
				g.setRefused(ct, nil)
			}
		}
		return
	}
	// Many subscribers have the same type and subscription: each pair is checked once.
	type typeSubscription struct {
		typ *groupType
		sub *snapshot.Subscription
	}
	has := make(map[typeSubscription]bool)
	if s := g.reachStatus(); s != g.reported {
		g.reported = s
		g.refusal.Store(nil) // the reason may have changed
		changed = slices.Collect(maps.Keys(g.subscribers))
	}
	for _, ct := range changed {
		if !ct.known || ct.ended || ct.joined == nil {
			continue
		}
		of := typeSubscription{ct.joined, ct.sub}
		is, known := has[of]
		if !known {
			is = ct.sub.Empty() || ct.joined.content.Has(ct.sub) || !attempted(g.reported, ct)
			has[of] = is
		}
		if is {
			g.setRefused(ct, nil)
		} else {
			g.setRefused(ct, g.refuse(ct.typ))
		}
	}
}

// attempted reports whether the failed attempt requested what a subscriber wants. An attempt that
// could not reach the origin counts for everything.
func attempted(s *upstream.Status, ct *clientType) bool {
	if s.Carried == nil {
		return true
	}
	t := s.Carried.Of(ct.typ)
	for name := range ct.sub.Names.All() {
		if !t.Names.Has(name) {
			return false
		}
	}
	return t.Wildcard || !ct.sub.Wildcard
}

// setRefused tells a subscriber why it is refused. With nil it tells a refused subscriber that it
// is accepted again.
func (g *Group) setRefused(ct *clientType, r *refusal.Refusal) {
	if r != nil || ct.refused {
		ct.refused = r != nil
		ct.client.setUnavailable(ct, r)
	}
}

// refuse returns the refusal of clients because no origin is reachable. It ends a stream if the
// relay has nothing for any of the stream's types. typ is a type for which the relay has nothing.
func (g *Group) refuse(typ xds.TypeURL) *refusal.Refusal {
	if r := g.refusal.Load(); r != nil {
		return r
	}
	s := g.reported
	why := "no upstream stream was opened within upstream.first_answer_timeout"
	if s.Err != nil {
		why = redact.Text(s.Err.Error()) // clients and operators read it
	}
	of := ""
	if s.Origin != "" {
		of = "origin " + s.Origin + ": "
	}
	const problem = "the relay has none of the requested resources, and no origin answers"
	r := refusal.New(codes.Unavailable, telemetry.OriginUnreachable, "key %s: %s: %s%s", g.key, problem, of, why)
	r.Key = g.key.String()
	g.refusal.Store(r)
	if !g.refusalLogged {
		g.refusalLogged = true
		args := []any{"type", typ, "origin", s.Origin}
		if !s.Logged {
			args = append(args, "error", why)
		}
		g.log.Warn("clients refused: "+problem, args...)
	}
	return r
}
