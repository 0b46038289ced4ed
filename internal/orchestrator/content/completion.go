package content

import (
	"time"

	"xdsrelay/internal/xds/snapshot"
)

// completion says when the answer of a delta origin to a wildcard counts as complete, and when it is
// settled (P67). The origin may split it over several responses, and does not say which is the last
// one. An origin that serves many keys may pause between them. So the answer is complete when no
// response has added a name for as long as the longest pause so far.
type completion struct {
	requested time.Time     // when the wildcard was assigned to its stream
	stream    uint64        // the stream that brought the newest response; 0: none did
	newest    time.Time     // when the newest response came
	added     time.Time     // when the newest response that added a name came, or the first one of the stream
	pause     time.Duration // the longest so far on the stream
	due       time.Time     // when it is complete or settled by time alone; zero: that takes a response
	whole     bool          // another relay brought the newest response, which is complete
	done      bool          // what the stream brought is complete, whatever earlier ones brought
}

const (
	// completeAfter is for how long at least no response has added a name when the answer is complete.
	completeAfter = time.Second
	// settledAfter is the same for a settled answer. It is longer because a resource too many does less
	// harm than one too few.
	settledAfter = 15 * time.Second
)

// note notes a response before b applies it. Each stream starts its answer again.
func (c *completion) note(b *snapshot.Builder, u *snapshot.Update, from Stream, now time.Time) {
	if !u.Wildcard || !u.Partial {
		c.done = c.done || u.Wildcard
		return
	}
	if from.Number != c.stream {
		c.stream, c.added, c.done = from.Number, now, false
		c.pause = min(now.Sub(from.OpenedAt), now.Sub(c.requested)) // since the request, which is the later one
	} else {
		c.pause = max(c.pause, now.Sub(c.newest))
		if b.AddsResources(u) {
			c.added = now
		}
	}
	c.newest, c.whole = now, u.Relayed
}

// WildcardAssigned records that a stream is about to request the wildcard.
func (t *TypeContent) WildcardAssigned(now time.Time) { t.completion = completion{requested: now} }

// Complete notes whether the answer to the wildcard is complete or settled by now. The stream s carries
// the wildcard. While it is closed, and before a new one has a response, the rest may be missing.
func (t *TypeContent) Complete(s Stream, now time.Time) {
	c, held := &t.completion, t.Newest()
	c.due = time.Time{}
	if held == nil || held.Settled && c.done {
		return
	}
	if !s.Open || s.Number != c.stream {
		t.builder.StreamEnded()
	} else {
		complete, settled := c.added.Add(max(c.pause, completeAfter)), c.added.Add(max(c.pause, settledAfter))
		if c.due = complete; c.whole || !now.Before(complete) {
			c.done = true
			t.content.sourceChanged = true
		}
		if held.Complete || c.done {
			t.builder.Complete()
		}
		if c.done {
			c.due = settled
		}
		if !now.Before(settled) {
			t.builder.Settle()
			c.due = time.Time{}
		}
	}
	t.snapshot()
}
