package session

import (
	"iter"
	"slices"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// NameStatus says what a client has under a name that it requested. It is CSDS's
// ClientResourceStatus.
type NameStatus uint8

const (
	StatusRequested     NameStatus = iota // the client was sent nothing, or the ACK of its first response is pending
	StatusDoesNotExist                    // there is no such resource, and the client was sent that if its variant can express it
	StatusAcked                           // the client acknowledged the resource, or already had it when its stream began
	StatusNacked                          // the client rejected the response with the resource
	StatusReceivedError                   // the client was sent an error in place of the resource (P39)
	StatusUnknown                         // an ACK is pending and the client may have an older resource, or the TTL is over
)

// States of a type on a stream, with the words of istioctl proxy-status.
const (
	StateSynced      = "SYNCED"      // the client acknowledged all that the newest snapshot has for it
	StateNotSent     = "NOT SENT"    // the origin has not answered some requested names, and the client has the rest; or nothing was sent yet
	StateUnconfirmed = "UNCONFIRMED" // the client brought what the origin has not answered yet, and was sent nothing
	StateStale       = "STALE"       // an ACK is pending, or not all of the newest snapshot was sent
	StateNacked      = "NACKED"      // the last answer was a NACK, or the client rejected something that it still requests
)

// Resource is one name that a client requested.
type Resource struct {
	Name string // as the client knows it
	NameStatus
	// State is the state of the name, as for types. It is StateNacked or StateNotSent even if there
	// is nothing to send, and StateStale even if there is something newer.
	State string
	// Has is what the client has; nil if the client rejected something, since what it has instead is
	// not known. Version is the version by which the client knows it: the resource's own in delta,
	// that of the last acknowledged response in SotW.
	Has     *xds.Resource
	Version string
	// Updated is when the origin sent the newest change in the snapshot that the client was sent.
	Updated time.Time
	// Nacked is what the client rejected; nil: not known. NackedIn is the version of the rejected
	// response; empty: not known, or the last one. NackedVersion is the version by which the client
	// knows what it rejected; empty: NackedIn.
	Nacked                  *xds.Resource
	NackedIn, NackedVersion string
	// Error is what the origin sent in place of the resource (P39).
	Error *xds.ResourceError
}

// Known are all names that the client requested, and those of all resources that it has or is to
// have, sorted.
func (s *Session) Known(newest *snapshot.Snapshot) []string {
	names := slices.Collect(s.sub.requested.Names.All())
	add := func(r *xds.Resource) bool {
		names = append(names, r.Name)
		return true
	}
	s.delivered.snapshot.Covered(s.delivered.sentBy(s.sub.effective), add)
	for name := range s.delivered.sentBeforeACK {
		names = append(names, name)
	}
	newest.Covered(s.sub.requested, add)
	sortUnique(&names)
	return names
}

// Resource is what the client has under a name, compared with the newest snapshot; false: the name
// does not concern it. acked: the client has acknowledged a response.
func (s *Session) Resource(name string, newest *snapshot.Snapshot, acked bool) (Resource, bool) {
	c := comparison{s, newest}
	had, was := c.had(name)
	// unanswered: it was requested after the last response, whose snapshot may have the name.
	unanswered := s.forced.names[name] == byRequest && s.sub.requested.Names.Has(name)
	if unanswered || was == snapshot.Absent && !s.sub.effective.Names.Has(name) {
		had, was = nil, snapshot.Pending // no response said what a wildcard's answer left out
	}
	has, is := c.see(name, had, was)
	if is == snapshot.Pending && !s.sub.effective.Covers(name) {
		has, is = newest.Look(s.sub.requested, name) // requested by a stale request (P12)
	}
	switch {
	case was != snapshot.Present && (is == snapshot.UnderOtherName || was == snapshot.UnderOtherName):
		return Resource{}, false
	case was == snapshot.Pending && is == snapshot.Pending && !s.sub.requested.Covers(name):
		return Resource{}, false
	}
	if s.form.Variant == xds.SotW && !s.fullState() && was == snapshot.Pending && (is == snapshot.Absent || is == snapshot.Unresolvable) {
		was = is // P31: such a response cannot say so, and no other answer will come
	}
	r := Resource{Name: name}
	pending, nacked := s.pendingACKs.includes(name), false
	if sent := s.delivered.snapshot; sent != nil && was != snapshot.Pending {
		r.Updated = sent.Received
	}
	if was == snapshot.Present {
		nacked = s.setNacked(&r, had, pending)
	}
	if !unanswered {
		r.Error = s.delivered.error(s.sub.effective, name)
	}
	switch {
	case nacked:
		r.NameStatus = StatusNacked
	case r.Error != nil && !r.Error.Absent():
		r.NameStatus = StatusReceivedError
	case was == snapshot.Present && pending && acked:
		r.NameStatus = StatusUnknown
	case was == snapshot.Present && !pending:
		r.NameStatus = StatusAcked
	case was == snapshot.Absent, was == snapshot.Unresolvable, r.Error != nil:
		r.NameStatus = StatusDoesNotExist
	case was == snapshot.Expired:
		r.NameStatus = StatusUnknown
	}
	if was == snapshot.Present && !pending && !nacked {
		r.Has = had
	}
	switch {
	case s.form.Variant == xds.SotW && (nacked || r.Has != nil):
		r.Version = s.acked.version
	case r.Has != nil:
		r.Version = s.form.Version(had)
	}
	switch {
	case pending:
		r.State = StateStale
	case nacked:
		r.State = StateNacked
	case was == snapshot.Pending && r.Error == nil, was == snapshot.Expired:
		r.State = StateNotSent
	case differs(s.form, s.fullState(), s.sub.effective.Names.Has(name), had, was, has, is):
		r.State = StateStale
	default:
		r.State = StateSynced
	}
	return r, true
}

// setNacked reports whether the client rejected what it was last sent under a name, and sets what
// that was. A NACK of a full-state response does not say which resource was at fault.
func (s *Session) setNacked(r *Resource, had *xds.Resource, pending bool) bool {
	if s.fullState() {
		if s.nacks.lastWasNACK && !pending {
			r.Nacked = had
		}
		return s.nacks.lastWasNACK
	}
	for _, n := range slices.Backward(s.nacks.list) {
		if _, found := slices.BinarySearch(n.names, r.Name); !found {
			continue
		}
		same := n.manifest == nil
		if n.manifest != nil {
			v, included := n.manifest.version(r.Name)
			same = included && v == had.Version
			r.NackedIn = n.manifest.Version
		}
		if same && !pending {
			r.Nacked = had
			if s.form.Variant == xds.Delta {
				r.NackedVersion = s.form.Version(had)
			}
		}
		return true
	}
	return false
}

// ComparisonCache compares many sessions with the newest snapshot. It compares sessions that have
// equal subscriptions and were sent the same only once.
type ComparisonCache struct {
	pending, unanswered map[comparisonKey]bool
}

// NewComparisonCache returns an empty cache.
func NewComparisonCache() ComparisonCache {
	return ComparisonCache{pending: make(map[comparisonKey]bool), unanswered: make(map[comparisonKey]bool)}
}

// comparisonKey decides whether there is anything to send to a session that is in step with the
// snapshot from. sub and to decide whether the origin has left names unanswered.
type comparisonKey struct {
	sub      *snapshot.Subscription
	form     xds.ResourceFormat
	full     bool
	from, to snapshot.ID
}

// maxComparisons bounds the results that a ComparisonCache keeps.
const maxComparisons = 1 << 16

// Unsent reports whether the newest snapshot has something for the session that it was not sent.
func (c *ComparisonCache) Unsent(s *Session, newest *snapshot.Snapshot) bool {
	return s.delivered.tooLarge != nil || s.LacksNames(newest) || c.anyPending(s, newest) || comparison{s, newest}.mustWait() && s.anyPresent(newest)
}

// anyPending is Session.Pending of the newest snapshot.
func (c *ComparisonCache) anyPending(s *Session, newest *snapshot.Snapshot) bool {
	d, f := &s.delivered, &s.forced
	if d.initialResponsePending || f.names != nil || f.retried != nil || d.sentBeforeACK != nil || d.errors != nil || d.resendAll {
		return s.Pending(newest)
	}
	k := comparisonKey{s.sub.effective, s.form, s.fullState(), d.snapshot.ID(), newest.ID()}
	if d.snapshot == newest {
		return false
	}
	// Then only a change of a name can be unsent.
	byName := !k.sub.Wildcard && s.clientVersions == nil && s.RemembersNoNACK()
	old := &s.sub.compared
	if (!byName || k.from != old.from || len(newest.ChangesSince(old.to, d.snapshot, k.sub)) > 0) &&
		computeOnce(c.pending, k, func() bool { return s.Pending(newest) }) {
		return true
	}
	if byName {
		*old = compared{k.from, k.to}
	}
	return false
}

// computeOnce computes the result for k, unless m has it.
func computeOnce(m map[comparisonKey]bool, k comparisonKey, compute func() bool) bool {
	result, ok := m[k]
	if !ok {
		if result = compute(); len(m) < maxComparisons {
			m[k] = result
		}
	}
	return result
}

// anyPresent reports whether there is a resource for any requested name.
func (s *Session) anyPresent(newest *snapshot.Snapshot) bool {
	return anyOf(s.sub.effective.Names.All(), func(n string) bool {
		_, is := newest.Look(s.sub.effective, n)
		return is == snapshot.Present || is == snapshot.UnderOtherName
	})
}

// AnyUnanswered reports whether UnansweredNames yields any names. Once the origin has answered all
// names of a subscription, they stay answered, except for resources that expire (P62).
func (c *ComparisonCache) AnyUnanswered(s *Session, newest *snapshot.Snapshot) bool {
	if newest != nil && s.sub.knownIn == newest.Lineage && !newest.HasExpired() {
		return false
	}
	k := comparisonKey{sub: s.sub.effective, to: newest.ID()}
	if computeOnce(c.unanswered, k, func() bool { return newest.AnyUnanswered(k.sub) }) &&
		anyOf(s.UnansweredNames(newest), func(string) bool { return true }) {
		return true
	}
	if newest != nil {
		s.sub.knownIn = newest.Lineage
	}
	return false
}

// UnansweredNames yields the names of newest.Unanswered, without those of which the client was
// sent something.
func (s *Session) UnansweredNames(newest *snapshot.Snapshot) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range newest.Unanswered(s.sub.effective) {
			_, was := s.delivered.look(s.sub.effective, name)
			answered := was != snapshot.Pending && was != snapshot.Expired
			if name == wildcard {
				answered = s.delivered.snapshot.AnswersWildcard(s.sub.effective)
			}
			if !answered && !yield(name) {
				return
			}
		}
	}
}
