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
	client  *Client
	id      string
	node    []byte
	sink    Sink
	log     *slog.Logger
	origins []*site // in the key's order of preference
	choice  *choice // the origin in use
	beside  *choice // of the key's first stream, which counts; nil: there is none

	// metrics of the key; fixed once Run runs.
	metrics *telemetry.Key

	// The interest, and the cells that receive it.
	mu     sync.Mutex
	newest *xds.Interest
	cells  []*cell

	// Owned by Run's goroutine.
	memory   memory         // of the origin in use
	failures int            // in a row, for the backoff
	attempts int            // that failed since the last response
	tried    map[*site]bool // where an attempt failed, since the last response
	returned time.Time      // when the key returned to the origin in use; zero: it did not
	fleeting map[*site]int  // returns in a row that did not last
}

// NewStream makes the stream of a key; id is the key as people read it, node
// the representative's bytes, with the relay's client features already in it
// (P58). It starts nothing.
func (c *Client) NewStream(id string, node []byte, sink Sink) *Stream {
	return &Stream{
		client:   c,
		id:       id,
		node:     node,
		sink:     sink,
		log:      c.opts.Log.With("key", id),
		origins:  c.sites,
		choice:   newChoice(),
		memory:   make(memory),
		tried:    make(map[*site]bool),
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

// join makes a new cell receive the interest.
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
// asks, reads and connects again (P54), at the most preferred origin or another
// (P56). It returns an error only if the sink did. While nothing is wanted no
// stream is opened.
func (s *Stream) Run(ctx context.Context) error {
	defer s.choice.set(nil, true)
	if !s.awaitInterest(ctx) {
		return nil
	}
	at, wait := s.first(ctx), time.Duration(0)
	s.sink.Status(Status{Origin: at.name})
	for {
		var err error
		s.choice.set(at, false)
		at, wait, err = s.use(ctx, at, wait)
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

// failuresToSwitch in a row make the key use the next origin (P56).
const failuresToSwitch = 2

// use serves the interest from one origin, and meanwhile probes those that are
// preferred to it. It returns when the key goes on with another origin, and how
// long to wait before that. An error is the sink's; it and the end of ctx end the
// Stream.
func (s *Stream) use(ctx context.Context, at *site, wait time.Duration) (next *site, after time.Duration, err error) {
	stay, end := context.WithCancelCause(ctx)
	var probes sync.WaitGroup
	defer probes.Wait()
	defer end(nil)
	better := s.origins[:slices.Index(s.origins, at)]
	calm := make([]time.Duration, len(better))
	for i, o := range better {
		calm[i] = s.calm(o)
	}
	probes.Go(func() {
		if s.beside != nil {
			if other := s.beside.other(stay, at); other != nil {
				end(&preferred{other})
				return
			}
		}
		for i, o := range better {
			probes.Go(func() {
				if s.probe(stay, o, calm[i]) {
					end(&preferred{o})
				}
			})
		}
	})
	l := s.line(at, s.memory, nil)
	defer l.close()
	for inARow := 0; ; {
		err := l.attempt(stay, wait)
		if ctx.Err() == nil { // else the group ends, and takes no update
			if over := l.uncache(ctx); over != nil {
				err = over
			}
		}
		if over := (*sinkError)(nil); ctx.Err() != nil || errors.As(err, &over) {
			return nil, 0, err
		}
		if l.had {
			inARow = 0
		}
		if found := (*preferred)(nil); errors.As(context.Cause(stay), &found) {
			s.log.Debug("upstream stream goes to a preferred origin", "origin", found.at.name, "from", at.name)
			s.succeeded()
			if s.follows() {
				at.metrics.Reconnect(telemetry.Switched)
			} else {
				at.metrics.Reconnect(telemetry.Returned)
				s.returned = time.Now()
			}
			return found.at, 0, nil
		}
		if errors.Is(err, errReopen) {
			if wait = 0; !l.interest.wanted() {
				l.report(Status{})
			}
			continue
		}
		if !l.had {
			inARow++
		}
		if next, wait = s.failed(ctx, l, err, inARow); next != at {
			at.metrics.Reconnect(telemetry.Switched)
			s.left(at)
			return next, wait, nil
		}
	}
}

// preferred ends the use of an origin because a preferred one answered a probe, or because the
// key's first stream uses another one.
type preferred struct{ at *site }

func (p *preferred) Error() string { return "origin " + p.at.name + " is preferred" }

// succeeded forgets failures, because an origin answered.
func (s *Stream) succeeded() {
	s.failures, s.attempts = 0, 0
	clear(s.tried)
}

// failed counts and logs the end of an attempt, of which inARow failed at this
// origin. It returns the origin to use and how long to wait.
func (s *Stream) failed(ctx context.Context, l *line, err error, inARow int) (next *site, wait time.Duration) {
	reason := l.ended(err)
	wait = upTo(reopenWithin)
	if !l.had {
		s.failures++
		s.attempts++
		s.tried[l.at] = true
		wait = s.client.opts.Backoff.delay(s.failures, upTo)
	}
	next = l.at
	if inARow >= failuresToSwitch && !s.follows() {
		next = s.next(l.at)
	}
	if next != l.at && !s.tried[next] { // it has not failed this key, so it needs no backoff
		s.failures = 0
		wait = upTo(min(s.client.opts.Backoff.Base, reopenWithin))
	}
	// Origins often end streams, and a line for each key would be a flood: an origin
	// that is away is logged once.
	level := slog.LevelInfo
	if l.had || s.attempts > 1 || l.at.isAway() {
		level = slog.LevelDebug
	}
	s.log.Log(ctx, level, "upstream stream ended", "origin", l.at.name, "reason", reason, "error", err,
		"failures", s.attempts, "next", next.name, "retry_in", wait)
	l.report(Status{Err: err, Failed: !l.had && s.everywhere(), Told: !l.had && l.at.isAway()})
	return next, wait
}

// first is the origin to begin with: the one of the key's first stream, else the most preferred
// that is not known to be away.
func (s *Stream) first(ctx context.Context) *site {
	if s.beside != nil {
		if at := s.beside.other(ctx, nil); at != nil {
			return at
		}
	}
	now := time.Now()
	for _, at := range s.origins {
		if !s.client.knownAway(at, now) {
			return at
		}
	}
	return s.origins[0]
}

// everywhere reports whether no origin can be reached (P53): each failed here,
// or is away for everybody.
func (s *Stream) everywhere() bool {
	now := time.Now()
	return !slices.ContainsFunc(s.origins, func(at *site) bool { return !s.tried[at] && !s.client.knownAway(at, now) })
}

// next is the origin to use after this one failed: of those that were not tried,
// the most preferred that is not known to be away, else the most preferred. Once
// all were tried, it is the one that follows in the order.
func (s *Stream) next(at *site) *site {
	now := time.Now()
	var best *site
	for _, o := range s.origins {
		if s.tried[o] {
			continue
		}
		if !s.client.knownAway(o, now) {
			return o
		}
		if best == nil {
			best = o
		}
	}
	if best != nil {
		return best
	}
	return s.origins[(slices.Index(s.origins, at)+1)%len(s.origins)]
}
