package upstream

import (
	"context"
	"errors"
	"time"
)

// seeker tries out an origin that is preferred to the one that serves, until it
// answers or another one is found (P56).
type seeker struct {
	at     *site
	cancel context.CancelFunc
}

// seek has the origins that are preferred to the one that serves be tried out,
// and no others.
func (s *Stream) seek(ctx context.Context) {
	rank := s.serving.at.rank
	for len(s.seekers) > rank {
		last := len(s.seekers) - 1
		s.seekers[last].cancel()
		s.seekers = s.seekers[:last]
	}
	for len(s.seekers) < rank {
		own, cancel := context.WithCancel(ctx)
		k := &seeker{at: s.client.sites[len(s.seekers)], cancel: cancel}
		s.seekers = append(s.seekers, k)
		s.wg.Go(func() {
			defer cancel()
			k.run(own, ctx, s)
		})
	}
}

// run tries until the origin is found, or ctx ends. life is that of the Stream.
// How often an origin is tried is each key's to say, how many keys may at a time
// the origin's.
func (k *seeker) run(ctx, life context.Context, s *Stream) {
	for failures := 0; ctx.Err() == nil; {
		if failures > 0 {
			sleep(ctx, s.client.opts.Backoff.delay(failures, upTo))
		}
		if !s.awaitInterest(ctx) || k.at.tries.enter(ctx) != nil {
			return
		}
		found, err := k.try(ctx, life, s)
		k.at.tries.leave()
		if found {
			return
		}
		if failures++; errors.Is(err, errReopen) {
			failures = 0 // it is to be asked for something else
		}
	}
}

// tryFor is how long an origin may take to answer every type, beside what a name
// may take (P57). Others are waiting for their turn.
const tryFor = time.Minute

var errSlow = errors.New("origin does not answer every type in time")

// try tries the origin out once. It reports true once its line is handed over:
// its attempt goes on.
func (k *seeker) try(ctx, life context.Context, s *Stream) (found bool, err error) {
	news := make(chan struct{}, 1)
	l := s.line(k.at, make(memory), newStage(s.client.opts.Variant, news))
	l.start(life, 0)

	interest := newCell()
	s.join(&interest)
	defer s.leave(&interest)
	patience := s.client.opts.AbsentAfter
	late := time.NewTimer(patience)
	defer late.Stop()
	limit := time.NewTimer(patience + tryFor)
	defer limit.Stop()
	for isLate := false; ; {
		var found chan *line
		if l.stage.ready(s.interestNow(), s.sink.Held, isLate) {
			found = s.found
		}
		select {
		case found <- l:
			return true, nil
		case <-news:
		case <-interest.signal:
		case <-late.C:
			isLate = true
		case <-limit.C:
			l.cancel(errSlow)
			limit.Stop()
		case <-ctx.Done():
			l.cancel(context.Cause(ctx))
			err = <-l.done
			l.close()
			return false, err
		case err = <-l.done:
			if !errors.Is(err, errReopen) && life.Err() == nil {
				reason := l.ended(err)
				l.log.Debug("origin tried out in vain", "origin", l.at.name, "reason", reason, "error", err)
			}
			l.close()
			return false, err
		}
	}
}
