package upstream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"xdsrelay/internal/upstream/adsclient"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// probe finds out whether an origin that the key prefers to the one in use answers (P56). It sends
// the key's requests on a stream of its own, and ACKs and discards the responses. The probe ends
// once every type with held resources was answered. The key then reconnects there.
type probe struct {
	stream  *Subscriber
	end     context.CancelCauseFunc // ends the probe's attempt
	timeout *time.Timer             // ends it after probeTimeout

	mu       sync.Mutex
	answered map[typePart]bool
}

const (
	// probeTimeout ends a probe that gets no answer for a further type, because other keys wait for
	// its place.
	probeTimeout = time.Minute
	// lastACK is how long a probe stays open after the last answer, so that the
	// origin receives the acknowledgement.
	lastACK = 50 * time.Millisecond
)

var (
	errAnswered   = errors.New("origin answered the probe")
	errUnanswered = errors.New("origin did not answer all types of the probe")
)

// probe probes an origin again and again, first after delay. It returns true once the
// origin answered, false if ctx ended.
func (s *Subscriber) probe(ctx context.Context, at *originState, delay time.Duration) bool {
	warned := false
	for failures, wait := 0, delay; ; {
		sleep(ctx, wait)
		if !s.awaitInterest(ctx) || at.probes.enter(ctx) != nil {
			return false
		}
		unanswered, err := s.probeOnce(ctx, at)
		at.probes.leave()
		switch {
		case errors.Is(err, errAnswered):
			return true
		case errors.Is(err, errReopen): // the key wants something else, or nothing
			failures, wait = 0, 0
			continue
		case errors.Is(err, errUnanswered) && !warned:
			warned = true
			s.log.Warn("preferred origin not used: it does not answer all types", "origin", at.name, "types", unanswered)
		}
		failures++
		wait = s.client.opts.Backoff.delay(failures, upTo)
	}
}

// probeOnce probes an origin once, and returns why it ended and the types that
// were not answered.
func (s *Subscriber) probeOnce(ctx context.Context, at *originState) (unanswered []string, err error) {
	attempt, end := context.WithCancelCause(ctx)
	defer end(nil)
	p := &probe{stream: s, end: end, answered: make(map[typePart]bool)}
	p.timeout = time.AfterFunc(probeTimeout, func() { end(errUnanswered) })
	defer p.timeout.Stop()
	l := s.newOriginStream(at, make(adsclient.Resumption), p)
	defer l.close()
	if !l.interest.Wanted() {
		return nil, errReopen
	}
	err = l.attempt(attempt, 0)
	if attempt.Err() == nil && !errors.Is(err, errReopen) { // the attempt ended by itself
		reason := l.ended(err)
		s.log.Debug("probe failed", "origin", at.name, "reason", reason, "error", err)
	}
	for _, t := range p.unanswered() {
		unanswered = append(unanswered, xds.TypeOf(t.typ).Label())
	}
	return unanswered, err
}

// answer records that the origin answered for a part of a type.
func (p *probe) answer(of typePart) {
	p.mu.Lock()
	if !p.answered[of] { // a further response of the same type does not prolong the probe
		p.answered[of] = true
		p.timeout.Reset(probeTimeout)
	}
	p.mu.Unlock()
	p.check()
}

// check ends the probe once the origin answered all that is required. It does not wait for types
// without held resources, because origins do not answer for what they do not have. At least one
// type must be answered.
func (p *probe) check() {
	for _, t := range p.unanswered() {
		if held := p.stream.sink.Held(t.typ).Part(t.wildcard); held.Answered() || anyIn(held) {
			return
		}
	}
	p.mu.Lock()
	any := len(p.answered) > 0
	p.mu.Unlock()
	if any {
		time.AfterFunc(lastACK, func() { p.end(errAnswered) })
	}
}

// unanswered are the types that the key wants and that the origin has not answered.
func (p *probe) unanswered() (open []typePart) {
	interest := p.stream.interestNow()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range interest.Types {
		if of := (typePart{t.Type, t.Wildcard}); !t.Empty() && !p.answered[of] {
			open = append(open, of)
		}
	}
	return open
}

