package session

import (
	"slices"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Moment is what a session has to know about the time and its stream to plan a response.
type Moment struct {
	Now        time.Time
	AckTimeout time.Duration
	// Release: a type that is sent after this one has a change to send, and the change came after
	// this type's newest response. Then this type does not wait for the ACK (P19).
	Release bool
	// ClustersUntil is until when the type waits for clusters (P67); zero: it does not wait.
	ClustersUntil time.Time
}

// Plan is what a session would send now.
type Plan struct {
	do    action
	To    *snapshot.Snapshot
	Key   FrameKey // of a shared response: sessions with equal Keys are sent the same
	At    time.Time
	Until time.Time // when to plan again at the latest; zero: at the next change
	// changeWaits: a change waits for an ACK (P19). seen: up to this snapshot, no name can be answered
	// before the ACK.
	changeWaits bool
	seen        snapshot.ID
	base        baseline // of a shared response: what it is compared with
	content     Content  // of an own response, computed for this client alone
	// BeforeACK: it answers names while an ACK is pending (P19), and does not move the session to
	// To.
	BeforeACK       bool
	answered        map[string]*xds.Resource // BeforeACK: what is answered; nil: removed
	answeredAliases []string                 // BeforeACK: aliases that resources of other names answer
	pendingVersions map[string]string        // versions that the client stated and that stay unanswered
	resent          []nackedResponse         // what it includes because the client rejected it (P15)
	AlsoFollows     []string                 // what follows the forced names, besides the frame's (P37)
	Limit           int                      // of the response, in bytes (P38)
	Oversized       *Oversized               // the response is over the limit; nil: it is not
}

type action uint8

const (
	nothing action = iota // in step, waiting for an ACK, or nothing is known yet
	shared                // send the frame of Key, if it is not empty
	own                   // send content, if it is not empty
)

// Sends reports whether there may be something to send. Its Content says whether there is.
func (p *Plan) Sends() bool { return p.do == shared || p.do == own }

// Next plans what to send of a snapshot now. It changes nothing but the time until which the
// session waits for names (P67). The caller passes the plan to Planned, and then to Sent,
// NothingToSend or TooLarge.
func (s *Session) Next(to *snapshot.Snapshot, m Moment) (plan Plan) {
	if !s.sub.began || to == nil {
		return plan
	}
	c := comparison{s, to}
	if to == s.delivered.snapshot && !s.delivered.initialResponsePending && s.inStep() && !c.nackedSentAgain() {
		return plan
	}
	namesUntil := c.awaitNames(m.Now)
	if c.mustWait() {
		plan.Until = namesUntil
		return plan
	}
	if m.Now.Before(m.ClustersUntil) {
		plan.Until = m.ClustersUntil
		return plan
	}
	if until, out := s.WaitsForACK(m.Now, m.AckTimeout); out && !m.Release {
		if s.form.Variant == xds.Delta {
			p := c.planner(&plan, m.Now)
			if p.planBeforeACK(); plan.do != nothing && !s.isTooLarge(&plan) {
				plan.Until, plan.changeWaits = until, true // the rest waits
				return plan
			}
		}
		wait := Plan{Until: namesUntil}
		if plan.do == nothing {
			wait.seen = to.ID()
		}
		if s.pendingACKs.changeWaits || c.pending() || c.anyRenewal() {
			wait.Until, wait.changeWaits = until, true
		}
		return wait
	}
	p := c.planner(&plan, m.Now)
	if s.form.Variant == xds.SotW {
		p.planSotW()
	} else {
		p.planDelta()
	}
	plan.Until = namesUntil
	if s.isTooLarge(&plan) {
		return Plan{}
	}
	return plan
}

// Pending reports whether the session would have anything to send of the snapshot if no ACK were
// pending.
func (s *Session) Pending(to *snapshot.Snapshot) bool { return comparison{s, to}.pending() }

// inStep reports whether there is nothing to send except what changed since the snapshot that the
// client was sent.
func (s *Session) inStep() bool {
	return s.forced.names == nil && s.forced.retried == nil && s.delivered.sentBeforeACK == nil && s.delivered.errors == nil && s.clientVersions == nil
}

// isTooLarge reports whether the plan's response was over the size limit before (P38).
func (s *Session) isTooLarge(p *Plan) bool {
	t := s.delivered.tooLarge
	return t != nil && p.Key == t.key && p.To.ID() == t.to
}

// planner fills a Plan. planSotW and planDelta are the decisions of the two variants.
type planner struct {
	comparison
	*Plan
}

func (c comparison) planner(p *Plan, now time.Time) planner {
	p.To, p.At, p.Limit, p.base = c.to, now, c.s.limit, c.baseline()
	return planner{c, p}
}

// changedNames are the names, sorted, that an own response has to include: the changed names, the
// forced names, and the names of rejected responses of which anything changed or was sent again by
// the origin (P15).
func (p planner) changedNames() []string {
	s := p.s
	var changed []string
	for _, name := range p.candidates() {
		if _, newer := s.delivered.sentBeforeACK[name]; !newer && (p.differs(name) || p.nowElsewhere(name)) {
			changed = append(changed, name)
		}
	}
	for name := range s.delivered.sentBeforeACK {
		if p.differs(name) || p.nowElsewhere(name) {
			changed = append(changed, name)
		}
	}
	for name := range s.delivered.errors {
		if s.sub.effective.Covers(name) && p.differs(name) {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	names := changed
	p.resent = p.toResend(changed)
	state := s.stateAt(s.delivered.snapshot)
	for i := range p.resent {
		for _, n := range p.resent[i].names {
			if state.requests(&p.resent[i], n) {
				names = append(names, n)
			}
		}
	}
	var forced []string
	for name, why := range s.forced.names {
		if why != refreshed || p.answers(name) {
			forced = append(forced, name)
		}
	}
	names = append(names, withAliased(p.to, forced)...)
	names = p.appendRetried(names)
	sortUnique(&names)
	return names
}

// addError puts the error of a name into the plan, if there is one (P39). It reports whether there
// is nothing else to send of the name.
func (p planner) addError(name string) (all bool) {
	s := p.s
	e := p.to.Error(s.sub.effective, name)
	if e == nil {
		return false
	}
	p.content.Errors = append(p.content.Errors, e)
	if _, forced := s.forced.names[name]; forced || anyIncludes(s.nacks.list, name) {
		return false
	}
	resource, _ := p.difference(name)
	return !resource
}
