package upstream

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream/adsclient"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Origins end a stream because of one type that they do not know, or one name that they reject (P68).
// The key's clients share the stream, so one client's request would end it for all of them. A suspect
// is a part of the interest that the origin in use has not answered. If the origin ends two streams in
// a row soon after a request with suspects, the key's stream goes on without them. They are tried on a
// stream of their own: all of them, then halves, until those that end a stream alone are found. The
// others return to the key's stream.

// suspect is the wildcard of a type, or a name.
type suspect struct {
	typePart
	name string
}

// suspects are what the key's stream at the origin in use does not carry.
type suspects struct {
	excluded []*exclusion         // in the order of their trials
	passed   map[suspect]struct{} // a trial with them was not ended, and brought no response for them
	trying   bool                 // tryExcluded runs
	changed  chan struct{}        // closed when excluded changed
}

// exclusion is excluded suspects that are tried together.
type exclusion struct {
	suspects []suspect
	err      error     // how the origin ended the last trial, if there is one suspect; nil: it did not
	since    time.Time // when the origin ended the first such trial
	failures int       // trials in a row
	failedAt time.Time // when the last one ended
	due      time.Time // when the next trial is due
}

const (
	// suspectWithin is how soon after a request the end of the stream makes its suspects suspicious. A
	// trial that lives for longer clears them.
	suspectWithin = 5 * time.Second
	// suspicionsToExclude is how many such ends in a row exclude the suspects.
	suspicionsToExclude = 2
	// trialPause is the pause between two trials of a key.
	trialPause = 50 * time.Millisecond
)

// resetSuspects forgets the suspects, because the key uses another origin.
func (s *Subscriber) resetSuspects() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspects = suspects{}
}

