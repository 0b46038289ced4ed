package session

import (
	"slices"
	"sync"
	"time"

	"xdsrelay/internal/xds"
)

// subscribeDelta: names are added, then removed (P20). The wildcard is "*", or
// a first request without any names for the types that have it; it ends only
// when "*" is unsubscribed (P21).
func (s *Session) subscribeDelta(r *xds.Request) (*xds.Subscription, bool) {
	if s.sub.began && len(r.Names) == 0 && len(r.Unsubscribe) == 0 {
		return s.sub.requested, false
	}
	next := xds.Subscription{Wildcard: s.sub.requested.Wildcard, HasState: s.bringsState(r), Names: s.sub.requested.Names}
	if !s.sub.began && len(r.Names) == 0 && len(r.Unsubscribe) == 0 {
		next.Wildcard = !s.Type.NoLegacyWildcard
	}
	next.Wildcard = next.Wildcard || has(r.Names, wildcard)
	next.Names = next.Names.Add(plainNames(r.Names)...)
	next.Wildcard = next.Wildcard && !has(r.Unsubscribe, wildcard)
	next.Names = next.Names.Remove(s.giveUp(next.Names, plainNames(r.Unsubscribe))...)
	if next.Equal(s.sub.requested) {
		return s.sub.requested, false
	}
	return &next, true
}

func has(names [][]byte, name string) bool {
	for _, n := range names {
		if string(n) == name {
			return true
		}
	}
	return false
}

// plainNames are the names but for the wildcard.
func plainNames(names [][]byte) []string {
	plain := make([]string, 0, len(names))
	for _, n := range names {
		if string(n) != wildcard {
			plain = append(plain, string(n))
		}
	}
	return plain
}

// edit follows a request's changes, whatever its nonce (P14): a name that is
// subscribed, for the first time or again, is sent from what is held (P23);
// one that is explicitly unsubscribed beside the wildcard is answered (P24).
func (s *Session) edit(r *xds.Request, want *xds.Subscription) {
	if want == s.sub.effective && len(r.Names) == 0 && len(r.Unsubscribe) == 0 {
		return // an ACK
	}
	was := s.sub.effective
	s.sub.effective = want
	if want.Wildcard && has(r.Names, wildcard) {
		s.restart(was)
	}
	for _, n := range r.Names {
		if name := string(n); want.Names.Has(name) {
			s.gain(name, was)
			s.mark(name, asked)
			if _, ok := s.initial()[name]; ok {
				s.initial()[name] = "" // it is sent whatever it has, or told that it went
			}
		}
	}
	if len(r.Unsubscribe) > 0 {
		for name, added := range was.Names.Diff(want.Names) {
			if !added {
				s.drop(name)
			}
		}
	}
	if !want.Wildcard && was.Wildcard {
		if s.delivered.resendAll {
			was = s.relent()
		}
		for name := range s.forced.names {
			if r := s.delivered.snapshot.Held(name); !want.Names.Has(name) && (r == nil || !r.AskedBy(want.Names)) {
				delete(s.forced.names, name)
			}
		}
		for name := range s.initial() {
			if !want.Names.Has(name) {
				s.initial()[name] = "" // it lets go of it, and is sent it if it asks again
			}
		}
		s.narrow(was)
	}
	s.normalize()
}

// parting has the end of a name's subscription beside the wildcard answered (P24). The
// session remembers the name until then.
func (s *Session) parting(name string) {
	s.forced.weight += xds.NameWeight(len(name))
	s.mark(name, asked)
}

// drop follows the end of a name's subscription. Beside the wildcard it is
// answered, with what it led to (P24).
func (s *Session) drop(name string) {
	delete(s.forced.retried, name)
	if s.sub.effective.Wildcard {
		s.parting(name)
		for _, n := range s.delivered.snapshot.Linked(name) {
			s.mark(n, asked)
		}
		return
	}
	s.unmark(name)
	delete(s.delivered.sentBeforeACK, name)
	delete(s.initial(), name)
}

// planDelta: what changed and what went (P32), with what is to be answered
// anew and without what the client brought.
func (s *Session) planDelta(cur *xds.Snapshot, p *Plan) {
	force := s.forced.initialResponsePending && s.sub.effective.Wildcard && cur.AnswersWildcard(s.sub.effective) // P11: also where nothing is left to say
	if s.forced.names == nil && s.delivered.sentBeforeACK == nil && s.delivered.errors == nil && s.resumed == nil && s.forced.retried == nil && s.refusals.list == nil {
		p.do, p.Key = regular, s.key(cur, p.At)
		p.Key.anew, p.Key.force = s.delivered.resendAll, force
		return
	}
	p.do, p.Key = irregular, FrameKey{form: s.form, sub: s.sub.effective, force: force}
	names := s.pendingNames(cur, p)
	for _, name := range names {
		s.say(name, cur, p)
	}
	p.content.Changed = once(p.content.Changed)
	s.resume(cur, p)
	s.renew(cur, p, names)
}

