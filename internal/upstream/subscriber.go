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
	"xdsrelay/internal/upstream/adsclient"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Sink receives a Subscriber's updates. The orchestrator's group implements it.
type Sink interface {
	// Held is the newest snapshot of typ, with every Update applied that has returned; nil if none.
	// Of its two parts (P50) the stream reads the one that it requests. Any goroutine.
	Held(typ xds.TypeURL) *snapshot.Snapshot
	// Update hands an update over and waits until it is applied. It reports whether that made
	// another snapshot. Calls never overlap. An error while ctx is alive means that the group has
	// ended, and ends the stream's Run.
	Update(ctx context.Context, u snapshot.Update) (changed bool, err error)
	// Status reports the connection's status. It never blocks.
	Status(Status)
}

// Status of a key's upstream stream, as its Subscriber reports it.
type Status struct {
	// Connected: a stream is open, and the transport accepted it.
	Connected bool
	// Origin is the name of the origin that serves or was tried last.
	Origin string
	// Err is why the last attempt or stream ended. It is nil while connected, and when the stream
	// was closed because the interest is empty.
	Err error
	// Failed: the last attempt failed (P53: the origin is unreachable). It is false when a stream
	// that had a response ended: that one is reopened within a second.
	Failed bool
	// Logged: Err is in the log already, as the reason why the origin is away.
	Logged bool
	// Responded: a response came on the open stream, even if it was rejected. It is reported with
	// the first response of a stream, if the stream was silent or the response brings no Update.
	Responded bool
	// SilentSince is when the stream was opened, once it has been open for first_answer_timeout
	// without any response; else zero.
	SilentSince time.Time
	// Attempts counts the failed attempts since the last response.
	Attempts int
}

// Subscriber keeps one key subscribed at an origin, for as long as the key lives. It chooses the
// origin, reconnects, and goes to another origin when one fails.
type Subscriber struct {
	client  *Client
	id      string
	node    []byte
	sink    Sink
	log     *slog.Logger
	origins []*originState // in the key's order of preference
	current *currentOrigin // the origin in use
	first   *currentOrigin // of the key's first Subscriber, which this one follows; nil: none

	// metrics of the key; fixed once Run runs.
	metrics *telemetry.Key

	// mu protects the interest and the cells that receive it.
	mu     sync.Mutex
	newest *snapshot.Interest
	cells  []*adsclient.InterestCell

	// Run's goroutine owns the fields below.
	resumption   adsclient.Resumption  // of the origin in use
	failures     int                   // in a row, for the backoff
	attempts     int                   // failed ones since the last response
	tried        map[*originState]bool // where an attempt failed since the last response
	returned     time.Time             // when the key returned to the origin in use; zero: it did not return
	shortReturns map[*originState]int  // returns in a row that did not last
}

// NewSubscriber makes the Subscriber of a key. The id is the key as text. The node is the
// representative's encoded node, including the relay's client features (P58). NewSubscriber starts
// nothing.
func (c *Client) NewSubscriber(id string, node []byte, sink Sink) *Subscriber {
	return &Subscriber{
		client:       c,
		id:           id,
		node:         node,
		sink:         sink,
		log:          c.opts.Log.With("key", id),
		origins:      c.origins,
		current:      newCurrentOrigin(),
		resumption:   make(adsclient.Resumption),
		tried:        make(map[*originState]bool),
		shortReturns: make(map[*originState]int),
	}
}

// SetMetrics makes s count in the metrics of its key, instead of those of no key. It must be called
// before Run. The caller releases k only after Run has returned.
func (s *Subscriber) SetMetrics(k *telemetry.Key) { s.metrics = k }

// SetInterest sets the interest. The newest value counts; it never blocks. Any goroutine, one at a
// time.
func (s *Subscriber) SetInterest(i *snapshot.Interest) {
	s.mu.Lock()
	s.newest = i
	cells := slices.Clone(s.cells)
	s.mu.Unlock()
	for _, c := range cells {
		c.Set(i)
	}
}

