package session

import (
	"slices"
	"time"

	"xdsrelay/internal/xds"
)

// Plan is what a session would send now.
type Plan struct {
	do  action
	To  *xds.Snapshot
	Key FrameKey // of a regular response: sessions that are in step alike get the same

	At    time.Time
	Until time.Time // when to look again at the latest; zero: at the next change

	content Content // of an irregular response, computed for this client alone

	BeforeACK bool                     // it answers names while a response is unanswered (P19), and does not move the session to To
	answered  map[string]*xds.Resource // BeforeACK: what is answered
	led       []string                 // BeforeACK: handles that resources of other names answer
	initial   map[string]string        // what is left of it
	Besides   []string                 // what follows what was asked for, besides the frame's (P37)

	Limit     int // of the response, in bytes (P38)
	base      base
	again     []refusal  // what the response speaks of because it was refused (P15)
	Oversized *Oversized // the response is too large; nil: it is not
}

// Sends reports whether there may be something to send. Whether there is, its Content
// says.
func (p *Plan) Sends() bool { return p.do == regular || p.do == irregular }

// Shared reports whether sessions with an equal Key are sent the same. Otherwise nobody
// else has the Key.
func (p *Plan) Shared() bool { return p.do == regular && !p.Key.sub.Sole.Load() }

type action uint8

const (
	nothing   action = iota // in step, or nothing is known yet
	hold                    // something is pending, and an unanswered response holds it back
	regular                 // send the frame of key, if it is not empty
	irregular               // send changed and removed, if there are any
)

// Next says what to send of cur now.
func (s *Session) Next(cur *xds.Snapshot, m Moment) Plan {
	if !s.sub.began || cur == nil {
		return Plan{}
	}
	if cur == s.delivered.snapshot && !s.forced.initialResponsePending && s.forced.names == nil && s.delivered.sentBeforeACK == nil && s.delivered.errors == nil && s.resumed == nil && s.forced.retried == nil {
		return Plan{}
	}
	patience := s.awaitNames(cur, m.Now)
	if s.silent(cur) {
		return Plan{Until: patience}
	}
	if until, out := s.Outstanding(m.Now, m.AckTimeout); out && !m.Release {
		if s.form.Variant == xds.Delta {
			if p := s.planEarly(cur, m.Now); p.do != nothing && !s.isStuck(&p) {
				p.Until, s.inFlight.changeWaits = until, true // for the rest
				return p
			}
		}
		if s.Pending(cur) || s.beating(cur) {
			s.inFlight.changeWaits = true
			return Plan{do: hold, Until: until}
		}
		return Plan{Until: patience}
	}
	p := s.plan(cur, m.Now)
	if s.form.Variant == xds.SotW {
		s.planSotW(cur, &p)
	} else {
		s.planDelta(cur, &p)
	}
	p.Until = patience
	if s.isStuck(&p) {
		return Plan{}
	}
	return p
}

// silent: of a wildcard nothing is said before the origin answered it, empty or
// not (P11). And of a full-state response the rest would be taken for gone (P30, P67).
func (s *Session) silent(cur *xds.Snapshot) bool {
	if s.full() && s.incomplete(cur) {
		return true
	}
	return s.sub.effective.Wildcard && !cur.Answered && (s.full() || s.forced.initialResponsePending && s.sub.effective.Names.Len() == 0)
}

// Pending reports whether the session would have anything to send of cur if no
// response were unanswered.
func (s *Session) Pending(cur *xds.Snapshot) bool {
	if !s.sub.began || cur == nil || s.silent(cur) {
		return false
	}
	if s.forced.initialResponsePending && s.sub.effective.Wildcard && cur.AnswersWildcard(s.sub.effective) {
		return true
	}
	for name := range s.forced.names {
		if s.answers(name, cur) {
			return true
		}
	}
	differs := func(name string) bool { return s.differs(name, cur) }
	if slices.ContainsFunc(s.candidates(cur), differs) {
		return true
	}
	for name := range s.delivered.sentBeforeACK {
		if differs(name) {
			return true
		}
	}
	for name := range s.delivered.errors {
		if differs(name) {
			return true
		}
	}
	var p Plan
	if s.resume(cur, &p); len(p.content.Removed) > 0 {
		return true
	}
	return len(s.heard(cur, nil)) > 0
}

