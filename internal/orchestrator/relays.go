package orchestrator

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
)

// relays are the subscribers that are other relays of the cluster. The key's owner serves them what
// origins said to it, and nothing else: neither what is stored, nor what another relay brought. So no
// two relays confirm to each other what no origin says any more.
type relays struct {
	count int // of subscribers; the group's goroutine owns it

	// endAt is when the relays are refused, because the last attempt at every origin failed; zero: an
	// origin serves the key. The group's goroutine owns it.
	endAt time.Time
	// refusal is why relays are refused; nil: they are not. Any goroutine reads it.
	refusal atomic.Pointer[refusal.Refusal]
}

// originsLostFor is how long every origin has to fail before the other relays of a key use another
// source. If nothing is held, they do at once.
const originsLostFor = 5 * time.Second

// publishToRelays makes the part of the State that origins said the State for other relays, and wakes
// them.
func (g *Group) publishToRelays() {
	if g.relays.count == 0 {
		return
	}
	g.relayState.Store(g.content.FromOrigins(g.id, g.state.Load()))
	for ct := range g.subscribers {
		if ct.client.Relay && !ct.ended {
			ct.waker.Wake()
		}
	}
}

// countRelay counts a relay's type that subscribed or left. Without relays there is no State for them.
func (g *Group) countRelay(ct *clientType, n int) {
	if !ct.client.Relay {
		return
	}
	switch g.relays.count += n; {
	case g.relays.count == 0:
		g.relayState.Store(nil)
	case n > 0 && g.relays.count == 1: // it is woken once it has requested something
		g.relayState.Store(g.content.FromOrigins(g.id, g.state.Load()))
	}
}

// updateRelays refuses other relays once no origin has served the key for originsLostFor, until an
// origin serves it again. They use the second member then, and so does this relay.
func (g *Group) updateRelays(now time.Time) {
	r, s := &g.relays, g.reachStatus()
	switch {
	case s.Connected && !s.Relayed:
		r.endAt = time.Time{}
		r.refusal.Store(nil)
		return
	case !s.Failed:
	case !g.content.Holds():
		r.endAt = now
	case r.endAt.IsZero():
		r.endAt = now.Add(originsLostFor)
	}
	if r.endAt.IsZero() || now.Before(r.endAt) || r.refusal.Load() != nil {
		return
	}
	r.refusal.Store(refusal.New(codes.Unavailable, telemetry.OriginUnreachable, "key %s: this relay reaches no origin", g.key))
	for ct := range g.subscribers {
		if ct.client.Relay && !ct.ended {
			ct.ended = true
			ct.client.End(r.refusal.Load())
		}
	}
}
