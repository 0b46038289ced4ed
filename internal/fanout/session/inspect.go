package session

import (
	"maps"
	"slices"
	"time"

	"xdsrelay/internal/xds"
)

// Still is a copy of a session that stays as it is. What is out of step is copied,
// all else shared: snapshots, sets and manifests do not change.
func (s *Session) Still() *Session {
	c := *s
	c.delivered.sentBeforeACK, c.delivered.errors = maps.Clone(s.delivered.sentBeforeACK), maps.Clone(s.delivered.errors)
	c.forced.names, c.forced.retried = maps.Clone(s.forced.names), maps.Clone(s.forced.retried)
	c.inFlight.responses, c.refusals.list = slices.Clone(s.inFlight.responses), slices.Clone(s.refusals.list)
	c.resumed = nil
	return &c
}

// Stance is how a client stands to a name that it asked for, as far as it told.
type Stance uint8

const (
	// Untold: it was sent nothing of it, or has not answered its first response.
	Untold Stance = iota
	// Missing: there is no such resource, and the client knows, as far as its
	// variant has a way to tell it.
	Missing
	// Taken: it acknowledged it, or brought it from another stream.
	Taken
	// Declined: it refused the response that it came with.
	Declined
	// Failed: it was told of an error in its place (P39).
	Failed
	// Unsure: it has not answered yet, and may have an older one; or the TTL of
	// what it had is over.
	Unsure
)

// States of a type on a stream, as istioctl proxy-status has them.
const (
	Synced     = "SYNCED"   // took all that the newest has for it
	NotSent    = "NOT SENT" // of some of what it asks for nothing is known, and it has all else; or nothing was sent yet, and it is on its way
	Unanswered = "STALE"    // has not answered, or has not been sent all of the newest
	Refused    = "NACKED"   // refused the last it answered, or what it is still to have
)

// Resource is one name that a client asked for.
type Resource struct {
	Name string // as the client is told
	Stance
	// State is that of the name, by the words for types: Refused or NotSent, also if
	// there is nothing to send; Unanswered also if there is something newer.
	State string
	// Has is what the client has, and Version the one that it knows it by: its own
	// in delta, that of the last response taken in state of the world. Of what
	// it refused, what it has instead is not known.
	Has     *xds.Resource
	Version string
	// Updated is when the newest came of what it was sent the resource with.
	Updated time.Time
	// Refused is what it refused, nil where that is not known. RefusedIn is the version of
	// the response that it refused; empty: that is not known, or is the last one.
	// RefusedVersion is the version by which it names what it refused; empty: RefusedIn.
	Refused                   *xds.Resource
	RefusedIn, RefusedVersion string
	// Error is what the origin said instead (P39).
	Error *xds.ResourceError
}

// Known are all names that the client asked for, and of all that it has or is to
// have, sorted.
func (s *Session) Known(now *xds.Snapshot) []string {
	names := slices.Collect(s.sub.requested.Names.All())
	add := func(r *xds.Resource) bool {
		names = append(names, r.Name)
		return true
	}
	s.delivered.snapshot.Covered(s.sentBy(), add)
	for name := range s.delivered.sentBeforeACK {
		names = append(names, name)
	}
	now.Covered(s.sub.requested, add)
	sortUnique(&names)
	return names
}

// Resource is how the client stands to name, by what is newest; false: to nothing of
// that name. took: the client has acknowledged a response.
func (s *Session) Resource(name string, newest *xds.Snapshot, took bool) (Resource, bool) {
	had, was := s.had(name)
	if s.unspoken(name) || was == xds.Absent && !s.sub.effective.Names.Has(name) {
		had, was = nil, xds.Pending // what a wildcard's answer left out, nobody spoke of
	}
	has, is := s.see(name, newest, had, was)
	if is == xds.Pending && !s.sub.effective.Covers(name) {
		has, is = newest.Look(s.sub.requested, name) // asked for by a request that was stale (P12)
	}
	switch {
	case was != xds.Present && (is == xds.Elsewhere || was == xds.Elsewhere):
		return Resource{}, false
	case was == xds.Pending && is == xds.Pending && !s.sub.requested.Covers(name):
		return Resource{}, false
	}
	if s.form.Variant == xds.SotW && !s.full() && was == xds.Pending && (is == xds.Absent || is == xds.Unresolvable) {
		was = is // P31: it is told by silence, and there is no other answer to come
	}
	r := Resource{Name: name}
	flies, refused := s.flies(name), false
	if at := s.delivered.snapshot; at != nil && was != xds.Pending {
		r.Updated = at.Received
	}
	if was == xds.Present {
		refused = s.declined(name, had, flies, &r)
	}
	told := s.told(name)
	if s.unspoken(name) {
		told = nil
	}
	r.Error = told
	switch {
	case refused:
		r.Stance = Declined
	case told != nil && !told.Absent():
		r.Stance = Failed
	case was == xds.Present && flies && took:
		r.Stance = Unsure
	case was == xds.Present && !flies:
		r.Stance = Taken
	case was == xds.Absent, was == xds.Unresolvable, told != nil:
		r.Stance = Missing
	case was == xds.Lapsed:
		r.Stance = Unsure
	}
	if was == xds.Present && !flies && !refused {
		r.Has = had
	}
	if r.Has != nil || refused && s.form.Variant == xds.SotW {
		r.Version = s.versionOf(had)
	}
	switch {
	case flies:
		r.State = Unanswered
	case refused:
		r.State = Refused
	case was == xds.Pending && told == nil, was == xds.Lapsed:
		r.State = NotSent
	case differs(s.form, s.full(), s.sub.effective.Names.Has(name), had, was, has, is):
		r.State = Unanswered
	default:
		r.State = Synced
	}
	return r, true
}

// unspoken reports whether a name is to be answered that was not, though what the
// client was sent has something by it.
func (s *Session) unspoken(name string) bool {
	why, waits := s.forced.names[name]
	return waits && why == asked && s.sub.requested.Names.Has(name)
}

// flies reports whether a response that is not answered yet speaks of name.
func (s *Session) flies(name string) bool {
	return slices.ContainsFunc(s.inFlight.responses, func(f pendingACK) bool {
		_, says := f.frame.says(name)
		return says
	})
}

// declined reports whether the client refused what it was sent last of name, and
// notes what that was. Of a full set nobody can tell which of it was at fault.
func (s *Session) declined(name string, had *xds.Resource, flies bool, r *Resource) bool {
	if s.full() {
		if s.refusals.last && !flies {
			r.Refused = had
		}
		return s.refusals.last
	}
	for _, ref := range slices.Backward(s.refusals.list) {
		if _, is := slices.BinarySearch(ref.names, name); !is {
			continue
		}
		same := ref.said == nil
		if ref.said != nil {
			var v xds.Version
			v, same = ref.said.says(name)
			same = same && v == had.Version
			r.RefusedIn = ref.said.Version
		}
		if same && !flies {
			r.Refused = had
			if s.form.Variant == xds.Delta {
				r.RefusedVersion = s.form.Version(had)
			}
		}
		return true
	}
	return false
}

// versionOf is the one by which the client knows the resource that it has.
func (s *Session) versionOf(had *xds.Resource) string {
	if s.form.Variant == xds.Delta {
		return s.form.Version(had)
	}
	return s.acked.version
}
