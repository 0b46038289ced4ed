package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// Stream is one key's conversation with the origins, for as long as the key
// lives.
type Stream struct {
	client *Client
	id     string
	node   []byte
	sink   Sink
	log    *slog.Logger

	// metrics of the key; fixed once Run runs.
	metrics *telemetry.Key

	// interest and who is to hear of it.
	mu     sync.Mutex
	newest *xds.Interest
	cells  []*cell

	wg sync.WaitGroup // of what Run has started

	// Owned by Run's goroutine.
	serving  *line
	begun    func()         // serving's attempt, yet to be made by Run's goroutine itself; nil: none
	inARow   int            // attempts of it that failed
	attempts int            // of any, since the last response
	tried    map[*site]bool // where an attempt failed, since the last response
	seekers  []*seeker      // of the origins preferred to serving's, by preference
	returned time.Time      // when serving's took over from another; zero: it did not
	fleeting map[*site]int  // returns in a row that did not last
	found    chan *line     // tried out, from their seekers
}

// NewStream makes the stream of a key; id is the key as people read it, node
// the representative's bytes, with the relay's client features already in it
// (P58). It starts nothing.
func (c *Client) NewStream(id string, node []byte, sink Sink) *Stream {
	return &Stream{
		client: c,
		id:     id,
		node:   node,
		sink:   sink,
		log:    c.opts.Log.With("key", id),
		tried:  make(map[*site]bool),
		found:  make(chan *line),

		fleeting: make(map[*site]int),
	}
}

// CountIn makes the stream count in the metrics of its key, instead of those
// of no key. To be called before Run; k is not released before Run returned.
func (s *Stream) CountIn(k *telemetry.Key) { s.metrics = k }

// SetInterest says what is wanted from now on. The newest value counts; it
// never blocks. Any goroutine, one at a time.
func (s *Stream) SetInterest(i *xds.Interest) {
	s.mu.Lock()
	s.newest = i
	cells := slices.Clone(s.cells)
	s.mu.Unlock()
	for _, c := range cells {
		c.set(i)
	}
}

// join has a cell, which nobody else knows yet, hear of the interest.
func (s *Stream) join(c *cell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.newest = s.newest
	s.cells = append(s.cells, c)
}

func (s *Stream) leave(c *cell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cells = slices.DeleteFunc(s.cells, func(o *cell) bool { return o == c })
}

// interestNow is what is wanted now.
func (s *Stream) interestNow() *xds.Interest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest
}

// counters of a type under this stream's key.
func (s *Stream) counters(typ xds.TypeURL) *telemetry.Type {
	if s.metrics != nil {
		return s.metrics.Type(typ)
	}
	return s.client.opts.Metrics.Type(typ)
}

// Run serves the interest until ctx ends, and then returns nil: it connects,
// asks, reads and connects again (P54), at the first origin or the next (P56).
// It returns an error only if the sink did. While nothing is wanted no stream is
// opened.
func (s *Stream) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		s.wg.Wait()
		if s.serving != nil {
			s.serving.close()
		}
	}()
	if !s.awaitInterest(ctx) {
		return nil
	}
	s.serving = s.line(s.client.first(), make(memory), nil)
	s.sink.Status(Status{Origin: s.serving.at.name})
	s.start(ctx, 0)
	s.seek(ctx)
	for {
		if attempt := s.begun; attempt != nil {
			s.begun = nil
			attempt()
		}
		var err error
		select {
		case err = <-s.serving.done:
			err = s.again(ctx, err)
		case l := <-s.found:
			err = s.turnTo(ctx, l)
		}
		var over *sinkError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &over):
			return fmt.Errorf("upstream stream of key %s: %w", s.id, over.err)
		}
	}
}

// awaitInterest returns once something is wanted, false if ctx ended first.
func (s *Stream) awaitInterest(ctx context.Context) bool {
	c := newCell()
	s.join(&c)
	defer s.leave(&c)
	return c.await(ctx)
}

// failuresToSwitch in a row make the next origin be tried (P56).
const failuresToSwitch = 2

