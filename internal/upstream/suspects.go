package upstream

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
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
	excluded map[suspect]*exclusion
	untried  [][]suspect          // groups of excluded suspects, to be tried together
	passed   map[suspect]struct{} // a trial with them was not ended; the origin has not answered them
	trying   bool                 // tryExcluded runs
	changed  chan struct{}        // closed when untried grew
}

// exclusion is about an excluded suspect.
type exclusion struct {
	err      error     // how the origin ended a trial with this suspect alone; nil: that did not happen
	failures int       // such trials in a row
	since    time.Time // the first one
	failedAt time.Time // the last one
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
func (l *originStream) suspected() []suspect {
	if !l.open || !l.endedByOrigin.Load() || time.Since(l.addedAt) > suspectWithin {
		return nil
	}
	var out []suspect
	for _, t := range l.carried(l.interest.Newest()).Types {
		wildcard, names := l.resumption.Unanswered(l.at.name, t, l.sink.Held(t.Type))
		if wildcard {
			out = append(out, suspect{typePart: typePart{t.Type, true}})
		}
		for _, name := range names {
			out = append(out, suspect{typePart{t.Type, false}, name})
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(out, func(x suspect) bool {
		_, passed := l.suspects.passed[x]
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
	if x.excluded == nil {
		x.excluded, x.passed = make(map[suspect]*exclusion), make(map[suspect]struct{})
		x.changed = make(chan struct{})
	}
	for _, it := range these {
		x.excluded[it] = new(exclusion)
	}
	x.add(these)
	start, x.trying = !x.trying, true
	return start
}

// add adds a group to be tried. The lock is held.
func (x *suspects) add(group []suspect) {
	x.untried = append(x.untried, group)
	x.wake()
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
	names := make(map[xds.TypeURL][]string)
	for x := range s.suspects.excluded {
		if !x.wildcard {
			names[x.typ] = append(names[x.typ], x.name)
		}
	}
	out := new(snapshot.Interest)
	for _, t := range i.Types {
		if t.Wildcard && s.suspects.excluded[suspect{typePart: typePart{t.Type, true}}] != nil {
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
		group, changed, wait := s.nextTrial(at.backSince(), time.Now())
		switch {
		case group != nil:
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
		l := s.newOriginStream(at, make(adsclient.Resumption))
		l.seen, l.trial = seen, newTrial(group)
		err := l.trial.serve(ctx, l)
		l.close()
		if ctx.Err() != nil {
			return
		}
		s.settle(l, err)
		if errors.Is(err, errPassed) || !s.withoutSuspects(s.interestNow()).Empty() || at.responds() {
			inARow = 0
		} else if failed, _ := s.ended(ctx, l, err, false); failed {
			// Nothing else is left of the key, so trials are its attempts.
			if inARow++; inARow >= failuresToSwitch {
				if next := s.nextOrigin(at); next != at {
					end(&leave{choice{at: next}, telemetry.Switched})
					return
				}
			}
		}
		seen = l.seen
		sleep(ctx, trialPause)
	}
}

// forgetUnwanted ends the exclusion of suspects that no client wants any more. The lock is held.
func (x *suspects) forgetUnwanted(i *snapshot.Interest) {
	n := len(x.excluded)
	maps.DeleteFunc(x.excluded, func(it suspect, _ *exclusion) bool { return !wants(i, it) })
	maps.DeleteFunc(x.passed, func(it suspect, _ struct{}) bool { return !wants(i, it) })
	if len(x.excluded) < n {
		x.wake()
	}
}

// nextTrial returns the suspects to try next. If there are none now, it returns for how long, and a
// channel that is closed when there are some before. If nothing is excluded any more, it returns nil.
// back is when the origin came back last; failures before that do not delay a trial.
func (s *Subscriber) nextTrial(back, now time.Time) (group []suspect, changed chan struct{}, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &s.suspects
	for len(x.untried) > 0 {
		group = slices.DeleteFunc(x.untried[0], func(it suspect) bool { return x.excluded[it] == nil })
		x.untried = x.untried[1:]
		if len(group) > 0 {
			return group, nil, 0
		}
	}
	if len(x.excluded) == 0 {
		x.trying = false
		return nil, nil, 0
	}
	wait = time.Hour
	var single []suspect
	for it, e := range x.excluded {
		due := !e.due.After(now)
		switch {
		case e.failedAt.Before(back), due && e.err == nil:
			group = append(group, it)
		case due:
			single = []suspect{it}
		default:
			wait = min(wait, e.due.Sub(now))
		}
	}
	if group == nil {
		group = single
	}
	return group, x.changed, wait
}

// settle records the result of a trial. The suspects that the origin answered return to the key's
// stream, and so do all of a trial that was not ended. If the origin ended the trial, the others are
// tried by halves. A single one backs off.
func (s *Subscriber) settle(l *originStream, err error) {
	passed := errors.Is(err, errPassed)
	left := l.trial.unanswered()
	s.mu.Lock()
	x := &s.suspects
	for _, it := range l.trial.group {
		if _, open := left[it]; !open || passed {
			delete(x.excluded, it)
		}
		if _, open := left[it]; open && passed {
			x.passed[it] = struct{}{}
		}
	}
	rest := slices.DeleteFunc(slices.Clone(l.trial.group), func(it suspect) bool { return x.excluded[it] == nil })
	ended := l.open && l.endedByOrigin.Load()
	var culprit *exclusion
	switch {
	case len(rest) == 0:
	case len(rest) == 1 && ended:
		culprit = x.excluded[rest[0]]
		culprit.failures++
		culprit.err, culprit.failedAt = err, time.Now()
		if culprit.failures == 1 {
			culprit.since = culprit.failedAt
		}
		culprit.due = culprit.failedAt.Add(s.client.opts.Backoff.delay(culprit.failures, upTo))
	case ended:
		x.untried = append([][]suspect{rest[:len(rest)/2], rest[len(rest)/2:]}, x.untried...)
	default: // the trial says nothing
		now := time.Now()
		for _, it := range rest {
			e := x.excluded[it]
			e.failures++
			e.failedAt, e.due = now, now.Add(s.client.opts.Backoff.delay(e.failures, upTo))
		}
	}
	cells := slices.Clone(s.cells)
	s.mu.Unlock()
	if len(rest) < len(l.trial.group) {
		for _, c := range cells {
			c.Notify()
		}
	}
	if culprit != nil && culprit.failures == 1 && !l.at.isAway() {
		s.log.Warn("origin ends each stream with this subscription; its clients wait", "origin", l.at.name,
			"type", rest[0].typ, "name", rest[0].name, "error", err)
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
	var all []suspect
	for it, of := range s.suspects.excluded {
		if of.err != nil {
			all = append(all, it)
		}
	}
	slices.SortFunc(all, func(a, b suspect) int { return cmp.Or(cmp.Compare(a.typ, b.typ), cmp.Compare(a.name, b.name)) })
	for _, it := range all {
		of, last := s.suspects.excluded[it], len(out)-1
		if last < 0 || out[last].Type != it.typ || (out[last].Count == 0) != it.wildcard {
			out = append(out, Suspended{Type: it.typ, Since: of.since, Err: of.err})
			last++
		}
		o := &out[last]
		if of.since.Before(o.Since) {
			o.Since = of.since
		}
		if it.wildcard {
			continue
		}
		if o.Count++; len(o.Names) < maxSuspendedNames {
			o.Names = append(o.Names, it.name)
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

// trial is a stream with suspects alone.
type trial struct {
	group []suspect // constant

	mu   sync.Mutex
	left map[suspect]struct{} // those that the origin has not answered
	end  context.CancelCauseFunc
}

func newTrial(group []suspect) *trial {
	t := &trial{group: group, left: make(map[suspect]struct{}, len(group))}
	for _, it := range group {
		t.left[it] = struct{}{}
	}
	return t
}

// errPassed ends a trial: the origin answered everything, or did not end the stream in time.
var errPassed = errors.New("origin accepts these subscriptions")

// serve is one attempt. It returns errPassed if the trial was not ended.
func (t *trial) serve(ctx context.Context, l *originStream) error {
	attempt, end := context.WithCancelCause(ctx)
	defer end(nil)
	t.end = end
	return l.attempt(attempt, 0)
}

// opened starts the time of the trial. The stream's goroutine calls it.
func (t *trial) opened() {
	time.AfterFunc(suspectWithin, func() { t.end(errPassed) }) // no effect once the trial is over
}

// carried is what the trial carries of the interest.
func (t *trial) carried(i *snapshot.Interest) *snapshot.Interest {
	out := new(snapshot.Interest)
	names := make(map[xds.TypeURL][]string)
	for _, it := range t.group {
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

// answered records an update that the trial brought. It ends the trial once everything is answered.
func (t *trial) answered(u *snapshot.Update) {
	t.mu.Lock()
	drop := func(name string) {
		delete(t.left, suspect{typePart{u.Type, u.Wildcard}, name})
	}
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
	all := len(t.left) == 0
	t.mu.Unlock()
	if all {
		t.end(errPassed)
	}
}

// unanswered returns what the origin has not answered.
func (t *trial) unanswered() map[suspect]struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.left
}
