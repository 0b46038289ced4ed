package upstream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream/adsclient"
	"xdsrelay/internal/upstream/timing"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// probe asks an origin that the key prefers to the one in use (P56). It sends the key's requests on
// a stream of its own, and ACKs the responses but keeps them back. Once every type was answered,
// the stream becomes the key's and the responses are applied. The goroutines of the stream's
// attempt own it, except the fields that say otherwise.
type probe struct {
	end      context.CancelCauseFunc // ends the attempt
	ended    chan struct{}           // closed when the attempt has ended
	err      error                   // why it ended; valid once ended is closed
	ready    chan struct{}           // closed once every type was answered
	promoted chan struct{}           // closed when the stream becomes the key's

	covered map[typePart]bool // the origin answered for it
	kept    adsclient.Kept
	before  map[xds.TypeURL]*snapshot.Snapshot // what was held of the wildcards when the probe listed it
}

// probeTimeout ends a probe without progress, because other keys wait for its place. Progress is an
// answer for a further type, or that bytes of a response arrive: a large one may take long on a
// slow path.
const probeTimeout = 10 * time.Second

var errIncomplete = errors.New("origin did not answer all types of the probe")

// seekPreferred ends the stay at an origin once one answers a probe that the key prefers to it: those
// before it in the key's order, or the first if it left the order. The key's second stream follows the
// first one to its origin instead.
func (s *Source) seekPreferred(ctx, stay context.Context, at *Origin, end context.CancelCauseFunc) {
	if other := s.first.awaitOther(stay, at); other != nil {
		end(&move{to: other, reason: telemetry.Switched})
		return
	}
	for stay.Err() == nil {
		order, changed := s.client.order.Origins(s.key)
		s.forgetOthers(order)
		if len(order) > 0 && order[0] == at && changed == nil {
			return
		}
		s.probeAll(ctx, stay, at, preferredTo(at, order), changed, end)
	}
}

// preferredTo returns those of an order that a key probes while it uses an origin.
func preferredTo(at *Origin, order []*Origin) []*Origin {
	if i := slices.Index(order, at); i >= 0 {
		return order[:i]
	}
	return order[:1]
}

// probeAll probes the origins that the key prefers to at, until one answers, the key prefers
// others, or stay ends.
func (s *Source) probeAll(ctx, stay context.Context, at *Origin, preferred []*Origin, changed <-chan struct{}, end context.CancelCauseFunc) {
	until, stop := context.WithCancel(stay)
	var probes sync.WaitGroup
	defer probes.Wait()
	defer stop()
	for _, p := range preferred {
		delay := s.probeDelay(p)
		switch {
		case at.draining.Load():
			delay = 0
		case at.Member || p.Member:
			delay = settleAfter
		}
		probes.Go(func() {
			stream, ok := s.probe(ctx, until, p, delay)
			if !ok {
				return
			}
			m := &move{to: p, stream: stream, reason: telemetry.Returned}
			if end(m); stream != nil && context.Cause(stay) != m { // another one was faster
				stream.discard()
			}
		})
	}
	for same := true; same; {
		select {
		case <-changed:
		case <-stay.Done():
			return
		}
		var order []*Origin
		order, changed = s.client.order.Origins(s.key)
		same = slices.Equal(preferredTo(at, order), preferred)
	}
}

// probe probes an origin again and again, first after delay. It returns true once the origin
// answered, with the stream that did, if it can become the key's. It returns false if stay ended.
func (s *Source) probe(ctx, stay context.Context, at *Origin, delay time.Duration) (*stream, bool) {
	warned := false
	for failures, wait := 0, delay; ; {
		timing.Sleep(stay, wait)
		if !s.awaitInterest(stay) || at.Member && delay > 0 && !at.awaitSettled(stay) {
			return nil, false
		}
		leave, err := at.probes.Enter(stay)
		if err != nil {
			return nil, false
		}
		stream, missing, err := s.probeOnce(ctx, stay, at)
		leave(err == nil)
		switch {
		case err == nil:
			return stream, true
		case errors.Is(err, errReopen): // the key wants something else, or nothing
			failures, wait = 0, 0
			continue
		case errors.Is(err, errIncomplete) && !warned:
			warned = true
			s.log.Warn("preferred origin not used: it does not answer all types", "origin", at.Name, "types", missing)
		}
		failures++
		wait = at.backoff(s.client.opts.Backoff, failures)
	}
}

