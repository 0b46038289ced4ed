package suspects

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Suspect is the wildcard of a type, or a name.
type Suspect struct {
	Type     xds.TypeURL
	Wildcard bool
	Name     string
}

// wantedBy reports whether the interest has the suspect.
func (s Suspect) wantedBy(i *snapshot.Interest) bool {
	t := i.Of(s.Type)
	return s.Wildcard && t.Wildcard || !s.Wildcard && t.Names.Has(s.Name)
}

// List has the suspects that are excluded from a key's stream. The zero value is empty.
type List struct {
	excluded []*exclusion         // in the order of their trials
	passed   map[Suspect]struct{} // a trial with them was not ended, and brought no response for them
}

// exclusion is excluded suspects that are tried together.
type exclusion struct {
	suspects []Suspect // replaced, never changed: a Trial reads them
	err      error     // how the origin ended the last trial, if there is one suspect; nil: it did not
	since    time.Time // when the origin ended the first such trial
	failures int       // trials in a row
	failedAt time.Time // when the last trial with these suspects ended
	due      time.Time // when the next trial is due
}

// Empty reports whether nothing is excluded.
func (l *List) Empty() bool { return len(l.excluded) == 0 }

// Passed reports whether the suspect passed a trial.
func (l *List) Passed(s Suspect) bool {
	_, passed := l.passed[s]
	return passed
}

// Exclude adds suspects that are not excluded yet.
func (l *List) Exclude(these []Suspect) { l.excluded = append(l.excluded, &exclusion{suspects: these}) }

// Without returns the interest without what is excluded.
func (l *List) Without(i *snapshot.Interest) *snapshot.Interest {
	if i == nil || l.Empty() {
		return i
	}
	wildcards, names := make(map[xds.TypeURL]bool), make(map[xds.TypeURL][]string)
	for _, e := range l.excluded {
		for _, s := range e.suspects {
			if s.Wildcard {
				wildcards[s.Type] = true
			} else {
				names[s.Type] = append(names[s.Type], s.Name)
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

// Forget removes what the interest does not have.
func (l *List) Forget(i *snapshot.Interest) {
	unwanted := func(s Suspect) bool { return !s.wantedBy(i) }
	maps.DeleteFunc(l.passed, func(s Suspect, _ struct{}) bool { return unwanted(s) })
	l.excluded = slices.DeleteFunc(l.excluded, func(e *exclusion) bool {
		e.suspects = slices.DeleteFunc(slices.Clone(e.suspects), unwanted)
		return len(e.suspects) == 0
	})
}

// Next returns the next trial. If none is due, it returns nil, and for how long. back is when the
// origin came back last: failures before that do not delay a trial.
func (l *List) Next(back, now time.Time) (*Trial, time.Duration) {
	wait := time.Hour
	l.mergeBefore(back)
	for _, e := range l.excluded {
		if !e.due.After(now) || e.failedAt.Before(back) {
			return newTrial(e), 0
		}
		wait = min(wait, e.due.Sub(now))
	}
	return nil, wait
}

// mergeBefore makes one exclusion of those that were last tried before the origin came back. An
// origin that is away ends each trial, so these trials found nothing out.
func (l *List) mergeBefore(back time.Time) {
	before := func(e *exclusion) bool { return e.failedAt.Before(back) }
	merged, n := new(exclusion), 0
	for _, e := range l.excluded {
		if before(e) {
			merged.suspects = append(merged.suspects, e.suspects...)
			n++
		}
	}
	if n > 1 {
		l.excluded = slices.Insert(slices.DeleteFunc(l.excluded, before), 0, merged)
	}
}

// Result is how the stream of a trial ended.
type Result struct {
	Passed bool  // the origin answered everything, or did not end the stream in time
	Ended  bool  // the origin ended it by its own status
	Err    error // why it ended
}

// Settle records the result of a trial. The suspects that the origin answered leave the list, and so do
// all of a trial that passed. If the origin ended the trial, the others are tried by halves. A single
// one is tried again after delay, and so are those of a trial that ended for another reason. Settle
// reports whether any left the list. It returns the suspect that this trial found to be a culprit; nil:
// none, or it was known.
func (l *List) Settle(t *Trial, r Result, now time.Time, delay func(failures int) time.Duration) (left bool, culprit *Suspect) {
	e := t.exclusion
	before := len(e.suspects)
	e.suspects = slices.DeleteFunc(slices.Clone(e.suspects), func(s Suspect) bool {
		_, open := t.open[s]
		if open && r.Passed {
			if l.passed == nil {
				l.passed = make(map[Suspect]struct{})
			}
			l.passed[s] = struct{}{}
		}
		return !open || r.Passed
	})
	n := len(e.suspects)
	l.excluded = slices.DeleteFunc(l.excluded, func(other *exclusion) bool { return other == e })
	switch {
	case n == 0:
	case r.Ended && n > 1:
		l.excluded = slices.Insert(l.excluded, 0, &exclusion{suspects: e.suspects[:n/2], failedAt: now}, &exclusion{suspects: e.suspects[n/2:], failedAt: now})
	default:
		e.failures++
		e.failedAt, e.due = now, now.Add(delay(e.failures))
		if r.Ended {
			if e.err == nil {
				e.since, culprit = now, &e.suspects[0]
			}
			e.err = r.Err
		}
		l.excluded = append(l.excluded, e)
	}
	return n < before, culprit
}

// Suspended is a type, or names of a type, that the key's stream does not carry because the origin
// ends each stream with them.
type Suspended struct {
	Type  xds.TypeURL
	Names []string // the first ones in order, at most maxNames; empty: the wildcard
	Count int      // of the names
	Since time.Time
	Err   error // how the origin ended the last stream with the first of the names
}

// maxNames bounds the names in a Suspended.
const maxNames = 5

// Suspended returns the culprits, by type.
func (l *List) Suspended() (out []Suspended) {
	culprits := slices.DeleteFunc(slices.Clone(l.excluded), func(e *exclusion) bool { return e.err == nil })
	slices.SortFunc(culprits, func(a, b *exclusion) int {
		x, y := a.suspects[0], b.suspects[0]
		return cmp.Or(cmp.Compare(x.Type, y.Type), cmp.Compare(x.Name, y.Name))
	})
	for _, e := range culprits {
		s, last := e.suspects[0], len(out)-1
		if last < 0 || out[last].Type != s.Type || (out[last].Count == 0) != s.Wildcard {
			out = append(out, Suspended{Type: s.Type, Since: e.since, Err: e.err})
			last++
		}
		o := &out[last]
		if e.since.Before(o.Since) {
			o.Since = e.since
		}
		if s.Wildcard {
			continue
		}
		if o.Count++; len(o.Names) < maxNames {
			o.Names = append(o.Names, s.Name)
		}
	}
	return out
}
