package upstream

import (
	"context"
	"errors"
	"sync"
	"time"

	"xdsrelay/internal/xds"
)

// A probe finds out whether an origin answers that the key prefers to the one it
// uses (P56). It sends the key's requests on a stream of its own, and acknowledges
// and discards the answers. Once every type of which something is held was
// answered, the probe ends and the key reconnects there.
type probe struct {
	stream *Stream
	end    context.CancelCauseFunc // of its attempt
	quiet  *time.Timer             // ends it when nothing comes

	mu       sync.Mutex
	answered map[partOf]bool
}

const (
	// probeTimeout ends a probe when no other type is answered for so long: other keys
	// wait for its place.
	probeTimeout = time.Minute
	// lastACK is how long a probe stays open after the last answer, so that the
	// origin receives the acknowledgement.
	lastACK = 50 * time.Millisecond
)

var (
	errAnswered = errors.New("probe was answered")
	errQuiet    = errors.New("origin does not answer every type of a probe")
)

// probe probes an origin again and again, first after calm. It reports true once
// the origin answered, false if ctx ended.
func (s *Stream) probe(ctx context.Context, at *site, calm time.Duration) bool {
	warned := false
	for failures, wait := 0, calm; ; {
		sleep(ctx, wait)
		if !s.awaitInterest(ctx) || at.tries.enter(ctx) != nil {
			return false
		}
		unanswered, err := s.probeOnce(ctx, at)
		at.tries.leave()
		switch {
		case errors.Is(err, errAnswered):
			return true
		case errors.Is(err, errReopen): // the key wants something else, or nothing
			failures, wait = 0, 0
			continue
		case errors.Is(err, errQuiet) && !warned:
			warned = true
			s.log.Warn("a preferred origin leaves types unanswered, and is not returned to", "origin", at.name, "types", unanswered)
		}
		failures++
		wait = s.client.opts.Backoff.delay(failures, upTo)
	}
}

// probeOnce probes an origin once, and returns why it ended and the types that
// were not answered.
func (s *Stream) probeOnce(ctx context.Context, at *site) (unanswered []string, err error) {
	attempt, end := context.WithCancelCause(ctx)
	defer end(nil)
	p := &probe{stream: s, end: end, answered: make(map[partOf]bool)}
	p.quiet = time.AfterFunc(probeTimeout, func() { end(errQuiet) })
	defer p.quiet.Stop()
	l := s.line(at, make(memory), p)
	defer l.close()
	if !l.interest.wanted() {
		return nil, errReopen
	}
	err = l.attempt(attempt, 0)
	if attempt.Err() == nil && !errors.Is(err, errReopen) { // it ended by itself
		reason := l.ended(err)
		s.log.Debug("probe failed", "origin", at.name, "reason", reason, "error", err)
	}
	for _, t := range p.open() {
		unanswered = append(unanswered, xds.TypeOf(t.typ).Label())
	}
	return unanswered, err
}

// answer says that the origin answered a part of a type.
func (p *probe) answer(of partOf) {
	p.mu.Lock()
	if !p.answered[of] { // what is answered again brings the probe no nearer to its end
		p.answered[of] = true
		p.quiet.Reset(probeTimeout)
	}
	p.mu.Unlock()
	p.check()
}

// check ends the probe if the origin answered all that it has to. It does not wait
// for types of which nothing is held: origins leave unanswered what they do not
// have. But an origin that answered nothing at all serves nobody.
func (p *probe) check() {
	for _, t := range p.open() {
		if held := p.stream.sink.Held(t.typ).Part(t.wild); held.Answered() || anyIn(held) {
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

// open are the types that the key wants and that the origin has not answered.
func (p *probe) open() (open []partOf) {
	interest := p.stream.interestNow()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range interest.Types {
		if of := (partOf{t.Type, t.Wildcard}); !empty(t) && !p.answered[of] {
			open = append(open, of)
		}
	}
	return open
}

// anyIn reports whether a part holds a resource.
func anyIn(p xds.Part) bool {
	for range p.Resources {
		return true
	}
	return false
}

// lasting is how long a return has to last. An origin that is left sooner is
// probed later and later.
const lasting = time.Minute

// left counts a return that did not last: the origin does not serve any more,
// since it failed.
func (s *Stream) left(at *site) {
	switch {
	case s.returned.IsZero():
	case time.Since(s.returned) < lasting:
		s.fleeting[at]++
	default:
		delete(s.fleeting, at)
	}
	s.returned = time.Time{}
}

// calm is how long an origin is not probed at first: the longer, the more often
// the key left it soon after a return. Otherwise a key would go to and fro.
func (s *Stream) calm(at *site) time.Duration {
	n := s.fleeting[at]
	if n == 0 {
		return 0
	}
	b := s.client.opts.Backoff
	bound := Backoff{Base: 8 * b.Base, Max: 20 * b.Max}.delay(n, func(d time.Duration) time.Duration { return d })
	return bound/2 + upTo(bound/2)
}