// probeOnce probes an origin once. It returns the stream once all types were answered; nil if the
// origin is a directory, which is read again. Otherwise it returns why the probe ended, and the
// types that were not answered.
func (s *Source) probeOnce(ctx, stay context.Context, at *Origin) (_ *stream, missing []string, err error) {
	attempt, end := context.WithCancelCause(ctx)
	p := &probe{end: end, ended: make(chan struct{}), ready: make(chan struct{}), promoted: make(chan struct{}), covered: make(map[typePart]bool)}
	stream := s.newStream(at, make(adsclient.LastVersions))
	stream.probing.Store(p)
	if stream.carriedNow().Empty() {
		end(errReopen)
	}
	go func() { // discard and run wait for its end
		p.err = stream.attempt(attempt, 0)
		close(p.ended)
	}()
	select {
	case <-p.ready:
		if _, file := at.transport.(directory); !file {
			return stream, nil, nil
		}
	case <-stay.Done():
		err = context.Cause(stay)
	case <-p.ended:
		err = p.err
		s.log.Debug("probe failed", "origin", at.Name, "error", err)
		if stream.status.Connected && !errors.Is(err, errReopen) && !errors.Is(err, errIncomplete) { // the origin ended it
			stream.ended(err, false)
		}
	}
	stream.discard()
	for _, part := range p.missing(stream.carriedNow()) {
		missing = append(missing, xds.TypeOf(part.typ).Label())
	}
	return nil, missing, err
}

// discard ends a probe and waits for its end.
func (s *stream) discard() {
	p := s.probing.Load()
	p.end(nil)
	<-p.ended
	s.close()
}

// run is attempt for the key's stream. If the stream was a probe, its attempt runs already.
func (s *stream) run(ctx context.Context, wait time.Duration) error {
	p := s.probing.Load()
	if p == nil {
		return s.attempt(ctx, wait)
	}
	close(p.promoted)
	defer context.AfterFunc(ctx, func() { p.end(context.Cause(ctx)) })()
	defer p.end(nil)
	<-p.ended
	s.probing.Store(nil) // it may have ended before it was promoted
	return p.err
}

// promote makes a probe the key's stream. The caller then applies what was kept back. If unlisted
// is true, the stream has to be opened again after that: the other origin added a resource to a
// wildcard meanwhile, and in delta this origin does not say that it does not have it.
func (s *stream) promote() (kept adsclient.Kept, unlisted bool) {
	p := s.probing.Swap(nil)
	s.interest.notify() // the key's stream carries more
	s.status.OpenedAt = time.Now()
	s.report()
	for typ, before := range p.before {
		for r := range s.sink.Newest(typ).Part(snapshot.ByWildcard).Resources {
			unlisted = unlisted || before.Part(snapshot.ByWildcard).Resource(r.Name) == nil
		}
	}
	return p.kept, unlisted && s.at.Variant == xds.Delta
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

// cover records that the origin answered for a part of a type.
func (p *probe) cover(part typePart, i *snapshot.Interest) {
	p.covered[part] = true
	p.check(i)
}

// check makes the probe ready once the origin answered for every type of the interest.
func (p *probe) check(i *snapshot.Interest) {
	if len(p.covered) == 0 || len(p.missing(i)) > 0 {
		return
	}
	select {
	case <-p.ready:
	default:
		close(p.ready)
	}
}

// lacksOnlyNames reports whether only names of which a SotW origin may say nothing are missing. Then they
// count as answered: it may have none of them.
func (p *probe) lacksOnlyNames(s *stream) bool {
	i := s.carriedNow()
	missing := p.missing(i)
	if s.at.Variant == xds.Delta || len(p.covered) == 0 || slices.ContainsFunc(missing, func(part typePart) bool {
		return part.scope == snapshot.ByWildcard || xds.TypeOf(part.typ).FullState
	}) {
		return false
	}
	for _, part := range missing {
		p.cover(part, i)
	}
	return true
}

// missing are the types that the probe carries and for which the origin has not answered.
func (p *probe) missing(i *snapshot.Interest) (out []typePart) {
	for _, t := range i.Types {
		if part := (typePart{t.Type, t.Scope()}); !t.Empty() && !p.covered[part] {
			out = append(out, part)
		}
	}
	return out
}

// knownOnly is what a probe carries of the interest: what is known of the types of which something
// is held. What no origin has answered is not among it, because it may end the stream (P68). If
// nothing is held, the probe carries everything.
func (s *Source) knownOnly(i *snapshot.Interest) *snapshot.Interest {
	out := new(snapshot.Interest)
	if i == nil {
		return out
	}
	for _, t := range i.Types {
		part := s.sink.Newest(t.Type).Part(t.Scope())
		switch {
		case !holds(part):
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

// left records why the key has left an origin, and whether its return to it lasted.
func (s *Source) left(at, to *Origin, reason telemetry.Reconnect) {
	at.metrics.Reconnect(reason)
	if (at.Member || to.Member) && !s.follows() {
		s.client.opts.Metrics.ClusterMove(moveFor(at, reason))
	}
	if reason == telemetry.Returned {
		s.succeeded()
		s.returned = time.Now()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
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
func (s *Source) probeDelay(at *Origin) time.Duration {
	s.mu.Lock()
	n := s.shortReturns[at]
	s.mu.Unlock()
	if n == 0 {
		return 0
	}
	b := s.client.opts.Backoff
	bound := timing.Backoff{Base: 8 * b.Base, Max: 20 * b.Max}.Delay(n, func(d time.Duration) time.Duration { return d })
	return bound/2 + timing.UpTo(bound/2)
}