// suspected returns the suspects for which the origin may have ended the stream: those of a stream
// that the origin ended by its own status, soon after a request.
func (o *originStream) suspected() []suspect {
	if !o.open || !o.endedByOrigin.Load() || time.Since(o.addedAt) > suspectWithin {
		return nil
	}
	var out []suspect
	for _, t := range o.carried(o.interest.Newest()).Types {
		wildcard, names := o.resumption.Unanswered(o.at.name, t, o.sink.Held(t.Type))
		if wildcard {
			out = append(out, suspect{typePart: typePart{t.Type, true}})
		}
		for _, name := range names {
			out = append(out, suspect{typePart{t.Type, false}, name})
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(out, func(x suspect) bool {
		_, passed := o.suspects.passed[x]
		return passed
	})
}

// exclude makes the key's stream go on without these suspects. It reports whether tryExcluded has to
// be started.
func (s *Subscriber) exclude(these []suspect) (start bool) {
	s.log.Warn("upstream stream goes on without what the origin has not answered: the origin ended two streams in a row",
		"subscriptions", len(these))
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &s.suspects
	if x.changed == nil {
		x.passed, x.changed = make(map[suspect]struct{}), make(chan struct{})
	}
	x.excluded = append(x.excluded, &exclusion{suspects: these})
	x.wake()
	start, x.trying = !x.trying, true
	return start
}

// wake makes tryExcluded look again. The lock is held.
func (x *suspects) wake() {
	close(x.changed)
	x.changed = make(chan struct{})
}

// withoutSuspects is what the key's stream carries of the interest.
func (s *Subscriber) withoutSuspects(i *snapshot.Interest) *snapshot.Interest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i == nil || len(s.suspects.excluded) == 0 {
		return i
	}
	wildcards, names := make(map[xds.TypeURL]bool), make(map[xds.TypeURL][]string)
	for _, e := range s.suspects.excluded {
		for _, x := range e.suspects {
			if x.wildcard {
				wildcards[x.typ] = true
			} else {
				names[x.typ] = append(names[x.typ], x.name)
			}
		}
	}
	out := new(snapshot.Interest)
	for _, t := range i.Types {
		if t.Wildcard && wildcards[t.Type] {
			continue
		}
		if t.Names = t.Names.Remove(names[t.Type]...); !t.Empty() {
			out.Types = append(out.Types, t)
		}
	}
	return out
}

// wants reports whether the interest still has a suspect.
func wants(i *snapshot.Interest, x suspect) bool {
	t := i.Of(x.typ)
	return x.wildcard && t.Wildcard || !x.wildcard && t.Names.Has(x.name)
}

// tryExcluded tries the excluded suspects, until none is left or ctx ends. end ends the use of the
// origin. seen is the number of the origin's failures that the key has counted.
func (s *Subscriber) tryExcluded(ctx context.Context, at *originState, seen uint64, end context.CancelCauseFunc) {
	for inARow := 0; ctx.Err() == nil; {
		back := at.whenChanged()
		trial, changed, wait := s.nextTrial(at.backSince(), time.Now())
		switch {
		case trial != nil:
		case changed == nil:
			return // nothing is excluded any more
		default:
			timer := time.NewTimer(wait)
			select {
			case <-changed:
			case <-back:
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
			continue
		}
		attempt, endTrial := context.WithCancelCause(ctx)
		trial.end = endTrial
		stream := s.newOriginStream(at, make(adsclient.Resumption))
		stream.seen, stream.trial = seen, trial
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
			if inARow++; inARow >= failuresToSwitch {
				if next := s.nextOrigin(at); next != at {
					end(&leave{choice{at: next}, telemetry.Switched})
					return
				}
			}
		}
		seen = stream.seen
		sleep(ctx, trialPause)
	}
}

// forgetUnwanted ends the exclusion of suspects that no client wants any more. The lock is held.
func (x *suspects) forgetUnwanted(i *snapshot.Interest) {
	unwanted := func(it suspect) bool { return !wants(i, it) }
	maps.DeleteFunc(x.passed, func(it suspect, _ struct{}) bool { return unwanted(it) })
	for _, e := range x.excluded {
		e.suspects = slices.DeleteFunc(slices.Clone(e.suspects), unwanted) // a trial reads them
	}
	n := len(x.excluded)
	x.excluded = slices.DeleteFunc(x.excluded, func(e *exclusion) bool { return len(e.suspects) == 0 })
	if len(x.excluded) < n {
		x.wake()
	}
}

// nextTrial returns the next trial. If there is none now, it returns for how long, and a channel that
// is closed when something changes before. If nothing is excluded any more, it returns nil. back
// is when the origin came back last; failures before that do not delay a trial.
func (s *Subscriber) nextTrial(back, now time.Time) (next *trial, changed chan struct{}, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &s.suspects
	if len(x.excluded) == 0 {
		x.trying = false
		return nil, nil, 0
	}
	wait = time.Hour
	for _, e := range x.excluded {
		if !e.due.After(now) || e.failedAt.Before(back) {
			left := make(map[suspect]struct{})
			for _, it := range e.suspects {
				left[it] = struct{}{}
			}
			return &trial{exclusion: e, suspects: e.suspects, left: left}, nil, 0
		}
		wait = min(wait, e.due.Sub(now))
	}
	return nil, x.changed, wait
}

// settle records the result of a trial. The suspects that the origin answered return to the key's
// stream, and so do all of a trial that was not ended. If the origin ended the trial, the others are
// tried by halves. A single one backs off. So does a trial that was ended for another reason.
func (s *Subscriber) settle(stream *originStream, err error) {
	e, left := stream.trial.exclusion, stream.trial.left
	passed, ended := errors.Is(err, errPassed), stream.open && stream.endedByOrigin.Load()
	s.mu.Lock()
	x := &s.suspects
	tried := len(e.suspects)
	e.suspects = slices.DeleteFunc(slices.Clone(e.suspects), func(it suspect) bool {
		_, open := left[it]
		if open && passed {
			x.passed[it] = struct{}{}
		}
		return !open || passed
	})
	rest := len(e.suspects)
	var culprit *suspect
	x.excluded = slices.DeleteFunc(x.excluded, func(o *exclusion) bool { return o == e })
	switch {
	case rest == 0:
	case ended && rest > 1:
		x.excluded = slices.Insert(x.excluded, 0, &exclusion{suspects: e.suspects[:rest/2]}, &exclusion{suspects: e.suspects[rest/2:]})
	default:
		e.failures++
		e.failedAt = time.Now()
		e.due = e.failedAt.Add(s.client.opts.Backoff.delay(e.failures, upTo))
		if ended {
			if e.err == nil {
				e.since, culprit = e.failedAt, &e.suspects[0]
			}
			e.err = err
		}
		x.excluded = append(x.excluded, e)
	}
	cells := slices.Clone(s.cells)
	s.mu.Unlock()
	if rest < tried {
		for _, c := range cells {
			c.Notify()
		}
	}
	if culprit != nil && !stream.at.isAway() {
		s.log.Warn("origin ends each stream with this subscription; its clients wait", "origin", stream.at.name,
			"type", culprit.typ, "name", culprit.name, "error", err)
	}
}

// Suspended is a type, or names of a type, that the key's stream does not carry because the origin
// ends each stream with them (P68).
type Suspended struct {
	Type  xds.TypeURL
	Names []string // the first ones in order, at most maxSuspendedNames; empty: the wildcard
	Count int      // of the names
	Since time.Time
	Err   error // how the origin ended the last stream with the first of the names
}

// maxSuspendedNames bounds the names in a Suspended.
const maxSuspendedNames = 5

// Suspended returns what the key's stream does not carry, by type. Any goroutine.
func (s *Subscriber) Suspended() (out []Suspended) {
	if at, _, _ := s.current.get(); at != nil && at.isAway() {
		return nil // it ends all streams
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	culprits := slices.DeleteFunc(slices.Clone(s.suspects.excluded), func(e *exclusion) bool { return e.err == nil })
	slices.SortFunc(culprits, func(a, b *exclusion) int {
		x, y := a.suspects[0], b.suspects[0]
		return cmp.Or(cmp.Compare(x.typ, y.typ), cmp.Compare(x.name, y.name))
	})
	for _, e := range culprits {
		x, last := e.suspects[0], len(out)-1
		if last < 0 || out[last].Type != x.typ || (out[last].Count == 0) != x.wildcard {
			out = append(out, Suspended{Type: x.typ, Since: e.since, Err: e.err})
			last++
		}
		o := &out[last]
		if e.since.Before(o.Since) {
			o.Since = e.since
		}
		if x.wildcard {
			continue
		}
		if o.Count++; len(o.Names) < maxSuspendedNames {
			o.Names = append(o.Names, x.name)
		}
	}
	return out
}

// Excluding reports whether the key's stream goes on without anything that clients want. Any
// goroutine.
func (s *Subscriber) Excluding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.suspects.excluded) > 0
}

