package session

import (
	"iter"
	"slices"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// NameStatus is what is known of a client and a name that it asked for. It is CSDS's
// ClientResourceStatus.
type NameStatus uint8

const (
	StatusRequested     NameStatus = iota // it was sent nothing of it, or has not answered its first response
	StatusDoesNotExist                    // there is no such resource, and the client was sent that, as far as its variant can express it
	StatusAcked                           // it acknowledged the resource, or brought it from another stream
	StatusNacked                          // it refused the response with the resource
	StatusReceivedError                   // it was sent an error in its place (P39)
	StatusUnknown                         // it has not answered yet and may have an older one, or its TTL is over
)

// States of a type on a stream, as in istioctl proxy-status.
const (
	Synced     = "SYNCED"   // it acknowledged all that the newest snapshot has for it
	NotSent    = "NOT SENT" // the origin has not answered some of what it asks for, and it has the rest; or the first response is on its way
	Unanswered = "STALE"    // it has not answered, or has not been sent all of the newest snapshot
	Refused    = "NACKED"   // its last answer was a NACK, or it refused something that it is still to have
)

// Resource is one name that a client asked for.
type Resource struct {
	Name string // as the client knows it
	NameStatus
	// State is that of the name, in the words for types. Refused and NotSent also if there is
	// nothing to send. Unanswered also if there is something newer.
	State string
	// Has is what the client has; nil if it refused something, since what it has instead is not
	// known. Version is the one by which the client knows it: the resource's own in delta, that of
	// the last acknowledged response in SotW.
	Has     *xds.Resource
	Version string
	// Updated is when the origin sent the newest change in the snapshot that the client was sent.
	Updated time.Time
	// Refused is what it refused; nil: not known. RefusedIn is the version of the refused response;
	// empty: not known, or the last one. RefusedVersion is the version by which the client names
	// what it refused; empty: RefusedIn.
	Refused                   *xds.Resource
	RefusedIn, RefusedVersion string
	// Error is what the origin sent in place of the resource (P39).
	Error *xds.ResourceError
}

// Known are all names, sorted, that the client asked for, and those of all resources that it has or
// is to have.
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

// Resource is what the client has of a name, by the newest snapshot; false: nothing of that name
// concerns it. acked: the client has acknowledged a response.
func (s *Session) Resource(name string, newest *snapshot.Snapshot, acked bool) (Resource, bool) {
	c := comparison{s, newest}
	had, was := c.had(name)
	// unanswered: it is asked for since, although the snapshot that was sent has something by it.
	unanswered := s.forced.names[name] == asked && s.sub.requested.Names.Has(name)
	if unanswered || was == snapshot.Absent && !s.sub.effective.Names.Has(name) {
		had, was = nil, snapshot.Pending // no response said what a wildcard's answer left out
	}
	has, is := c.see(name, had, was)
	if is == snapshot.Pending && !s.sub.effective.Covers(name) {
		has, is = newest.Look(s.sub.requested, name) // asked for by a stale request (P12)
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
	inFlight, refused := s.inFlight.includes(name), false
	if sent := s.delivered.snapshot; sent != nil && was != snapshot.Pending {
		r.Updated = sent.Received
	}
	if was == snapshot.Present {
		refused = s.setRefused(&r, had, inFlight)
	}
	if !unanswered {
		r.Error = s.delivered.error(s.sub.effective, name)
	}
	switch {
	case refused:
		r.NameStatus = StatusNacked
	case r.Error != nil && !r.Error.Absent():
		r.NameStatus = StatusReceivedError
	case was == snapshot.Present && inFlight && acked:
		r.NameStatus = StatusUnknown
	case was == snapshot.Present && !inFlight:
		r.NameStatus = StatusAcked
	case was == snapshot.Absent, was == snapshot.Unresolvable, r.Error != nil:
		r.NameStatus = StatusDoesNotExist
	case was == snapshot.Expired:
		r.NameStatus = StatusUnknown
	}
	if was == snapshot.Present && !inFlight && !refused {
		r.Has = had
	}
	switch {
	case s.form.Variant == xds.SotW && (refused || r.Has != nil):
		r.Version = s.acked.version
	case r.Has != nil:
		r.Version = s.form.Version(had)
	}
	switch {
	case inFlight:
		r.State = Unanswered
	case refused:
		r.State = Refused
	case was == snapshot.Pending && r.Error == nil, was == snapshot.Expired:
		r.State = NotSent
	case differs(s.form, s.fullState(), s.sub.effective.Names.Has(name), had, was, has, is):
		r.State = Unanswered
	default:
		r.State = Synced
	}
	return r, true
}

// setRefused reports whether the client refused what it was last sent of a name, and notes what
// that was. A NACK of a full set does not say which resource was at fault.
func (s *Session) setRefused(r *Resource, had *xds.Resource, inFlight bool) bool {
	if s.fullState() {
		if s.refusals.lastAnswer && !inFlight {
			r.Refused = had
		}
		return s.refusals.lastAnswer
	}
	for _, ref := range slices.Backward(s.refusals.list) {
		if _, is := slices.BinarySearch(ref.names, r.Name); !is {
			continue
		}
		same := ref.manifest == nil
		if ref.manifest != nil {
			v, included := ref.manifest.version(r.Name)
			same = included && v == had.Version
			r.RefusedIn = ref.manifest.Version
		}
		if same && !inFlight {
			r.Refused = had
			if s.form.Variant == xds.Delta {
				r.RefusedVersion = s.form.Version(had)
			}
		}
		return true
	}
	return false
}

// Survey is one look at many sessions. Sessions that have equal subscriptions and were sent the
// same are compared with the newest snapshot once.
type Survey struct {
	pending, awaiting map[surveyKey]bool
}

// NewSurvey begins a look.
func NewSurvey() Survey {
	return Survey{pending: make(map[surveyKey]bool), awaiting: make(map[surveyKey]bool)}
}

// surveyKey decides whether there is anything to send to a session that is in step with the
// snapshot that it was sent; sub and to decide whether it waits for the origin.
type surveyKey struct {
	sub      *snapshot.Subscription
	form     xds.ResourceFormat
	full     bool
	from, to SnapshotID
}

// maxSurveyed bounds what a survey remembers.
const maxSurveyed = 1 << 16

// Unsent reports whether the newest snapshot has something for the session that it was not sent.
func (v *Survey) Unsent(s *Session, newest *snapshot.Snapshot) bool {
	return s.delivered.tooLarge != nil || v.anyPending(s, newest) || comparison{s, newest}.mustWait() && s.anyPresent(newest)
}

// anyPending is Session.Pending of the newest snapshot.
func (v *Survey) anyPending(s *Session, newest *snapshot.Snapshot) bool {
	d, f := &s.delivered, &s.forced
	if d.initialResponsePending || f.names != nil || f.retried != nil || d.sentBeforeACK != nil || d.errors != nil || d.resendAll {
		return s.Pending(newest)
	}
	if d.snapshot == newest {
		return false
	}
	k := surveyKey{s.sub.effective, s.form, s.fullState(), IDOf(d.snapshot), IDOf(newest)}
	if is, ok := v.pending[k]; ok {
		return is
	}
	is := s.Pending(newest)
	if len(v.pending) < maxSurveyed {
		v.pending[k] = is
	}
	return is
}

// anyPresent reports whether there is a resource for any name that the client asks for.
func (s *Session) anyPresent(newest *snapshot.Snapshot) bool {
	for name := range s.sub.effective.Names.All() {
		if _, is := newest.Look(s.sub.effective, name); is == snapshot.Present || is == snapshot.UnderOtherName {
			return true
		}
	}
	return false
}

// Awaiting reports whether the session asks for anything that the origin has not answered and of
// which the client was sent nothing. Once the origin has answered all of it, it stays so for this
// subscription, except for what lapses (P62).
func (v *Survey) Awaiting(s *Session, newest *snapshot.Snapshot) bool {
	if newest != nil && s.sub.knownIn == newest.Lineage && !newest.HasExpired() {
		return false
	}
	k := surveyKey{sub: s.sub.effective, to: IDOf(newest)}
	any, ok := v.awaiting[k]
	if !ok {
		any = AwaitsAny(k.sub, newest)
		if len(v.awaiting) < maxSurveyed {
			v.awaiting[k] = any
		}
	}
	if any {
		for range s.UnansweredNames(newest) {
			return true
		}
	}
	if newest != nil {
		s.sub.knownIn = newest.Lineage
	}
	return false
}

// UnansweredNames yields the names that Awaits yields and of which the client was sent nothing
// either.
func (s *Session) UnansweredNames(newest *snapshot.Snapshot) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range Awaits(s.sub.effective, newest) {
			if name == wildcard {
				if s.delivered.snapshot.AnswersWildcard(s.sub.effective) {
					continue
				}
			} else if _, was := s.delivered.look(s.sub.effective, name); was != snapshot.Pending && was != snapshot.Expired {
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
func Awaits(sub *snapshot.Subscription, newest *snapshot.Snapshot) iter.Seq[string] {
	return func(yield func(string) bool) {
		if sub.Wildcard && !newest.AnswersWildcard(sub) && !yield(wildcard) {
			return
		}
		for name := range sub.Names.All() {
			_, is := newest.Look(sub, name)
			if (is == snapshot.Pending || is == snapshot.Expired) && (newest == nil || newest.Error(sub, name) == nil) && !yield(name) {
				return
			}
		}
	}
}

// AwaitsAny reports whether Awaits yields any names.
func AwaitsAny(sub *snapshot.Subscription, newest *snapshot.Snapshot) bool {
	for range Awaits(sub, newest) {
		return true
	}
	return false
}
