package session

import (
	"iter"
	"slices"

	"xdsrelay/internal/xds"
)

// Survey is one look at many sessions. Sessions that are equal in what they subscribe to and
// what they were sent are compared with the newest snapshot once.
type Survey struct {
	seen  map[alike]bool
	waits map[asker]bool
}

// NewSurvey begins a look.
func NewSurvey() Survey {
	return Survey{seen: make(map[alike]bool), waits: make(map[asker]bool)}
}

// asker is a subscription and the newest snapshot for it.
type asker struct {
	sub *xds.Subscription
	to  Mark
}

// alike is what a session's having anything to send follows from, if it is in step
// with what it was sent.
type alike struct {
	sub      *xds.Subscription
	form     xds.Form
	full     bool
	from, to Mark
}

// maxAlike bounds what a survey remembers.
const maxAlike = 1 << 16

// pending is the session's Pending of what is newest.
func (v *Survey) pending(s *Session, newest *xds.Snapshot) bool {
	plain := !s.forced.initialResponsePending && s.forced.names == nil && s.delivered.sentBeforeACK == nil && s.delivered.errors == nil && s.forced.retried == nil && !s.delivered.resendAll
	if !plain {
		return s.Pending(newest)
	}
	if s.delivered.snapshot == newest {
		return false
	}
	k := alike{s.sub.effective, s.form, s.full(), MarkOf(s.delivered.snapshot), MarkOf(newest)}
	if is, ok := v.seen[k]; ok {
		return is
	}
	is := s.Pending(newest)
	if len(v.seen) < maxAlike {
		v.seen[k] = is
	}
	return is
}

// Unsent reports whether something of the newest is for the session that it was not sent.
func (v *Survey) Unsent(s *Session, newest *xds.Snapshot) bool {
	return s.delivered.tooLarge != nil || v.pending(s, newest) || s.silent(newest) && s.wants(newest)
}

// wants reports whether any name that it asks for is there.
func (s *Session) wants(newest *xds.Snapshot) bool {
	for name := range s.sub.effective.Names.All() {
		if _, is := newest.Look(s.sub.effective, name); is == xds.Present || is == xds.Elsewhere {
			return true
		}
	}
	return false
}

// Awaiting reports whether the session asks for anything of which the origin has said
// nothing, and the client was sent nothing. Once that is not so it stays so for what it
// asks for, but for what lapses (P62).
func (v *Survey) Awaiting(s *Session, newest *xds.Snapshot) bool {
	if newest != nil && s.sub.knownIn == newest.Lineage && !newest.AnyLapsed() {
		return false
	}
	if v.unknown(s.sub.effective, newest) {
		for range s.Unheard(newest) {
			return true
		}
	}
	if newest != nil {
		s.sub.knownIn = newest.Lineage
	}
	return false
}

// unknown reports whether there are any names that Awaits yields.
func (v *Survey) unknown(sub *xds.Subscription, newest *xds.Snapshot) bool {
	k := asker{sub, MarkOf(newest)}
	is, ok := v.waits[k]
	if !ok {
		is = AwaitsAny(sub, newest)
		if len(v.waits) < maxAlike {
			v.waits[k] = is
		}
	}
	return is
}

// Unheard are the names that Awaits yields of which the client was sent nothing either.
func (s *Session) Unheard(newest *xds.Snapshot) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range Awaits(s.sub.effective, newest) {
			if name == wildcard {
				if at := s.delivered.snapshot; at.AnswersWildcard(s.sub.effective) {
					continue
				}
			} else if _, was := s.had(name); was != xds.Pending && was != xds.Lapsed {
				continue
			}
			if !yield(name) {
				return
			}
		}
	}
}

// Awaits yields the names, "*" for the wildcard, that sub asks for and that the origin has not
// answered yet.
func Awaits(sub *xds.Subscription, newest *xds.Snapshot) iter.Seq[string] {
	return func(yield func(string) bool) {
		if sub.Wildcard && !newest.AnswersWildcard(sub) && !yield(wildcard) {
			return
		}
		for name := range sub.Names.All() {
			_, is := newest.Look(sub, name)
			if (is == xds.Pending || is == xds.Lapsed) && (newest == nil || newest.Error(sub, name) == nil) && !yield(name) {
				return
			}
		}
	}
}

// AwaitsAny reports whether there are any names that Awaits yields.
func AwaitsAny(sub *xds.Subscription, newest *xds.Snapshot) bool {
	for range Awaits(sub, newest) {
		return true
	}
	return false
}

// Has is the newest generation of which the client has everything that is for it; 0: none.
// open: it is to be sent something of the newest, or has to answer, or refuses something.
func (s *Session) Has(newest *xds.Snapshot, open bool) uint64 {
	switch {
	case newest == nil || !s.sub.began:
		return 0
	case !open:
		return newest.Gen
	case s.acked.mark.Lineage != newest.Lineage:
		return 0
	}
	has := s.acked.mark.Gen
	for i := range s.refusals.list {
		if r := &s.refusals.list[i]; s.asked(r) {
			has = min(has, r.gen-1)
		}
	}
	return has
}

// Refusing reports whether the client refused something that it is still to have.
func (s *Session) Refusing() bool {
	if s.sub.effective.Empty() {
		return false
	}
	return s.refusals.last && s.full() || slices.ContainsFunc(s.refusals.list, func(r refusal) bool { return s.asked(&r) })
}
