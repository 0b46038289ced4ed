package upstream

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// That an origin ends a stream is nothing special (P54), and its stream is opened
// again within a second. An origin that goes on doing so soon after it has answered
// looks well by all else: it is not away, and what is held is as it says. But each
// stream costs it a whole answer, and what changes comes late.
const (
	// shortLived is a stream that ended sooner, after a response.
	shortLived = 30 * time.Second
	// manyShort in a row of one key are what is told: all keys have one each where an
	// origin is restarted.
	manyShort = 3
	// countEvery is how often it is told, and how long no stream may end for it to be
	// over.
	countEvery = time.Minute
)

// endings counts the streams of an origin that ended soon.
type endings struct {
	log    *slog.Logger
	signal chan struct{} // one slot: it has begun

	mu    sync.Mutex
	from  time.Time // of what recent counts; zero: nothing
	n     int       // since from
	total int       // of those that were told
	since time.Time // zero: nothing is told
	last  error
}

func newEndings(log *slog.Logger) *endings {
	return &endings{log: log, signal: make(chan struct{}, 1)}
}

// add counts one that ended soon, by this error: so many in a row of its key.
func (e *endings) add(err error, inARow int, now time.Time) {
	e.mu.Lock()
	if e.since.IsZero() && now.Sub(e.from) > countEvery {
		e.from, e.n = now, 0
	}
	e.n++
	e.last = err
	begins := e.since.IsZero() && inARow >= manyShort
	if begins {
		e.since = now
	}
	e.mu.Unlock()
	if begins {
		e.signal <- struct{}{} // run has taken the one before
	}
}

// run tells until ctx ends.
func (e *endings) run(ctx context.Context) {
	for {
		select {
		case <-e.signal:
		case <-ctx.Done():
			return
		}
		for e.tell() {
			sleep(ctx, countEvery)
			if ctx.Err() != nil {
				return
			}
		}
	}
}

// tell tells of what ended since it did last; false: nothing did, and it is over.
func (e *endings) tell() bool {
	e.mu.Lock()
	n, err, since := e.n, e.last, e.since
	e.n = 0
	e.total += n
	total := e.total
	if n == 0 {
		e.since, e.from, e.total, e.last = time.Time{}, time.Time{}, 0, nil
	}
	e.mu.Unlock()
	if n == 0 {
		e.log.Info("origin ends streams no more", "after", time.Since(since).Round(time.Millisecond), "ended", total)
		return false
	}
	e.log.Warn("origin keeps ending streams soon after it has answered", "ended", n, "within", countEvery, "error", err)
	return true
}
