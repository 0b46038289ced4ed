package session

import (
	"maps"
	"slices"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// followList applies a SotW request that is not stale. A newly listed name is answered even if it
// did not change, and a shorter list gets no response (P22). There is one exception, as in delta
// (P24): a name that the client drops beside the wildcard is answered if the wildcard does not have
// it. Nothing else would make the client drop the resource.
func (s *Session) followList(want *snapshot.Subscription) {
	if want == s.sub.effective {
		return
	}
	before := s.sub.effective
	s.sub.follow(want)
	if want.Wildcard && !before.Wildcard {
		s.delivered.restart(before)
		return
	}
	if s.delivered.resendAll && !want.Wildcard {
		before = s.delivered.cancelRestart(want)
	}
	for name, added := range before.Names.Diff(want.Names) {
		switch {
		case added:
			if !s.fullState() { // a full set includes it anyway
				s.delivered.subscribed(name, before)
			}
			s.forced.add(name, byRequest)
		case want.Wildcard && s.mayKeep(name, before):
			s.answerUnsubscribed(name)
		default:
			s.forced.remove(name, s.delivered.snapshot.Resource(name), want.Names)
		}
	}
	if !want.Wildcard {
		s.wildcardEnded(before)
	}
	s.normalize()
}

// mayKeep reports whether the client may have a resource that the wildcard does not have, by a name
// that it dropped beside the wildcard. before is the subscription by which it was sent what it has.
func (s *Session) mayKeep(name string, before *snapshot.Subscription) bool {
	at := s.delivered.snapshot
	if _, is := at.Look(s.sub.effective, name); is == snapshot.Present {
		return false
	}
	_, is := at.Look(before, name)
	return is != snapshot.Absent
}

// planSotW plans the next SotW response. A full-state response holds all resources that are known
// (P30). Any other response holds the requested resources that changed, and those newly listed
// (P31, P22). A full-state response leaves out unanswered names, so a client that resumes waits
// before its first one (P67, mustWait).
func (p planner) planSotW() {
	s := p.s
	switch {
	case s.fullState():
		p.do, p.Key = shared, p.key()
		p.Key.force = s.delivered.initialResponsePending && s.sub.effective.Wildcard && p.to.AnswersWildcard(s.sub.effective) || anyOf(maps.Keys(s.forced.names), p.answers) || p.nackedSentAgain()
		// A client that rejected the last set may have applied none of it. So everything in the
		// next one is new to it (P37).
		p.Key.allNew = s.delivered.resendAll || s.nacks.lastWasNACK
		p.AlsoFollows = p.followForced()
		return
	case s.forced.names == nil && s.nacks.list == nil && s.delivered.errors == nil:
		p.do, p.Key = shared, p.key()
		return
	}
	p.do, p.Key = own, FrameKey{form: s.form, sub: s.sub.effective}
	names := p.changedNames()
	for _, name := range names {
		if r, is := p.look(name); !p.addError(name) && is == snapshot.Present && !r.Expired(p.At) {
			p.content.Changed = append(p.content.Changed, r)
		}
	}
	p.addRenewals(names)
}

// followForced are the resources of the type's follower that follow the forced names (P37).
func (p planner) followForced() []string {
	var rs []*xds.Resource
	for _, name := range withAliased(p.to, slices.Collect(maps.Keys(p.s.forced.names))) {
		if r, is := p.look(name); is == snapshot.Present {
			rs = append(rs, r)
		}
	}
	return followers(rs)
}
