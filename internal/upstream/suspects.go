package upstream

import (
	"context"
	"errors"
	"slices"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream/adsclient"
	"xdsrelay/internal/upstream/suspects"
	"xdsrelay/internal/upstream/timing"
	"xdsrelay/internal/xds/snapshot"
)

const (
	// suspectWithin is how soon after a request the end of the stream makes its suspects suspicious. A
	// trial that lives for longer clears them.
	suspectWithin = 5 * time.Second
	// suspicionsToExclude is how many such ends in a row exclude the suspects.
	suspicionsToExclude = 2
	// trialPause is the pause between two trials of a key.
	trialPause = 50 * time.Millisecond
)

// suspected returns the suspects for which the origin may have ended the stream: those of a stream
// that the origin ended by its own status, soon after a request.
func (s *stream) suspected() (out []suspects.Suspect) {
	if s.at.Member || !s.status.Connected || !s.endedByOrigin.Load() || time.Since(s.addedAt) > suspectWithin {
		return nil
	}
	for _, t := range s.carriedNow().Types {
		wildcard, names := s.lastVersions.Unanswered(s.at.Domain, t, s.sink.Newest(t.Type))
		if wildcard {
			out = append(out, suspects.Suspect{Type: t.Type, Wildcard: true})
		}
		for _, name := range names {
			out = append(out, suspects.Suspect{Type: t.Type, Name: name})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(out, s.suspects.Passed)
}

// exclude makes the key's stream go on without these suspects. It reports whether tryExcluded has
// to be started.
func (s *Source) exclude(these []suspects.Suspect) (start bool) {
	s.log.Warn("upstream stream goes on without what the origin has not answered: the origin ended two streams in a row",
		"subscriptions", len(these))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspects.Exclude(these)
	s.wakeTrials()
	start, s.trying = !s.trying, true
	return start
}

func (s *Source) wakeTrials() {
	select {
	case s.retry <- struct{}{}:
	default:
	}
}

// withoutSuspects is what the key's stream carries of the interest.
func (s *Source) withoutSuspects(i *snapshot.Interest) *snapshot.Interest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.suspects.Without(i)
}

// trial is a stream with suspects alone.
type trial struct {
	*suspects.Trial                         // the goroutines of the stream's attempt own it
	end             context.CancelCauseFunc // ends the attempt
}

// errPassed ends a trial: the origin answered everything, or did not end the stream in time.
var errPassed = errors.New("origin accepts these subscriptions")

// opened starts the time of the trial. The stream's goroutine calls it.
func (t *trial) opened() {
	time.AfterFunc(suspectWithin, func() { t.end(errPassed) }) // no effect once the trial has ended
}

// nextTrial returns the next trial. If none is due, it returns nil, and for how long. It returns
// false if nothing is excluded any more.
func (s *Source) nextTrial(back time.Time) (next *suspects.Trial, wait time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.suspects.Empty() {
		s.trying = false
		return nil, 0, false
	}
	next, wait = s.suspects.Next(back, time.Now())
	return next, wait, true
}

// tryExcluded tries the excluded suspects, until none is left or ctx ends. end ends the use of the
// origin. seen is the number of the origin's failures that the key has counted.
func (s *Source) tryExcluded(ctx context.Context, at *Origin, seen uint64, end context.CancelCauseFunc) {
	for inARow := 0; ctx.Err() == nil; {
		back, changed := at.backSince()
		next, wait, ok := s.nextTrial(back)
		if !ok {
			return
		}
		if next == nil {
			timer := time.NewTimer(wait)
			select {
			case <-s.retry:
			case <-changed:
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
			continue
		}
		attempt, endTrial := context.WithCancelCause(ctx)
		stream := s.newStream(at, make(adsclient.LastVersions))
		stream.seen, stream.trial = seen, &trial{next, endTrial}
		err := stream.attempt(attempt, 0)
		endTrial(nil)
		stream.close()
		if ctx.Err() != nil {
			return
		}
		s.settle(stream, err)
		if errors.Is(err, errPassed) || !s.withoutSuspects(s.interestNow()).Empty() || at.responds() {
			inARow = 0
		} else if failed, _ := s.ended(ctx, stream, err, false); failed {
			// Nothing else is left of the key, so trials are its attempts.
			if inARow++; inARow >= at.MaxFailures {
				if to := s.nextOrigin(at, true); to != at {
					end(&move{to: to, reason: telemetry.Switched})
					return
				}
			}
		}
		seen = stream.seen
		timing.Sleep(ctx, trialPause)
	}
}

// settle records the result of a trial. What leaves the list returns to the key's stream.
func (s *Source) settle(stream *stream, err error) {
	r := suspects.Result{Passed: errors.Is(err, errPassed), Ended: stream.status.Connected && stream.endedByOrigin.Load(), Err: err}
	s.mu.Lock()
	left, culprit := s.suspects.Settle(stream.trial.Trial, r, time.Now(), func(failures int) time.Duration {
		return s.client.opts.Backoff.Delay(failures, timing.UpTo)
	})
	s.mu.Unlock()
	if left {
		s.notifyStreams()
	}
	if culprit != nil && !stream.at.isAway() {
		s.log.Warn("origin ends each stream with this subscription; its clients wait", "origin", stream.at.Name,
			"type", culprit.Type, "name", culprit.Name, "error", err)
	}
}

// Suspended is a type, or names of a type, that the key's stream does not carry because the origin
// ends each stream with them (P68).
type Suspended = suspects.Suspended

// Suspended returns what the key's stream does not carry, by type. Any goroutine.
func (s *Source) Suspended() []Suspended {
	if at, _, _ := s.current.get(); at != nil && at.isAway() {
		return nil // it ends all streams
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.suspects.Suspended()
}

// Excluding reports whether the key's stream goes on without anything that clients want. Any
// goroutine.
func (s *Source) Excluding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.suspects.Empty()
}
