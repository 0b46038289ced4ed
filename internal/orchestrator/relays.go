package orchestrator

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/orchestrator/content"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// relays are the subscribers that are other relays of the cluster. The key's owner serves them what
// origins said to it, and nothing else: neither what is stored, nor what another relay brought. So no
// two relays confirm to each other what no origin says any more.
type relays struct {
	all map[*clientType]struct{} // the group's goroutine owns it

	// opened is when the stream to the origin that serves the key was opened; zero: no origin does, or
	// it has not responded.
	// The group's goroutine owns it.
	opened time.Time
	// late: that stream has been open for namesAnsweredBy.
	late bool
	// streams are the numbers of the key's streams. The group's goroutine owns it.
	streams [2]uint64

	// endAt is when the relays are refused, because the last attempt at every origin failed; zero: an
	// origin serves the key. The group's goroutine owns it.
	endAt time.Time
	// retryAt is until when relays are refused even if another relay serves the key; zero: that is over.
	// The group's goroutine owns it.
	retryAt time.Time
	// refusal is why relays are refused; nil: they are not. Any goroutine reads it.
	refusal atomic.Pointer[refusal.Refusal]
}

// originsLostFor is how long every origin has to fail before the other relays of a key use another
// source. If nothing is held, they do at once.
const originsLostFor = 5 * time.Second

// retryOriginsAfter is for how long relays are refused at least.
const retryOriginsAfter = 10 * time.Second

// namesAnsweredBy is how long after the origin's stream was opened names without an answer count as
// answered for other relays.
const namesAnsweredBy = 5 * time.Second

// publishToRelays makes the part of the State that origins said the State for other relays. It wakes
// those that have requested something.
func (g *Group) publishToRelays() {
	if len(g.relays.all) == 0 {
		return
	}
	g.relayState.Store(g.content.FromOrigins(g.id, g.state.Load(), g.originStream, g.relays.late))
	for ct := range g.relays.all {
		if !ct.ended && !ct.sub.Empty() {
			ct.waker.Wake()
		}
	}
}

// addRelay adds a relay's type that subscribed. The first one makes the step publish a State for relays.
func (g *Group) addRelay(ct *clientType) {
	if g.relays.all[ct] = struct{}{}; len(g.relays.all) == 1 {
		g.content.ChangeSource()
	}
}

// removeRelay removes a relay's type. Without relays there is no State for them.
func (g *Group) removeRelay(ct *clientType) {
	if delete(g.relays.all, ct); len(g.relays.all) == 0 {
		g.relayState.Store(nil)
	}
}

// lateAt is when names without an answer count as answered.
func (r *relays) lateAt() time.Time { return r.opened.Add(namesAnsweredBy) }

// next is when time alone changes something; zero: never.
func (r *relays) next() time.Time {
	switch {
	case !r.endAt.IsZero() && r.refusal.Load() == nil:
		return r.endAt
	case len(r.all) > 0 && !r.late && !r.opened.IsZero():
		return r.lateAt()
	case r.refusal.Load() != nil:
		return r.retryAt
	}
	return time.Time{}
}

// updateRelays refuses other relays once no origin has served the key for originsLostFor, until an
// origin answers again. They use the second member then, and so does this relay. A relay that does not
// own the key does not try origins while it uses another relay, and no relay does while nobody asks for
// the key. So it does not refuse for ever then: once a relay asks for the key, it tries origins.
func (g *Group) updateRelays(now time.Time) {
	r, s := &g.relays, g.reachStatus()
	if !now.Before(r.retryAt) {
		r.retryAt = time.Time{}
	}
	switch {
	case s.Connected && !s.Relayed && s.Responded:
		r.endAt = time.Time{}
		r.refusal.Store(nil)
		g.setOpened(s.OpenedAt, now)
		return
	case r.refusal.Load() != nil && r.retryAt.IsZero() && (s.Connected && s.Relayed && !g.owns() || !s.Connected && !s.Failed):
		r.endAt = time.Time{}
		r.refusal.Store(nil)
	case !s.Failed:
	case !g.content.Holds():
		r.endAt = now
	case r.endAt.IsZero():
		r.endAt = now.Add(originsLostFor)
	}
	g.setOpened(time.Time{}, now)
	if r.endAt.IsZero() || now.Before(r.endAt) || r.refusal.Load() != nil {
		return
	}
	r.retryAt = now.Add(retryOriginsAfter)
	r.refusal.Store(refusal.New(codes.Unavailable, telemetry.OriginUnreachable, "key %s: this relay reaches no origin", g.key))
	g.endRelays(r.refusal.Load())
}

// endRelays ends the streams of the other relays that have joined.
func (g *Group) endRelays(why *refusal.Refusal) {
	for ct := range g.relays.all {
		if !ct.ended {
			ct.ended = true
			ct.client.End(why)
		}
	}
}

// Seed returns what is held of a key, for another relay that reaches no origin. Any goroutine.
func (r *Registry) Seed(key xds.Key) (out []*snapshot.Snapshot) {
	g := r.Group(key)
	if g == nil {
		return nil
	}
	for _, t := range g.allTypes() {
		if s := t.content.Newest(); s != nil && (s.Settled || s.Stale || !s.Answered && s.Len() > 0) { // not a part of an answer
			out = append(out, s)
		}
	}
	return out
}

// setOpened records when the stream to the origin was opened, and whether that was long ago.
func (g *Group) setOpened(at, now time.Time) {
	r, streams := &g.relays, [2]uint64{}
	for i, h := range g.upstreams() {
		streams[i] = h.seen.Stream
	}
	r.opened = at

	late := !at.IsZero() && !now.Before(r.lateAt())
	if late != r.late || streams != r.streams {
		r.late, r.streams = late, streams
		g.content.ChangeSource()
	}
}

// originStream returns the number of the open stream to an origin that carries a part of a type; 0:
// there is none.
func (g *Group) originStream(of *content.TypeContent, part snapshot.Scope) uint64 {
	for _, t := range g.allTypes() {
		if t.content == of {
			if h := t.streamOf(part == snapshot.ByWildcard); h != nil && !h.seen.Relayed {
				return h.seen.Stream
			}
		}
	}
	return 0
}
