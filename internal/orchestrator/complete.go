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
	stream *time.Time // openedAt of the stream that brought the last response
}

const (
	// completeAfter is how long no response has added a name when the answer is complete.
	completeAfter = 3 * time.Second
	// completeLatest is how long after the first response the answer is complete in any
	// case.
	completeLatest = 15 * time.Second
)

// note takes account of a response, which came on the stream that was opened then, before
// b applies it. Each stream begins its answer anew.
func (c *completion) note(b *xds.Builder, u *xds.Update, stream *time.Time) {
	switch now := time.Now(); {
	case !u.Wildcard:
	case !u.Partial:
		*c = completion{latest: now}
	case c.latest.IsZero() || !c.at.IsZero() && stream != c.stream:
		*c = completion{at: now.Add(completeAfter), latest: now.Add(completeLatest), stream: stream}
	case !c.at.IsZero() && b.Adds(u):
		if c.at = now.Add(completeAfter); c.at.After(c.latest) {
			c.at = c.latest
		}
	}
}

// complete publishes which answers to wildcards are complete by now. While the stream is
// down the rest cannot come, so the wait goes on. A new stream has completeLatest for its
// first response.
func (g *Group) completeWildcards(now time.Time) {
	for _, v := range g.views {
		c := &v.completion
		if c.at.IsZero() || now.Before(c.at) {
			continue
		}
		if l := v.at(true); l != nil {
			opened := l.openedAt.Load()
			if !l.connected() || opened != c.stream && now.Before(opened.Add(completeLatest)) {
				c.at = now.Add(completeAfter)
				continue
			}
		}
		c.at = time.Time{}
		v.builder.Complete()
		if v.snapshot(g.gen + 1) {
			g.publishSoon(now)
		}
		if v.storeWriter != nil {
			v.storeWriter.completed()
		}
	}
}
