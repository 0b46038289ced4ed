package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream/adsclient"
	"xdsrelay/internal/upstream/suspects"
	"xdsrelay/internal/upstream/timing"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Sink receives a Source's updates. The orchestrator's group implements it.
type Sink interface {
	// Newest is the newest snapshot of typ, with every Update applied that has returned; nil if none.
	// Of its two parts (P50) the stream reads the one that it requests. Any goroutine.
	Newest(typ xds.TypeURL) *snapshot.Snapshot
	// Update hands an update over and waits until it is applied. It reports whether that made
	// another snapshot. Any goroutine. An error while ctx is alive means that the group has
	// ended, and ends the stream's Run.
	Update(ctx context.Context, u snapshot.Update) (changed bool, err error)
	// Status reports the connection's status. It never blocks. Any goroutine, since the failure of a
	// trial may be reported too (P68).
	Status(Status)
}

// Status of a key's upstream stream, as its Source reports it.
type Status struct {
	// Connected: a stream is open, and the transport accepted it. Stream is its number, which no other
	// stream has, and OpenedAt is when the key began to use it. Both are zero without a stream.
	Connected bool
	Stream    uint64
	OpenedAt  time.Time
	// Origin is the name of the origin that serves or was tried last. Relayed: it is a member.
	Origin  string
	Relayed bool
	// Err is why the last attempt or stream ended. It is nil while connected, and when the stream
	// was closed because the interest is empty.
	Err error
	// Failed: the last attempt failed (P53: the origin is unreachable). It is false when a stream
	// that had a response ended: that one is reopened within a second.
	Failed bool
	// Logged: Err is in the log already, as the reason why the origin is away.
	Logged bool
	// Responded: a response came on the open stream, even if it was rejected.
	Responded bool
	// SilentSince is when the stream was opened, once it has been open for first_answer_timeout
	// without any response; else zero.
	SilentSince time.Time
	// Arriving is how many bytes of a response have arrived on the stream's connection, if it has been
	// open for first_answer_timeout without any response; 0: none arrive.
	Arriving int64
	// Carried is what the failed attempt requested. Its failure concerns only clients that want part
	// of it (P53). Nil: everything, because the origin could not be reached.
	Carried *snapshot.Interest
}

// reopenWithin bounds the wait after a stream that had a response (P54).
const reopenWithin = time.Second

// Source keeps one key subscribed at an origin, for as long as the key lives. It chooses the
// origin, reconnects, and goes to another origin when one fails.
type Source struct {
	client  *Client
	key     xds.Key
	id      string // the key as text
	node    []byte
	sink    Sink
	log     *slog.Logger
	current *CurrentOrigin // the origin in use
	first   *CurrentOrigin // of the key's first Source, which this one follows until that has ended

	// retry receives when tryExcluded has to look at suspects again; room for one.
	retry chan struct{}

	// metrics of the key; fixed once Run runs.
	metrics *telemetry.Key

	// mu protects the fields below.
	mu           sync.Mutex
	newest       *snapshot.Interest
	cells        []*interestCell   // one for each stream
	suspects     suspects.List     // at the origin in use (P68)
	trying       bool              // tryExcluded runs
	failures     int               // in a row, for the backoff
	tried        map[*Origin]bool  // where an attempt failed since the last response
	failing      time.Time         // when the first of these attempts failed
	shortReturns map[*Origin]int   // returns in a row that did not last
	ends         timing.StreamEnds // of the key's streams
	endsAt       *Origin           // of the last of them

	// Run's goroutine owns the fields below.
	lastVersions adsclient.LastVersions // of the origin in use
	returned     time.Time              // when the key returned to the origin in use; zero: it did not return
}

// NewSource makes a Source of a key. The node is the representative's encoded node, including the
// relay's client features (P58). first is nil for the key's first Source. The second one has a sink
// of its own, and uses the origin that the first one uses, so that a wildcard and names never come
// from different origins (P50). Once the first one has ended it chooses its origin itself.
// NewSource starts nothing.
func (c *Client) NewSource(key xds.Key, node []byte, sink Sink, first *CurrentOrigin) *Source {
	id := key.String()
	if first == nil {
		first = &CurrentOrigin{ended: true}
	}
	return &Source{
		client:       c,
		key:          key,
		id:           id,
		node:         node,
		sink:         sink,
		log:          c.opts.Log.With("key", id),
		current:      &CurrentOrigin{changed: make(chan struct{})},
		first:        first,
		retry:        make(chan struct{}, 1),
		lastVersions: make(adsclient.LastVersions),
		tried:        make(map[*Origin]bool),
		shortReturns: make(map[*Origin]int),
	}
}

// SetMetrics makes s count in the metrics of its key, instead of those of no key. It must be called
// before Run. The caller releases k only after Run has returned.
func (s *Source) SetMetrics(k *telemetry.Key) { s.metrics = k }

// move makes the key use an origin. As an error, it is why the key leaves another one.
type move struct {
	to     *Origin
	stream *stream       // a successful probe, which becomes the key's stream; nil: a new stream is opened
	wait   time.Duration // before that
	reason telemetry.Reconnect
}

func (m *move) Error() string { return "the key uses origin " + m.to.Name }