// candidates are the names that may differ between what the client was sent,
// but for sentBeforeACK, and what it is to see.
func (s *Session) candidates(cur *xds.Snapshot) []string {
	return s.base().candidates(cur, s.sub.effective)
}

// answers reports whether there is an answer for a name that is to be answered.
// What follows a cluster is only what is there: its absence is said once (P25).
func (s *Session) answers(name string, cur *xds.Snapshot) bool {
	_, is := s.look(name, cur)
	switch {
	case is == xds.Present, is == xds.Elsewhere:
		return true
	case s.forced.names[name] == refreshed:
		return false
	case cur.Error(s.sub.effective, name) != nil:
		return true
	}
	switch is {
	case xds.Absent, xds.Unresolvable:
		return s.form.Variant == xds.Delta || s.full() // P31
	case xds.Lapsed:
		return s.form.Variant == xds.Delta && !s.sub.effective.Names.Has(name) // P24
	}
	return false
}

// had is what the client has been sent under name.
func (s *Session) had(name string) (*xds.Resource, xds.Presence) {
	if r, ok := s.delivered.sentBeforeACK[name]; ok {
		switch {
		case r == nil:
			return nil, xds.Absent
		case r.Unresolved():
			return r, xds.Unresolvable
		}
		return r, xds.Present
	}
	return s.base().look(s.sub.effective, name)
}

// look is what the client is to see under name.
func (s *Session) look(name string, cur *xds.Snapshot) (*xds.Resource, xds.Presence) {
	r, is := cur.Look(s.sub.effective, name)
	return s.latest(name, r, is)
}

// see is look for who had this of name.
func (s *Session) see(name string, cur *xds.Snapshot, had *xds.Resource, was xds.Presence) (*xds.Resource, xds.Presence) {
	r, is := see(cur, s.sub.effective, name, had, was)
	return s.latest(name, r, is)
}

// differs reports whether the client should hear of name because of what
// changed between what it had and cur.
func (s *Session) differs(name string, cur *xds.Snapshot) bool {
	resource, err := s.difference(name, cur)
	return resource || err
}

// difference is differs for what is there or not, and for an error (P39).
func (s *Session) difference(name string, cur *xds.Snapshot) (resource, err bool) {
	had, was := s.had(name)
	has, is := s.see(name, cur, had, was)
	told, now := s.told(name), cur.Error(s.sub.effective, name)
	if s.base().again(was, is) {
		had, was, told = nil, xds.Pending, nil
	}
	resource = clears(told, now, is) || differs(s.form, s.full(), s.sub.effective.Names.Has(name), had, was, has, is)
	return resource, now != nil && now != told
}

// differs reports whether what was known of a name and what is known now are
// two things to a client of this form; named: it asked for the name.
func differs(form xds.Form, full, named bool, had *xds.Resource, was xds.Presence, has *xds.Resource, is xds.Presence) bool {
	switch is {
	case xds.Present:
		// Whether a SotW client still holds what went without a word (P31) is
		// not known: it is sent when it returns.
		return was != xds.Present || !form.Same(has, had)
	case xds.Unresolvable:
		if form.Variant == xds.Delta {
			return was != xds.Unresolvable // P18: once
		}
		fallthrough
	case xds.Absent:
		// What lapsed the client may still hold (P62).
		had := was == xds.Present || was == xds.Lapsed
		if form.Variant == xds.SotW {
			// P30, P31; P22: the full set, without it, answers a listed name.
			return full && (had || was == xds.Pending && named)
		}
		// P25: an absent name that was asked for is answered, and a handle that
		// leads nowhere any more; what a wildcard never had is nothing.
		return had || (was == xds.Pending || was == xds.Elsewhere) && named
	case xds.Lapsed:
		return was == xds.Present && outlives(form, full, had, has)
	}
	return false // nobody said that it went, or there is nothing of this name
}

// outlives reports whether a client that counts TTLs and was sent had would hold
// it for longer than it lived: it was slow, and had expired before it could be
// sent its last TTL. It is told by a removal, as far as its variant has one.
func outlives(form xds.Form, full bool, had, lapsed *xds.Resource) bool {
	return form.Timed && (form.Variant == xds.Delta || full) && lapsed.Outlived(had)
}