// addInterestCell returns a cell that receives the interest until removeInterestCell.
func (s *Subscriber) addInterestCell() *adsclient.InterestCell {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := adsclient.NewInterestCell(s.newest)
	s.cells = append(s.cells, c)
	return c
}

func (s *Subscriber) removeInterestCell(c *adsclient.InterestCell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cells = slices.DeleteFunc(s.cells, func(o *adsclient.InterestCell) bool { return o == c })
}

// interestNow is the current interest.
func (s *Subscriber) interestNow() *snapshot.Interest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest
}

// Run serves the interest until ctx ends, and then returns nil. It connects, subscribes, reads and
// reconnects (P54), at the most preferred origin or at another (P56). It returns an error only if
// the sink did. While the interest is empty it opens no stream.
func (s *Subscriber) Run(ctx context.Context) error {
	defer s.current.set(nil, true)
	if !s.awaitInterest(ctx) {
		return nil
	}
	at, wait := s.firstOrigin(ctx), time.Duration(0)
	s.sink.Status(Status{Origin: at.name})
	for {
		var err error
		s.current.set(at, false)
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

// awaitInterest returns true once the interest is not empty, false if ctx ended first.
func (s *Subscriber) awaitInterest(ctx context.Context) bool {
	c := s.addInterestCell()
	defer s.removeInterestCell(c)
	return c.Await(ctx)
}

// failuresToSwitch is how many failures in a row make the key use the next origin (P56).
const failuresToSwitch = 2

// use serves the interest from one origin, and meanwhile probes the origins that the key prefers to
// it. It returns the origin to use next, and how long to wait before that. An error is the sink's.
// It ends the Subscriber, as the end of ctx does.
func (s *Subscriber) use(ctx context.Context, at *originState, wait time.Duration) (next *originState, after time.Duration, err error) {
	stay, end := context.WithCancelCause(ctx)
	var probes sync.WaitGroup
	defer probes.Wait()
	defer end(nil)
	better := s.origins[:slices.Index(s.origins, at)]
	delays := make([]time.Duration, len(better))
	for i, o := range better {
		delays[i] = s.probeDelay(o)
	}
	probes.Go(func() {
		if s.first != nil {
			if other := s.first.awaitOther(stay, at); other != nil {
				end(&preferred{other})
				return
			}
		}
		for i, o := range better {
			probes.Go(func() {
				if s.probe(stay, o, delays[i]) {
					end(&preferred{o})
				}
			})
		}
	})
	l := s.newOriginStream(at, s.resumption, nil)
	defer l.close()
	for inARow := 0; ; {
		err := l.attempt(stay, wait)
		if ctx.Err() == nil { // otherwise the group is ending and takes no update
			if over := l.dropUncacheable(ctx); over != nil {
				err = over
			}
		}
		if over := (*sinkError)(nil); ctx.Err() != nil || errors.As(err, &over) {
			return nil, 0, err
		}
		if l.responded {
			inARow = 0
		}
		if found := (*preferred)(nil); errors.As(context.Cause(stay), &found) {
			s.log.Debug("upstream stream moves to a preferred origin", "origin", found.at.name, "from", at.name)
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
			if wait = 0; !l.interest.Wanted() {
				l.report(Status{})
			}
			continue
		}
		if !l.responded {
			inARow++
		}
		if next, wait = s.failed(ctx, l, err, inARow); next != at {
			at.metrics.Reconnect(telemetry.Switched)
			s.leftOrigin(at)
			return next, wait, nil
		}
	}
}

// preferred ends the use of an origin because a preferred one answered a probe, or because the
// key's first stream uses another one.
type preferred struct{ at *originState }

func (p *preferred) Error() string { return "origin " + p.at.name + " is preferred" }

// succeeded resets the failures, because an origin answered.
func (s *Subscriber) succeeded() {
	s.failures, s.attempts = 0, 0
	clear(s.tried)
}

// failed counts and logs the end of an attempt, after inARow failures at this origin. It returns
// the origin to use and how long to wait.
func (s *Subscriber) failed(ctx context.Context, l *originStream, err error, inARow int) (next *originState, wait time.Duration) {
	reason := l.ended(err)
	wait = upTo(reopenWithin)
	if !l.responded {
		s.failures++
		s.attempts++
		s.tried[l.at] = true
		wait = s.client.opts.Backoff.delay(s.failures, upTo)
	}
	next = l.at
	if inARow >= failuresToSwitch && !s.follows() {
		next = s.nextOrigin(l.at)
	}
	if next != l.at && !s.tried[next] { // it has not failed for this key, so it needs no backoff
		s.failures = 0
		wait = upTo(min(s.client.opts.Backoff.Base, reopenWithin))
	}
	// Origins often end streams, and one log line per key would be too much. An origin that is away
	// is logged once.
	level := slog.LevelInfo
	if l.responded || s.attempts > 1 || l.at.isAway() {
		level = slog.LevelDebug
	}
	s.log.Log(ctx, level, "upstream stream ended", "origin", l.at.name, "reason", reason, "error", err,
		"failures", s.attempts, "next", next.name, "retry_in", wait)
	l.report(Status{Err: err, Failed: !l.responded && s.failedEverywhere(), Logged: !l.responded && l.at.isAway()})
	return next, wait
}

// firstOrigin is the origin to start with. That is the origin of the key's first Subscriber, or
// else the most preferred one that is not known to be away.
func (s *Subscriber) firstOrigin(ctx context.Context) *originState {
	if s.first != nil {
		if at := s.first.awaitOther(ctx, nil); at != nil {
			return at
		}
	}
	now := time.Now()
	for _, at := range s.origins {
		if !at.knownAway(now) {
			return at
		}
	}
	return s.origins[0]
}

// failedEverywhere reports whether no origin is reachable (P53): each failed for this key, or is
// away for all keys.
func (s *Subscriber) failedEverywhere() bool {
	now := time.Now()
	return !slices.ContainsFunc(s.origins, func(at *originState) bool { return !s.tried[at] && !at.knownAway(now) })
}

// nextOrigin is the origin to use after this one failed. Of the untried origins it is the most
// preferred that is not known to be away, else the most preferred. Once all were tried, it is the
// next in the order.
func (s *Subscriber) nextOrigin(at *originState) *originState {
	now := time.Now()
	var best *originState
	for _, o := range s.origins {
		if s.tried[o] {
			continue
		}
		if !o.knownAway(now) {
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

// Second makes a second Subscriber of the same key, with a sink of its own (P50). It uses the
// origin that s uses, so that a wildcard and names never come from different origins. Once s has
// ended it chooses its origin itself. It starts nothing.
func (s *Subscriber) Second(sink Sink) *Subscriber {
	second := s.client.NewSubscriber(s.id, s.node, sink)
	second.first = s.current
	return second
}

// currentOrigin is the origin that a Subscriber uses. The Subscriber that follows it reads it. Safe
// for concurrent use.
type currentOrigin struct {
	mu      sync.Mutex
	at      *originState  // nil: not chosen yet
	over    bool          // the Subscriber has ended
	changed chan struct{} // closed when either changes
}

func newCurrentOrigin() *currentOrigin { return &currentOrigin{changed: make(chan struct{})} }

func (c *currentOrigin) set(at *originState, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at != c.at || over != c.over {
		c.at, c.over = at, over
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// awaitOther waits until the origin differs from at, and returns it. It returns nil if the
// Subscriber or ctx ended first.
func (c *currentOrigin) awaitOther(ctx context.Context, at *originState) *originState {
	for {
		c.mu.Lock()
		now, over, changed := c.at, c.over, c.changed
		c.mu.Unlock()
		switch {
		case over:
			return nil
		case now != nil && now != at:
			return now
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// follows reports whether the key's first Subscriber chooses the origin.
func (s *Subscriber) follows() bool {
	if s.first == nil {
		return false
	}
	s.first.mu.Lock()
	defer s.first.mu.Unlock()
	return !s.first.over
}
