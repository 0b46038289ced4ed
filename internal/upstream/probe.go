package upstream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream/adsclient"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// probe asks an origin that the key prefers to the one in use (P56). It sends the key's requests on a
// stream of its own, and ACKs the responses but keeps them back. Once every type was answered, the
// stream becomes the key's and the responses are applied. The goroutines of the stream's attempt own
// it, except the fields that say otherwise.
type probe struct {
	end    context.CancelCauseFunc // ends the attempt
	result chan error              // why the attempt ended; has room for one
	ready  chan struct{}           // closed once every type was answered
	// promoted is closed when the stream becomes the key's.
	promoted chan struct{}

	answers map[typePart]bool
	kept    []keptResponse
	// before has what was held of the wildcards when the probe listed it.
	before map[xds.TypeURL]*snapshot.Snapshot
}

// keptResponse is an accepted response that is not applied yet.
type keptResponse struct {
	response *xds.Response
	decision adsclient.Decision
	received time.Time
}

const (
	// probeTimeout ends a probe without progress, because other keys wait for its place. Progress is
	// an answer for a further type. So are minProgress bytes on its connection, up to maxProgress times
	// in a row and unless they were a whole response: a large answer may take long on a slow path.
	probeTimeout = 10 * time.Second
	minProgress  = 4096
	maxProgress  = 12
)

// probeProgress is how far a probe has come.
type probeProgress struct {
	answers, kept int
	received      uint64 // bytes on the connection
	quiet         int    // times in a row that only bytes arrived
}

// goesOn reports whether the probe made progress since the last call, a probeTimeout ago.
func (g *probeProgress) goesOn(p *probe, received uint64) bool {
	was := *g
	*g = probeProgress{answers: len(p.answers), kept: len(p.kept), received: received}
	if g.answers > was.answers {
		return true
	}
	g.quiet = was.quiet + 1
	return g.kept == was.kept && received >= was.received+minProgress && g.quiet <= maxProgress
}

var errUnanswered = errors.New("origin did not answer all types of the probe")

// seekPreferred ends the stay at an origin once a preferred one answers a probe. The key's second
// stream does not probe. It follows the first one to its origin.
func (s *Subscriber) seekPreferred(ctx, stay context.Context, at *originState, end context.CancelCauseFunc) {
	if s.first != nil {
		if other := s.first.awaitOther(stay, at); other != nil {
			end(&leave{choice{at: other}, telemetry.Switched})
			return
		}
	}
	var probes sync.WaitGroup
	defer probes.Wait()
	for _, o := range s.origins[:slices.Index(s.origins, at)] {
		delay := s.probeDelay(o)
		probes.Go(func() {
			l, ok := s.probe(ctx, stay, o, delay)
			if !ok {
				return
			}
			to := &leave{choice{at: o, stream: l}, telemetry.Returned}
			if end(to); l != nil && context.Cause(stay) != to { // another one was faster
				l.discard()
			}
		})
	}
}

