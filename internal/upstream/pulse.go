package upstream

import (
	"context"
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
)

// pulse follows whether the process runs. Any goroutine.
type pulse struct {
	most time.Duration

	mu      sync.Mutex
	last    time.Time // when it was seen to; zero: nobody looks
	listens time.Time // until then the origins get time
}

// run looks until ctx ends.
func (p *pulse) run(ctx context.Context) {
	p.mu.Lock()
	p.last = time.Now()
	p.mu.Unlock()
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.beat(time.Now())
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
	}
	if now.After(p.last) {
		p.last = now
	}
	return p.listens
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