// Run serves the interest until ctx ends, and then returns nil. It connects, subscribes, reads and
// reconnects (P54), at the most preferred origin or at another (P56). It returns an error only if
// the sink did. While the interest is empty it opens no stream.
func (s *Source) Run(ctx context.Context) error {
	defer s.current.set(nil, true)
	if !s.awaitInterest(ctx) {
		return nil
	}
	next := &move{to: s.firstOrigin(ctx)}
	s.sink.Status(Status{Origin: next.to.Name, Relayed: next.to.Member})
	for {
		var err error
		s.current.set(next.to, false)
		next, err = s.use(ctx, next.to, next.stream, next.wait)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("upstream stream of key %s: %w", s.id, errors.Unwrap(err))
		}
	}
}

// use serves the interest from one origin, and meanwhile probes the origins that the key prefers to
// it. stream is a probe that succeeded there; nil: use waits, and then opens one. use returns the
// origin to use next. An error is the sink's. It ends the Source, as the end of ctx does.
func (s *Source) use(ctx context.Context, at *Origin, stream *stream, wait time.Duration) (next *move, err error) {
	stay, end := context.WithCancelCause(ctx)
	var others sync.WaitGroup // probes and trials
	defer others.Wait()
	defer end(nil)
	others.Go(func() { s.seekPreferred(ctx, stay, at, end) })
	s.mu.Lock()
	s.suspects, s.trying = suspects.List{}, false // those were of another origin
	s.mu.Unlock()
	if stream == nil {
		stream = s.newStream(at, s.lastVersions)
	} else {
		s.lastVersions = stream.lastVersions
	}
	defer stream.close()
	suspicions := 0
	for inARow := 0; ; {
		err := stream.run(stay, wait)
		if ctx.Err() == nil { // otherwise the group is ending and takes no update
			if e := stream.dropUncacheable(ctx); e != nil {
				err = e
			}
		}
		if ctx.Err() != nil || isSinkError(err) {
			return nil, err
		}
		if errors.As(context.Cause(stay), &next) {
			s.log.Debug("upstream stream moves to another origin", "origin", next.to.Name, "from", at.Name)
			s.left(at, next.to, next.reason)
			return next, nil
		}
		if stream.status.Responded {
			inARow = 0
		}
		if errors.Is(err, errReopen) {
			s.sink.Status(Status{Origin: at.Name, Relayed: at.Member}) // nothing more comes on the stream
			wait = 0
			continue
		}
		suspected := stream.suspected()
		switch {
		case suspected != nil:
			suspicions++
		case stream.status.Connected:
			suspicions = 0
		}
		var failed bool
		if failed, wait = s.ended(ctx, stream, err, suspected != nil); failed {
			inARow++
		}
		if inARow >= at.MaxFailures {
			if to := s.nextOrigin(at, stream.holdsAny()); to != at {
				level := slog.LevelInfo
				if at.isAway() { // which is logged once, and not for each key
					level = slog.LevelDebug
				}
				s.log.Log(ctx, level, "key uses another origin", "origin", to.Name, "from", at.Name, "error", err)
				s.left(at, to, telemetry.Switched)
				if tried, _ := s.triedOrigins(); !tried[to] { // it waits only once all have failed
					wait = 0
				}
				return &move{to: to, wait: wait}, nil
			}
		}
		if suspicions >= suspicionsToExclude {
			suspicions = 0
			if seen := stream.seen; s.exclude(suspected) {
				others.Go(func() { s.tryExcluded(stay, at, seen, end) })
			}
		}
	}
}

func (s *Source) succeeded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = 0
	clear(s.tried)
}

// ended counts and logs the end of an attempt. It reports whether that is a failure, and how long
// to wait before the next attempt.
func (s *Source) ended(ctx context.Context, stream *stream, err error, suspected bool) (failed bool, wait time.Duration) {
	wait = timing.UpTo(reopenWithin)
	e, at := stream.ended(err, suspected), stream.at
	failed = e.failed()
	first, away, blocked := false, at.isAway(), at.isBlocked()
	s.mu.Lock()
	if e.opened && stream.serves() && !away {
		s.ends.Add(at.Name, err, time.Now())
		s.endsAt = at
	}
	if failed {
		if first = len(s.tried) == 0; first {
			s.failing = time.Now()
		}
		s.tried[at] = true
		if blocked { // the next attempt waits in Origin.enter
			wait = timing.UpTo(s.client.opts.dialEvery / 10)
		} else {
			s.failures++
			wait = at.backoff(s.client.opts.Backoff, s.failures)
		}
	}
	s.mu.Unlock()
	// Origins often end streams, and one log line per key would be too much. An origin that is away
	// is logged once.
	level := slog.LevelDebug
	if first && !away {
		level = slog.LevelInfo
	}
	s.log.Log(ctx, level, "upstream stream ended", "origin", at.Name, "reason", e.reason(), "error", err, "retry_in", wait)
	st := Status{Origin: at.Name, Relayed: at.Member, Err: err, Failed: failed && s.failedEverywhere(e.held), Logged: failed && away}
	if e.opened {
		st.Carried = stream.carriedNow()
	}
	s.sink.Status(st)
	return failed, wait
}

// FrequentEnds returns the ends of the key's stream if it ended 5 times or more within the last
// minute. Nil: it did not, or the origin is away. Any goroutine.
func (s *Source) FrequentEnds() *timing.Ends {
	s.mu.Lock()
	at, out := s.endsAt, s.ends.Frequent(time.Now())
	s.mu.Unlock()
	if out != nil && at.isAway() {
		return nil
	}
	return out
}