// probe probes an origin again and again, first after delay. It returns true once the origin
// answered, with the stream that did, if it can become the key's. It returns false if stay ended.
func (s *Subscriber) probe(ctx, stay context.Context, at *originState, delay time.Duration) (*originStream, bool) {
	warned := false
	for failures, wait := 0, delay; ; {
		sleep(stay, wait)
		if !s.awaitInterest(stay) {
			return nil, false
		}
		leave, err := at.probes.enter(stay)
		if err != nil {
			return nil, false
		}
		l, unanswered, err := s.probeOnce(ctx, stay, at)
		leave(err == nil)
		switch {
		case err == nil:
			return l, true
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

// probeOnce probes an origin once. It returns the stream once all types were answered; nil if the
// origin is a directory, which is read again. Otherwise it returns why the probe ended, and the types
// that were not answered.
func (s *Subscriber) probeOnce(ctx, stay context.Context, at *originState) (l *originStream, unanswered []string, err error) {
	attempt, end := context.WithCancelCause(ctx)
	p := &probe{end: end, result: make(chan error, 1), ready: make(chan struct{}), promoted: make(chan struct{}), answers: make(map[typePart]bool)}
	l = s.newOriginStream(at, make(adsclient.Resumption))
	l.probing.Store(p)
	if l.carried(l.interest.Newest()).Empty() {
		end(errReopen)
	}
	go func() { p.result <- l.attempt(attempt, 0) }() // received by discard, run or below
	select {
	case <-p.ready:
		if _, file := at.origin.(directory); !file {
			return l, nil, nil
		}
		l.discard()
		return nil, nil, nil
	case <-stay.Done():
		err = context.Cause(stay)
	case err = <-p.result:
		p.result <- err
		s.log.Debug("probe failed", "origin", at.name, "error", err)
		if l.open && !errors.Is(err, errReopen) && !errors.Is(err, errUnanswered) { // the origin ended it
			l.ended(err, false)
		}
	}
	for _, t := range l.discard() {
		unanswered = append(unanswered, xds.TypeOf(t.typ).Label())
	}
	return nil, unanswered, err
}

// discard ends a probe and waits for its end. It returns the types that were not answered.
func (l *originStream) discard() []typePart {
	p := l.probing.Load()
	p.end(nil)
	<-p.result
	l.close()
	return p.unanswered(l.carried(l.interest.Newest()))
}

// run is attempt for the key's stream. If the stream was a probe, its attempt runs already.
func (l *originStream) run(ctx context.Context, wait time.Duration) error {
	p := l.probing.Load()
	if p == nil {
		return l.attempt(ctx, wait)
	}
	close(p.promoted)
	defer context.AfterFunc(ctx, func() { p.end(context.Cause(ctx)) })()
	defer p.end(nil)
	err := <-p.result
	l.probing.Store(nil) // it may have ended before it was promoted
	return err
}

// promote makes a probe the key's stream. The caller then applies what was kept back. If unlisted is
// true, the stream has to be opened again after that: the other origin added a resource to a wildcard
// meanwhile, and in delta this origin does not say that it does not have it.
func (l *originStream) promote() (kept []keptResponse, unlisted bool) {
	p := l.probing.Swap(nil)
	l.interest.Notify() // the key's stream carries more
	l.report(Status{Connected: true})
	for typ, before := range p.before {
		for r := range l.sink.Held(typ).Part(true).Resources {
			unlisted = unlisted || before.Part(true).Held(r.Name) == nil
		}
	}
	return p.kept, unlisted && l.client.opts.Variant == xds.Delta
}

// begin records what is held when the probe lists it.
func (p *probe) begin(i *snapshot.Interest, held func(xds.TypeURL) *snapshot.Snapshot) {
	p.before = make(map[xds.TypeURL]*snapshot.Snapshot)
	for _, t := range i.Types {
		if t.Wildcard {
			p.before[t.Type] = held(t.Type)
		}
	}
}

// keep keeps an accepted response back.
func (p *probe) keep(r keptResponse, i *snapshot.Interest) {
	p.kept = append(p.kept, r)
	p.answer(typePart{r.response.TypeURL, r.decision.Wildcard()}, i)
}

// answer records that the origin answered for a part of a type.
func (p *probe) answer(of typePart, i *snapshot.Interest) {
	p.answers[of] = true
	p.check(i)
}

// check ends the probe once the origin answered every type of the interest.
func (p *probe) check(i *snapshot.Interest) {
	if len(p.answers) == 0 || len(p.unanswered(i)) > 0 {
		return
	}
	select {
	case <-p.ready:
	default:
		close(p.ready)
	}
}

// unanswered are the types that the probe carries and that the origin has not answered.
func (p *probe) unanswered(i *snapshot.Interest) (open []typePart) {
	for _, t := range i.Types {
		if of := (typePart{t.Type, t.Wildcard}); !t.Empty() && !p.answers[of] {
			open = append(open, of)
		}
	}
	return open
}

// answeredOnly is what a probe carries of the interest: what is known of the types of which something
// is held. What no origin has answered is not among it, because it may end the stream (P68). If
// nothing is held, the probe carries everything.
func (s *Subscriber) answeredOnly(i *snapshot.Interest) *snapshot.Interest {
	out := new(snapshot.Interest)
	if i == nil {
		return out
	}
	for _, t := range i.Types {
		part := s.sink.Held(t.Type).Part(t.Wildcard)
		switch {
		case !part.Answered() && !anyIn(part):
			continue
		case !t.Wildcard:
			var unknown []string
			for name := range t.Names.All() {
				if part.Unanswered(name) {
					unknown = append(unknown, name)
				}
			}
			t.Names = t.Names.Remove(unknown...)
		}
		if !t.Empty() {
			out.Types = append(out.Types, t)
		}
	}
	if len(out.Types) == 0 {
		return i
	}
	return out
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

// maxProbes is how many keys at a time probe an origin that answered the last probe. The origin sends
// each of them all that the key wants.
const maxProbes = 16

// probeLimiter admits keys to probe an origin, first come, first served: one at a time until a probe
// succeeds, then maxProbes (P56). Safe for concurrent use.
type probeLimiter struct {
	places    chan struct{} // has an element for each probe
	next      chan struct{} // has an element while a key waits for a place, or probes alone
	succeeded atomic.Bool   // the last probe did
}

func newProbeLimiter() *probeLimiter {
	return &probeLimiter{places: make(chan struct{}, maxProbes), next: make(chan struct{}, 1)}
}

// enter waits for a place, and returns how to leave it. It returns an error if ctx ended first.
func (t *probeLimiter) enter(ctx context.Context) (leave func(succeeded bool), err error) {
	select {
	case t.next <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case t.places <- struct{}{}:
	case <-ctx.Done():
		<-t.next
		return nil, context.Cause(ctx)
	}
	alone := !t.succeeded.Load()
	if !alone {
		<-t.next
	}
	return func(succeeded bool) {
		t.succeeded.Store(succeeded)
		<-t.places
		if alone {
			<-t.next
		}
	}, nil
}
