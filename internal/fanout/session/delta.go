package session

import (
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// followDelta applies the changes of a delta request, whatever its nonce (P14). A name that the
// request subscribes to, for the first time or again, is sent from the snapshot (P23). A name that
// it unsubscribes from beside the wildcard is answered (P24).
func (s *Session) followDelta(r *xds.Request, want *snapshot.Subscription) {
	if want == s.sub.effective && len(r.Names) == 0 && len(r.Unsubscribe) == 0 {
		return // an ACK
	}
	before := s.sub.effective
	s.sub.follow(want)
	if want.Wildcard && contains(r.Names, wildcard) {
		s.delivered.restart(before)
	}
	for _, n := range r.Names {
		if name := string(n); want.Names.Has(name) {
			s.delivered.subscribed(name, before)
			s.forced.add(name, byRequest)
			s.clientVersions.forget(name)
		}
	}
	if len(r.Unsubscribe) > 0 {
		for name, added := range before.Names.Diff(want.Names) {
			if !added {
				s.unsubscribed(name)
			}
		}
	}
	if before.Wildcard && !want.Wildcard {
		if s.delivered.resendAll {
			before = s.delivered.cancelRestart(want)
		}
		for name := range s.forced.names {
			if r := s.delivered.snapshot.Resource(name); !want.Names.Has(name) && (r == nil || !r.RequestedBy(want.Names)) {
				delete(s.forced.names, name)
			}
		}
		for name := range s.clientVersions.initial() {
			if !want.Names.Has(name) {
				s.clientVersions.forget(name) // the client drops it, and needs it if it requests it again
			}
		}
		s.wildcardEnded(before)
	}
	s.normalize()
}

// unsubscribed applies the end of a name's subscription. Beside the wildcard the next response
// answers it, with the resources to which the name led (P24).
func (s *Session) unsubscribed(name string) {
	delete(s.forced.retried, name)
	if s.sub.effective.Wildcard {
		s.answerUnsubscribed(name)
		for _, n := range s.delivered.snapshot.NamesByAlias(name) {
			s.forced.add(n, byRequest)
		}
		return
	}
	s.forced.remove(name, s.delivered.snapshot.Resource(name), s.sub.effective.Names)
	delete(s.delivered.sentBeforeACK, name)
	delete(s.clientVersions.initial(), name)
}

// planDelta plans the next delta response: what changed and what is gone (P32), and the forced
// names, without what the client already had.
func (p planner) planDelta() {
	s := p.s
	// P11: the wildcard's first response is sent even if it is empty, and so is any to a relay.
	force := s.delivered.initialResponsePending && (s.form.Relay || s.sub.effective.Wildcard && p.to.AnswersWildcard(s.sub.effective))
	if s.inStep() && s.nacks.list == nil {
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
	p.addMissedRemovals()
	p.addRenewals(names)
}

// planBeforeACK plans a response while an ACK is pending: newly subscribed names do not wait for
// the ACK (P19).
func (p planner) planBeforeACK() {
	s := p.s
	if s.delivered.resendAll {
		p.planDelta()
		return
	}
	p.do, p.Key = own, FrameKey{form: s.form, sub: s.sub.effective}
	p.BeforeACK = true
	for _, name := range p.namesBeforeACK() {
		before := len(p.content.Changed) + len(p.content.Removed)
		p.addName(name)
		switch r, is := p.look(name); {
		case is == snapshot.Present, is == snapshot.Unresolvable:
			put(&p.answered, name, r) // sent, or the client already had it
		case len(p.content.Changed)+len(p.content.Removed) > before:
			put(&p.answered, name, nil)
		case is == snapshot.UnderOtherName:
			p.answeredAliases = append(p.answeredAliases, name) // what it leads to is among the names
		}
	}
	p.content.Changed = withoutDuplicates(p.content.Changed)
	if p.content.Empty() {
		*p.Plan = Plan{}
	}
}

// namesBeforeACK are the names, sorted, that do not wait for an ACK: those that the client newly
// subscribed to or unsubscribed from, and those of which it was sent nothing.
func (p planner) namesBeforeACK() []string {
	s := p.s
	var names []string
	for name, why := range s.forced.names {
		if why == byRequest {
			names = append(names, name)
		}
	}
	names = p.appendRetried(withAliased(p.to, names))
	if sub := s.sub.effective; sub.Names.Len() > 0 { // what only the wildcard brings waits
		byName := &snapshot.Subscription{Names: sub.Names}
		for _, name := range p.to.ChangesSince(s.pendingACKs.seen, s.delivered.snapshot, byName) {
			if _, was := p.had(name); was == snapshot.Pending && (sub.Names.Has(name) || !sub.Wildcard) && p.differs(name) {
				names = append(names, name)
			}
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
		case was == snapshot.Pending && p.alreadyHas(name, r):
			// P27: the client has it, but may have missed a heartbeat.
			if s.form.Heartbeats && r.TTL() > 0 {
				p.content.Heartbeats = append(p.content.Heartbeats, r)
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
		// The name is not requested, and there is no resource: the client had it by an alias.
		removed = !s.sub.effective.Covers(name)
	case snapshot.UnderOtherName:
		removed = p.leftBehind(name) // what it leads to is among the names
	case snapshot.Expired:
		// P24: the client unsubscribed from the name. Or its own TTL ends later.
		removed = !s.sub.effective.Names.Has(name) || was == snapshot.Present && outlives(s.form, false, had, r)
	}
	if removed {
		p.content.Removed = append(p.content.Removed, name)
	}
}

// leftBehind reports whether the client may still have a deleted resource of this name, although
// nothing changed and the name is an alias of another resource now. Either the client rejected the
// removal (P15). Or it unsubscribed from the name beside a wildcard without the resource (P24).
func (p planner) leftBehind(name string) bool {
	s := p.s
	if _, is := p.to.LookOwnName(s.sub.effective, name); is != snapshot.Absent {
		return false
	}
	if s.forced.names[name] == byRequest && !s.sub.effective.Names.Has(name) && s.delivered.snapshot.Resource(name) != nil {
		return true
	}
	return anyIncludes(p.resent, name)
}