// anyIn reports whether a part holds a resource.
func anyIn(p snapshot.Part) bool {
	for range p.Resources {
		return true
	}
	return false
}

// minReturn is how long a return has to last. If the key leaves the origin sooner, later probes of
// it wait longer.
const minReturn = time.Minute

// leftOrigin counts a return that did not last, when the key leaves an origin that
// failed.
func (s *Subscriber) leftOrigin(at *originState) {
	switch {
	case s.returned.IsZero():
	case time.Since(s.returned) < minReturn:
		s.shortReturns[at]++
	default:
		delete(s.shortReturns, at)
	}
	s.returned = time.Time{}
}

// probeDelay is the first wait before an origin is probed. It grows with each return that ended
// soon, so that keys do not alternate between origins.
func (s *Subscriber) probeDelay(at *originState) time.Duration {
	n := s.shortReturns[at]
	if n == 0 {
		return 0
	}
	b := s.client.opts.Backoff
	bound := Backoff{Base: 8 * b.Base, Max: 20 * b.Max}.delay(n, func(d time.Duration) time.Duration { return d })
	return bound/2 + upTo(bound/2)
}

// maxProbes is how many keys at a time probe an origin that is not away (P56). The origin sends
// each of them all that the key wants.
const maxProbes = 16

// probeLimiter admits keys to probe an origin, first come, first served. Only one key at a time
// probes an origin that is away, with growing waits (P54). Once the origin answers, maxProbes keys
// at a time do. Safe for concurrent use.
type probeLimiter struct {
	backoff Backoff
	random  func(time.Duration) time.Duration
	away    func() bool   // whether the origin is away; called without a lock
	signal  chan struct{} // capacity one: something changed

	mu       sync.Mutex
	waiting  []chan struct{} // each closed when its key is admitted
	busy     int
	failures int
	until    time.Time // while the origin is away: when the next attempt may start
}

func newProbeLimiter(b Backoff, away func() bool) *probeLimiter {
	return &probeLimiter{backoff: b, random: upTo, away: away, signal: make(chan struct{}, 1)}
}

// run admits keys until ctx ends.
func (t *probeLimiter) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(t.admit(t.away(), time.Now()))
		select {
		case <-t.signal:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// admit admits the keys that may probe now. It returns the time after which it can admit more
// without another event.
func (t *probeLimiter) admit(away bool, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	width := maxProbes
	if away {
		width = 1
	} else {
		t.failures, t.until = 0, time.Time{}
	}
	for len(t.waiting) > 0 && t.busy < width {
		if wait := t.until.Sub(now); wait > 0 {
			return wait
		}
		close(t.waiting[0])
		t.waiting = t.waiting[1:]
		t.busy++
	}
	return time.Hour
}

// enter waits for a place, which leave releases. It returns an error if ctx ended first.
func (t *probeLimiter) enter(ctx context.Context) error {
	in := make(chan struct{})
	t.mu.Lock()
	t.waiting = append(t.waiting, in)
	t.mu.Unlock()
	t.wake()
	select {
	case <-in:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(t.waiting, in)
	if i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
	t.mu.Unlock()
	if i < 0 {
		t.leave() // the key was admitted at the same time
	}
	return context.Cause(ctx)
}

// leave releases a place.
func (t *probeLimiter) leave() {
	t.mu.Lock()
	t.busy--
	t.mu.Unlock()
	t.wake()
}

// failed records a failed attempt at an origin that is away. Of the failures within one wait only
// the first counts.
func (t *probeLimiter) failed(now time.Time) {
	t.mu.Lock()
	if !now.Before(t.until) {
		t.failures++
		t.until = now.Add(t.backoff.delay(t.failures, t.random))
	}
	t.mu.Unlock()
	t.wake()
}

// wake makes run check again.
func (t *probeLimiter) wake() {
	select {
	case t.signal <- struct{}{}:
	default:
	}
}