// say puts what is known of name into the plan.
func (s *Session) say(name string, cur *xds.Snapshot, p *Plan) {
	if s.warning(name, cur, p) {
		return
	}
	had, was := s.had(name)
	switch r, is := s.see(name, cur, had, was); is {
	case xds.Present:
		if r.Expired(p.At) {
			return // though the group has yet to let go of it (P62)
		}
		if version, brought := s.initial()[name]; brought && version == s.form.Version(r) && !s.Type.AlwaysResend {
			if was == xds.Pending && !s.askedFor(r) {
				// P27: the client has it, but may have missed a heartbeat.
				if s.form.Beats && r.TTL() > 0 {
					p.content.Beats = append(p.content.Beats, r)
					p.content.Renewed++
				}
				return
			}
		}
		p.content.Changed = append(p.content.Changed, r)
	case xds.Unresolvable:
		p.content.Changed = append(p.content.Changed, r)
	case xds.Absent:
		p.content.Removed = append(p.content.Removed, name)
	case xds.Pending:
		// What was neither asked for by name nor is there, the client had for a
		// handle.
		if !s.sub.effective.Covers(name) {
			p.content.Removed = append(p.content.Removed, name)
		}
	case xds.Elsewhere:
		// What it leads to is among the names.
		if s.leftBehind(name, cur, p) {
			p.content.Removed = append(p.content.Removed, name)
		}
	case xds.Lapsed:
		if !s.sub.effective.Names.Has(name) || was == xds.Present && outlives(s.form, false, had, r) { // P24
			p.content.Removed = append(p.content.Removed, name)
		}
	}
}

// askedFor reports whether the resource was subscribed by a handle since what
// the client brought (P23).
func (s *Session) askedFor(r *xds.Resource) bool {
	return slices.ContainsFunc(r.Handles(), func(h string) bool { return s.forced.names[h] == asked })
}

// resume lists what the client brought and what is gone, and keeps what is not
// known yet (P27). Nothing is gone until all that the client asks for is answered
// (P67).
func (s *Session) resume(cur *xds.Snapshot, p *Plan) {
	if s.resumed == nil {
		return
	}
	keep := func(name string, version string) {
		if p.initial == nil {
			p.initial = make(map[string]string)
		}
		p.initial[name] = version
	}
	incomplete := s.incomplete(cur)
	pending := sync.OnceValue(func() bool { return s.anyPending(cur) })
	for name, version := range s.initial() {
		_, is := cur.Look(s.sub.effective, name)
		elsewhere := is == xds.Elsewhere
		if elsewhere {
			_, is = cur.Own(s.sub.effective, name)
		}
		switch {
		case !s.sub.effective.Covers(name):
			// It had it for a handle, if it asks for it at all: what no name leads
			// to any more is gone. Nothing that is held need tell of handles by now.
			switch {
			case is == xds.Present:
			case incomplete, pending():
				keep(name, version)
			default:
				p.content.Removed = append(p.content.Removed, name)
			}
		case is == xds.Absent:
			// A name asked for is among the pending ones already, but as a handle.
			switch {
			case !elsewhere && s.sub.effective.Names.Has(name):
			case incomplete:
				keep(name, version)
			default:
				p.content.Removed = append(p.content.Removed, name)
			}
		case is == xds.Pending:
			keep(name, version)
		case is == xds.Lapsed:
			// By the time it returns the client may have let go of it, too.
			keep(name, "")
		}
	}
	sortUnique(&p.content.Removed)
}

// planEarly answers newly subscribed names while a response is unanswered: they
// do not wait (P19).
func (s *Session) planEarly(cur *xds.Snapshot, now time.Time) Plan {
	p := s.plan(cur, now)
	if s.delivered.resendAll {
		s.planDelta(cur, &p)
		return p
	}
	p.do, p.Key = irregular, FrameKey{form: s.form, sub: s.sub.effective}
	p.BeforeACK, p.answered = true, make(map[string]*xds.Resource)
	speak := func(name string) {
		before := len(p.content.Changed) + len(p.content.Removed)
		s.say(name, cur, &p)
		switch r, is := s.look(name, cur); {
		case is == xds.Present, is == xds.Unresolvable:
			p.answered[name] = r // sent, or brought by the client
		case len(p.content.Changed)+len(p.content.Removed) > before:
			p.answered[name] = nil
		case is == xds.Elsewhere:
			p.led = append(p.led, name) // what it leads to is among the names
		}
	}
	var names []string
	for name, why := range s.forced.names {
		if why == asked {
			names = append(names, name)
		}
	}
	names = s.heard(cur, with(cur, names))
	for _, name := range cur.Changes(s.delivered.snapshot, s.sub.effective) {
		if _, was := s.had(name); was == xds.Pending && (s.sub.effective.Names.Has(name) || !s.sub.effective.Wildcard) && s.differs(name, cur) {
			names = append(names, name)
		}
	}
	sortUnique(&names)
	for _, name := range names {
		speak(name)
	}
	p.content.Changed = once(p.content.Changed)
	if p.content.Empty() {
		return Plan{}
	}
	return p
}