// trial is a stream with suspects alone. The goroutines of the stream's attempt own left.
type trial struct {
	exclusion *exclusion
	suspects  []suspect               // of the exclusion when the trial began; constant
	left      map[suspect]struct{}    // those without a response
	end       context.CancelCauseFunc // ends the attempt
}

// errPassed ends a trial: the origin answered everything, or did not end the stream in time.
var errPassed = errors.New("origin accepts these subscriptions")

// opened starts the time of the trial. The stream's goroutine calls it.
func (t *trial) opened() {
	time.AfterFunc(suspectWithin, func() { t.end(errPassed) }) // no effect once the trial has ended
}

// carried is what the trial carries of the interest.
func (t *trial) carried(i *snapshot.Interest) *snapshot.Interest {
	out := new(snapshot.Interest)
	names := make(map[xds.TypeURL][]string)
	for _, it := range t.suspects {
		switch {
		case !wants(i, it):
		case it.wildcard:
			out.Types = append(out.Types, snapshot.TypeInterest{Type: it.typ, Wildcard: true})
		default:
			names[it.typ] = append(names[it.typ], it.name)
		}
	}
	for _, typ := range slices.Sorted(maps.Keys(names)) {
		out.Types = append(out.Types, snapshot.TypeInterest{Type: typ, Names: xds.NewNameSet(names[typ]...)})
	}
	return out
}

// responded records an update that the trial brought. It ends the trial once nothing is left.
func (t *trial) responded(u *snapshot.Update) {
	drop := func(name string) { delete(t.left, suspect{typePart{u.Type, u.Wildcard}, name}) }
	if u.Wildcard {
		drop("")
	}
	for _, r := range u.Changed {
		drop(r.Name)
		for _, alias := range r.AliasesAndGlob() {
			drop(alias)
		}
	}
	for _, name := range u.Removed {
		drop(name)
	}
	for _, e := range u.Errors {
		drop(e.Name)
	}
	if len(t.left) == 0 {
		t.end(errPassed)
	}
}
