package session

import (
	"time"

	"xdsrelay/internal/xds"
)

// brought is what a client brought from another stream. It is kept until all that the
// client asks for is answered (P67): the relay may have started a moment ago and hold
// only a part of what the origin has. In delta it is also kept until all versions in it
// are answered (P27).
type brought struct {
	versions map[string]string // of initial_resource_versions, by name; nil in SotW
	until    time.Time         // how long names are waited for; zero: nothing is answered yet
	late     bool              // that time is over
}

// NamesWait is how long at most a client that brought state waits for names, from when
// anything that it asks for is answered.
const NamesWait = 5 * time.Second

// bring reads the versions in a type's first request. An empty version matches nothing,
// but what is gone under that name is told.
func (s *Session) bring(r *xds.Request) {
	s.resumed = new(brought)
	if len(r.Initial) > 0 {
		s.resumed.versions = make(map[string]string, len(r.Initial))
	}
	for _, e := range r.Initial {
		s.resumed.versions[string(e.Name)] = string(e.Version)
		s.forced.weight += xds.VersionedWeight(len(e.Name), len(e.Version))
	}
}

// Remembers is the weight of the names that the client brought or gave up since nothing
// was open. The session may hold them until they are answered and the client has
// acknowledged the answer.
func (s *Session) Remembers() int {
	if s.forced.names == nil && s.delivered.sentBeforeACK == nil && s.resumed == nil && s.refusals.list == nil && len(s.inFlight.responses) == 0 {
		s.forced.weight = 0
	}
	return s.forced.weight
}

// bringsState reports whether the first request of the type, which r may be, has versions
// of another stream: initial_resource_versions, or version_info in SotW.
func (s *Session) bringsState(r *xds.Request) bool {
	switch {
	case s.sub.began:
		return s.sub.resumes
	case s.form.Variant == xds.SotW:
		return len(r.Version) > 0
	}
	return len(r.Initial) > 0
}

// initial are the versions that the client brought and that are not answered yet.
func (s *Session) initial() map[string]string {
	if s.resumed == nil {
		return nil
	}
	return s.resumed.versions
}

// incomplete reports whether something that the client asks for may still come, and the
// client would take it for gone (P67).
func (s *Session) incomplete(cur *xds.Snapshot) bool {
	switch b := s.resumed; {
	case b == nil:
		return false
	case s.sub.effective.Wildcard && !cur.AnswersWildcard(s.sub.effective):
		return true
	default:
		_, all := s.answered(cur)
		return !all && !b.late
	}
}

// answered reports whether any of what the client asks for is answered, and whether all
// names are.
func (s *Session) answered(cur *xds.Snapshot) (any, names bool) {
	any, names = s.sub.effective.Wildcard && cur.Answered, true
	for n := range s.sub.effective.Names.All() {
		if _, is := s.look(n, cur); is == xds.Pending && cur.Error(s.sub.effective, n) == nil {
			names = false
		} else {
			any = true
		}
		if any && !names {
			break
		}
	}
	return any, names
}

// awaitNames follows how long the client waits for names. It returns when that is over;
// zero: it does not wait.
func (s *Session) awaitNames(cur *xds.Snapshot, now time.Time) time.Time {
	b := s.resumed
	if b == nil || b.late {
		return time.Time{}
	}
	if any, names := s.answered(cur); names || !any {
		return time.Time{}
	}
	if b.until.IsZero() {
		b.until = now.Add(NamesWait)
	}
	if b.late = !now.Before(b.until); b.late {
		return time.Time{}
	}
	return b.until
}
