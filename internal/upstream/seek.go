package upstream

import (
	"context"
	"errors"
	"fmt"
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
		calm := s.calm(k.at)
		s.wg.Go(func() {
			defer cancel()
			k.run(own, ctx, s, calm)
		})
	}
}

// lasting is how long a return has to last to be none to regret.
const lasting = time.Minute

// left takes notice that an origin does not serve any more, since it failed.
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

// calm is how long an origin is not tried out at first: the longer, the more often
// it answered and then failed at once. Without it a key would go to and fro.
func (s *Stream) calm(at *site) time.Duration {
	n := s.fleeting[at]
	if n == 0 {
		return 0
	}
	b := s.client.opts.Backoff
	bound := Backoff{Base: 8 * b.Base, Max: 20 * b.Max}.delay(n, func(d time.Duration) time.Duration { return d })
	return bound/2 + upTo(bound/2)
}

// run tries until the origin is found, or ctx ends. life is that of the Stream.
// How often an origin is tried is each key's to say, how many keys may at a time
// the origin's.
func (k *seeker) run(ctx, life context.Context, s *Stream, calm time.Duration) {
	sleep(ctx, calm)
	for failures, slow := 0, 0; ctx.Err() == nil; {
		if failures > 0 {
			sleep(ctx, s.client.opts.Backoff.delay(failures, upTo))
		}
		if !s.awaitInterest(ctx) {
			return
		}
		turn, err := k.at.tries.enter(ctx)
		if err != nil {
			return
		}
		found, err := k.try(ctx, life, s, turn, slow)
		turn.leave()
		if found {
			return
		}
		failures++
		switch {
		case errors.Is(err, errSlow):
			slow++
		case errors.Is(err, errReopen):
			failures = 0 // it is to be asked for something else, or for nothing
		}
	}
}

// tryFor is how long an origin may take to answer every type. Then another stream may be luckier, which may lead to another
// server; each time it may take twice as long, up to tryForMax, since each time
// everything is asked for.
const (
	tryFor    = time.Minute
	tryForMax = time.Hour
)

var (
	errSlow     = errors.New("origin does not answer every type in time")
	errUnwanted = fmt.Errorf("%w: nothing is wanted any more", errReopen)
)

// try tries the origin out once. It reports true once its line is handed over:
// its attempt goes on. An origin that was reached and says nothing more for a
// while has nothing to do for this key: then it is the turn of others, and the
// stream stays for what is still to come.
func (k *seeker) try(ctx, life context.Context, s *Stream, turn *turn, slow int) (found bool, err error) {
	interest := newCell()
	s.join(&interest)
	defer s.leave(&interest)
	if !interest.wanted() {
		return false, errUnwanted // while it waited for its turn
	}
	news := make(chan struct{}, 1)
	l := s.line(k.at, make(memory), newStage(s.client.opts.Variant, news))
	l.start(life, 0)

	limit := time.NewTimer(min(tryFor<<min(slow, 6), tryForMax))
	defer limit.Stop()
	silent := time.NewTimer(time.Hour)
	silent.Stop()
	defer silent.Stop()
	var why error // it was ended
	for {
		var found chan *line
		if l.stage.ready(s.interestNow(), s.sink.Held) {
			found = s.found
		}
		select {
		case found <- l:
			return true, nil
		case <-news:
			silent.Reset(k.at.tries.silence)
		case <-interest.signal:
			if !interest.wanted() && why == nil {
				why = errUnwanted
				l.cancel(why)
			}
		case <-silent.C:
			turn.leave()
		case <-limit.C:
			if why == nil {
				why = errSlow
				l.cancel(why)
			}
		case <-ctx.Done():
			l.cancel(context.Cause(ctx))
			err = <-l.done
			l.close()
			return false, err
		case err = <-l.done:
			switch {
			case why != nil: // its failure is none
				err = why
			case !errors.Is(err, errReopen) && life.Err() == nil:
				reason := l.ended(err)
				l.log.Debug("origin tried out in vain", "origin", l.at.name, "reason", reason, "error", err)
			}
			if why == errSlow && slow == 0 {
				l.log.Warn("a preferred origin leaves types unanswered, and is not returned to", "origin", l.at.name, "types", l.stage.unanswered(s.interestNow()))
			}
			l.close()
			return false, err
		}
	}
}
