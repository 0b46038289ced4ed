package orchestrator

import (
	"time"

	"xdsrelay/internal/xds"
)

// completion is when the answer of a delta origin to a wildcard counts as complete
// (P67). The origin may split it over several responses, and does not say which is the
// last one.
type completion struct {
	at     time.Time // zero: it is not waited for
	latest time.Time
}

const (
	// completeAfter is how long no response has added a name when the answer is complete.
	completeAfter = 3 * time.Second
	// completeLatest is how long after the first response the answer is complete in any
	// case.
	completeLatest = 15 * time.Second
)

// note takes account of an update before b applies it.
func (c *completion) note(b *xds.Builder, u *xds.Update) {
	switch now := time.Now(); {
	case !u.Wildcard:
	case !u.Partial:
		*c = completion{latest: now}
	case c.latest.IsZero():
		*c = completion{at: now.Add(completeAfter), latest: now.Add(completeLatest)}
	case !c.at.IsZero() && b.Adds(u):
		if c.at = now.Add(completeAfter); c.at.After(c.latest) {
			c.at = c.latest
		}
	}
}

// complete publishes which answers to wildcards are complete by now. While the stream is
// down the rest cannot come, so the wait goes on. A new stream has its time to answer.
func (g *Group) complete(now time.Time) {
	for _, v := range g.views {
		c := &v.completion
		if c.at.IsZero() || now.Before(c.at) {
			continue
		}
		switch l := v.at(true); {
		case l != nil && !l.connected():
			*c = completion{at: now.Add(completeAfter), latest: now.Add(completeLatest)}
			continue
		case l != nil && !l.spoken.Load() && now.Before(c.latest):
			c.at = now.Add(completeAfter)
			continue
		}
		c.at = time.Time{}
		v.builder.Complete()
		if v.snapshot(g.gen + 1) {
			g.stale(now)
		}
	}
}
