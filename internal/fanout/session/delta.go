package session

import (
	"slices"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// followDelta follows the changes of a delta request, whatever its nonce (P14). A name that is
// subscribed, for the first time or again, is sent from what is held (P23). A name that is
// unsubscribed beside the wildcard is answered (P24).
func (s *Session) followDelta(r *xds.Request, want *snapshot.Subscription) {
	if want == s.sub.effective && len(r.Names) == 0 && len(r.Unsubscribe) == 0 {
		return // an ACK
	}
	was := s.sub.effective
	s.sub.follow(want)
	if want.Wildcard && contains(r.Names, wildcard) {
		s.delivered.restart(was)
	}
	for _, n := range r.Names {
		if name := string(n); want.Names.Has(name) {
			s.delivered.subscribed(name, was)
			s.forced.add(name, asked)
			s.brought.distrust(name)
		}
	}
	if len(r.Unsubscribe) > 0 {
		for name, added := range was.Names.Diff(want.Names) {
			if !added {
				s.unsubscribed(name)
			}
		}
	}
	if was.Wildcard && !want.Wildcard {
		if s.delivered.resendAll {
			was = s.delivered.cancelRestart(want)
		}
		for name := range s.forced.names {
			if r := s.delivered.snapshot.Held(name); !want.Names.Has(name) && (r == nil || !r.RequestedBy(want.Names)) {
				delete(s.forced.names, name)
			}
		}
		for name := range s.brought.initial() {
			if !want.Names.Has(name) {
				s.brought.distrust(name) // it drops it, and is sent it if it asks again
			}
		}
		s.wildcardEnded(was)
	}
	s.normalize()
}

// unsubscribed follows the end of a name's subscription. Beside the wildcard it is answered, with
// the resources to which the name led (P24).
func (s *Session) unsubscribed(name string) {
	delete(s.forced.retried, name)
	if s.sub.effective.Wildcard {
		s.answerUnsubscribed(name)
		for _, n := range s.delivered.snapshot.NamesByAlias(name) {
			s.forced.add(n, asked)
		}
		return
	}
	s.forced.remove(name, s.delivered.snapshot.Held(name), s.sub.effective.Names)
	delete(s.delivered.sentBeforeACK, name)
	delete(s.brought.initial(), name)
}

// planDelta plans the next delta response: what changed and what is gone (P32), and the forced
// names, without what the client brought.
func (p planner) planDelta() {
	s := p.s
	// P11: the wildcard's first response is sent also if nothing is left to say.
	force := s.delivered.initialResponsePending && s.sub.effective.Wildcard && p.to.AnswersWildcard(s.sub.effective)
	if s.inStep() && s.refusals.list == nil {
		p.do, p.Key = shared, p.key()
		p.Key.allNew, p.Key.force = s.delivered.resendAll, force
		return
	}
	p.do, p.Key = own, FrameKey{form: s.form, sub: s.sub.effective, force: force}
	names := p.changedNames()
	for _, name := range names {
		p.addName(name)
	}
	p.content.Changed = withoutDuplicates(p.content.Changed)
	p.addBrought()
	p.addRenewals(names)
}

// planBeforeACK plans a response while another one is unanswered: newly subscribed names do not
// wait for the ACK (P19).
func (p planner) planBeforeACK() {
	s := p.s
	if s.delivered.resendAll {
		p.planDelta()
		return
	}
	p.do, p.Key = own, FrameKey{form: s.form, sub: s.sub.effective}
	p.BeforeACK, p.answered = true, make(map[string]*xds.Resource)
	for _, name := range p.namesBeforeACK() {
		before := len(p.content.Changed) + len(p.content.Removed)
		p.addName(name)
		switch r, is := p.look(name); {
		case is == snapshot.Present, is == snapshot.Unresolvable:
			p.answered[name] = r // sent, or the client brought it
		case len(p.content.Changed)+len(p.content.Removed) > before:
			p.answered[name] = nil
		case is == snapshot.UnderOtherName:
			p.answeredHandles = append(p.answeredHandles, name) // what it leads to is among the names
		}
	}
	p.content.Changed = withoutDuplicates(p.content.Changed)
	if p.content.Empty() {
		*p.Plan = Plan{}
	}
}

// namesBeforeACK are the names, sorted, that do not wait for an ACK: those asked for, and those of
// which the client was sent nothing.
func (p planner) namesBeforeACK() []string {
	s := p.s
	var names []string
	for name, why := range s.forced.names {
		if why == asked {
			names = append(names, name)
		}
	}
	names = p.appendRetried(withHandles(p.to, names))
	for _, name := range p.to.Changes(s.delivered.snapshot, s.sub.effective) {
		if _, was := p.had(name); was == snapshot.Pending && (s.sub.effective.Names.Has(name) || !s.sub.effective.Wildcard) && p.differs(name) {
			names = append(names, name)
		}
	}
	sortUnique(&names)
	return names
}

// addName puts what is known of a name into the plan: its resource, its removal, or its error.
func (p planner) addName(name string) {
	if p.addError(name) {
		return
	}
	s := p.s
	had, was := p.had(name)
	r, is := p.see(name, had, was)
	removed := false
	switch is {
	case snapshot.Present:
		switch {
		case r.Expired(p.At): // the group has yet to drop it (P62)
		case was == snapshot.Pending && p.brings(name, r):
			// P27: the client has it, but may have missed a heartbeat.
			if s.form.Heartbeats && r.TTL() > 0 {
				p.content.Beats = append(p.content.Beats, r)
				p.content.Renewed++
			}
		default:
			p.content.Changed = append(p.content.Changed, r)
		}
	case snapshot.Unresolvable:
		p.content.Changed = append(p.content.Changed, r)
	case snapshot.Absent:
		removed = true
	case snapshot.Pending:
		// The name is not subscribed, and there is no resource: the client had it by an alias.
		removed = !s.sub.effective.Covers(name)
	case snapshot.UnderOtherName:
		removed = p.leftBehind(name) // what it leads to is among the names
	case snapshot.Expired:
		// P24: the name was given up. Or the client counts a TTL that ends later.
		removed = !s.sub.effective.Names.Has(name) || was == snapshot.Present && outlives(s.form, false, had, r)
	}
	if removed {
		p.content.Removed = append(p.content.Removed, name)
	}
}

// brings reports whether the client brought this version of the resource, so that it need not be
// sent (P27). It is sent if the client asks for it by a handle since (P23).
func (p planner) brings(name string, r *xds.Resource) bool {
	s := p.s
	version, is := s.brought.initial()[name]
	return is && version == s.form.Version(r) && !s.Type.AlwaysResend &&
		!slices.ContainsFunc(r.AliasesAndGlob(), func(h string) bool { return s.forced.names[h] == asked })
}

// leftBehind reports whether a client may have a resource of this name that is gone, although
// nothing changed and the name leads elsewhere. Either the client refused the removal (P15). Or it
// gave up the name beside a wildcard that does not have the resource (P24).
func (p planner) leftBehind(name string) bool {
	s := p.s
	if _, is := p.to.LookOwnName(s.sub.effective, name); is != snapshot.Absent {
		return false
	}
	if s.forced.names[name] == asked && !s.sub.effective.Names.Has(name) && s.delivered.snapshot.Held(name) != nil {
		return true
	}
	return slices.ContainsFunc(p.resent, func(r refusal) bool {
		_, refused := slices.BinarySearch(r.names, name)
		return refused
	})
}