// again has what serves begin another attempt, or the next origin. err is why
// the last one ended; it is returned if that is the end of it all.
func (s *Stream) again(ctx context.Context, err error) error {
	l := s.serving
	var over *sinkError
	if ctx.Err() == nil && !errors.As(err, &over) { // if the attempt did not live to do so
		if e := l.uncache(ctx, nil); e != nil {
			err = e
		}
	}
	if l.had {
		s.inARow, s.attempts = 0, 0
		clear(s.tried)
	}
	switch {
	case ctx.Err() != nil, errors.As(err, &over):
		return err
	case errors.Is(err, errReopen):
		if !l.interest.wanted() {
			l.sink.Status(Status{Origin: l.at.name})
		}
		s.start(ctx, 0)
		return nil
	}
	reason := l.ended(err)
	wait := upTo(reopenWithin)
	if !l.had {
		s.inARow++
		s.attempts++
		s.tried[l.at] = true
		wait = s.client.opts.Backoff.delay(l.failures, upTo)
	}
	next := l.at
	if s.inARow >= failuresToSwitch {
		next = s.next()
	}
	if next != l.at && !s.tried[next] {
		wait = upTo(min(s.client.opts.Backoff.Base, reopenWithin)) // nobody has to be spared yet
	}
	s.log.Log(ctx, l.told(), "upstream stream ended", "origin", l.at.name, "reason", reason, "error", err,
		"failures", s.attempts, "next", next.name, "retry_in", wait)
	s.sink.Status(Status{Origin: l.at.name, Err: err, Failed: !l.had && s.everywhere(), Told: !l.had && l.at.isAway(), Attempts: s.attempts})
	if next != l.at {
		l.at.metrics.Reconnect(telemetry.Switched)
		l.close()
		s.left(l.at)
		s.serving, s.inARow = s.line(next, l.memory, nil), 0
		if s.tried[next] {
			s.serving.failures = l.failures
		}
	}
	s.start(ctx, wait)
	s.seek(ctx)
	return nil
}

// start has what serves begin an attempt. Beside the most preferred origin no
// other is tried out, so there is nothing else to wait for until its attempt
// ends: Run's goroutine makes it, and a key has a goroutine less.
func (s *Stream) start(ctx context.Context, wait time.Duration) {
	if s.serving.at.rank == 0 {
		s.begun = s.serving.begin(ctx, wait)
		return
	}
	s.serving.start(ctx, wait)
}

// everywhere reports whether no origin can be reached (P53): each failed here,
// or is away for everybody.
func (s *Stream) everywhere() bool {
	now := time.Now()
	return !slices.ContainsFunc(s.client.sites, func(at *site) bool { return !s.tried[at] && !s.client.knownAway(at, now) })
}

// next is the origin to try after the one that serves failed: of those that were
// not tried, one that is not known to be away, the most preferred first. Once
// all were, it is the one that follows.
func (s *Stream) next() *site {
	sites, now := s.client.sites, time.Now()
	var best *site
	for _, at := range sites {
		if s.tried[at] {
			continue
		}
		if !s.client.knownAway(at, now) {
			return at
		}
		if best == nil {
			best = at
		}
	}
	if best != nil {
		return best
	}
	return sites[(s.serving.at.rank+1)%len(sites)]
}

// turnTo makes an origin that was tried out the one that serves. What served
// ends first, so that no two speak at a time.
func (s *Stream) turnTo(ctx context.Context, l *line) error {
	old := s.serving
	if l.at.rank >= old.at.rank { // given up at the same time
		_ = l.stop(errReturn) // nobody has heard of it
		l.close()
		return nil
	}
	s.serving, s.inARow, s.attempts = l, 0, 0
	s.returned = time.Now()
	clear(s.tried)
	err := old.stop(errReturn)
	if over := (*sinkError)(nil); errors.As(err, &over) || ctx.Err() != nil {
		old.close()
		return err
	}
	old.at.metrics.Reconnect(telemetry.Returned)
	err = old.uncache(ctx, l.stage.answered())
	old.close()
	if err != nil {
		return err
	}
	astray, err := l.stage.handOver(s.sink.Held, func(u xds.Update) error {
		u.Origin = l.at.name
		n := 0
		if u.TakesOver {
			n = outlived(&u, s.sink.Held(u.Type).Part(u.Wildcard))
		}
		changed, err := s.update(ctx, u)
		if changed {
			s.counters(u.Type).Updates[telemetry.Applied].Inc()
			s.counters(u.Type).Dropped[telemetry.StreamEnded].Add(n)
		}
		return err
	})
	if err != nil {
		return err
	}
	s.sink.Status(Status{Connected: true, Origin: l.at.name, Spoken: true})
	s.log.Debug("upstream stream returned to a preferred origin", "origin", l.at.name, "from", old.at.name)
	s.seek(ctx)
	if astray {
		return s.again(ctx, l.stop(errReopen)) // and so is told of them
	}
	return nil
}
