package upstream

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// A relay whose process is stopped, or has no processor for a while, does not listen:
// what has come meanwhile is still to be read, and of a large response the rest is still
// to come. That is no silence of the origin (P57), which gets as long again, absent_after
// at most.
const (
	// beatEvery is how often it is looked whether the process runs.
	beatEvery = time.Second
	// tooLate is from where on it did not: less is a matter of load.
	tooLate = time.Second
	// tellEvery is how often it is told that it did not, at most.
	tellEvery = 10 * time.Second
)

// pulse follows whether the process runs. Any goroutine.
type pulse struct {
	most time.Duration
	log  *slog.Logger

	mu      sync.Mutex
	last    time.Time     // when it was seen to; zero: nobody looks
	listens time.Time     // until then the origins get time
	missed  time.Duration // for how long it did not, that was not told yet
}

// run looks until ctx ends.
func (p *pulse) run(ctx context.Context) {
	p.mu.Lock()
	p.last = time.Now()
	p.mu.Unlock()
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	var told time.Time
	for {
		select {
		case <-tick.C:
			now := time.Now()
			p.beat(now)
			if now.Sub(told) >= tellEvery && p.tell() {
				told = now
			}
		case <-ctx.Done():
			return
		}
	}
}

// beat says that it runs now, and returns until when no silence says anything. Who has a
// timer asks, since that may be over sooner than run has looked.
func (p *pulse) beat(now time.Time) (listens time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last.IsZero() {
		return time.Time{}
	}
	if gap := now.Sub(p.last); gap > beatEvery+tooLate {
		p.listens = later(p.listens, now.Add(min(gap, p.most)))
		p.missed += gap
	}
	if now.After(p.last) {
		p.last = now
	}
	return p.listens
}

// tell tells that it did not run; false: it did.
func (p *pulse) tell() bool {
	p.mu.Lock()
	missed := p.missed
	p.missed = 0
	p.mu.Unlock()
	if missed > 0 {
		p.log.Warn("the relay did not run: it was stopped, or had no processor; origins get as long again for what they have not answered", "for", missed.Round(time.Millisecond).String(), "at_most", p.most.String())
	}
	return missed > 0
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
