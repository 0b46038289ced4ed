package session

import (
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// forced is what the next response includes although nothing changed. Its maps are nil while they
// are empty.
type forced struct {
	names map[string]forceReason
	// retried are aliases that the client requested again after the origin could not resolve them
	// (P18), with the number of that answer. They are unanswered until the origin answers again.
	retried map[string]uint64
	weight  int // see Session.NamesWeight
}

// forceReason is why a response includes a name although nothing changed. A greater one replaces a
// smaller one.
type forceReason uint8

const (
	// refreshed: its cluster changed (P37). It is sent only if it exists, and it waits for an ACK like
	// any change (P19).
	refreshed forceReason = iota + 1
	// repeated: what the client was sent is not what it is to have (P15, P50). It waits for an ACK
	// as well.
	repeated
	// byRequest: the client subscribed to it, or unsubscribed from it beside the wildcard (P22–P24).
	byRequest
)

// add has the next response include a name.
func (f *forced) add(name string, why forceReason) { put(&f.names, name, max(why, f.names[name])) }

// remove drops a name that the client unsubscribed from. sent is the resource of this name that the
// client was sent. If the client also requests it by an alias, a rejected change of it is still
// sent (P26).
func (f *forced) remove(name string, sent *xds.Resource, names *xds.NameSet) {
	if f.names[name] == byRequest || sent == nil || !sent.RequestedBy(names) {
		delete(f.names, name)
	}
}

// Refresh has the next response include those of the names that the client requests (P37: the
// endpoints of a changed cluster follow it). It reports whether there are any.
func (s *Session) Refresh(names []string) bool {
	if !s.sub.began || s.delivered.initialResponsePending {
		return false // the first response will include them
	}
	any := false
	for _, n := range names {
		if s.sub.effective.Reaches(n) {
			s.forced.add(n, refreshed)
			any = true
		}
	}
	return any
}

// answers reports whether there is something to send for a forced name. The endpoints that follow a
// cluster are sent only if they exist: their absence is sent once (P25).
func (c comparison) answers(name string) bool {
	s := c.s
	_, is := c.look(name)
	switch {
	case is == snapshot.Present, is == snapshot.UnderOtherName:
		return true
	case s.forced.names[name] == refreshed:
		return false
	case c.to.Error(s.sub.effective, name) != nil:
		return true
	}
	switch is {
	case snapshot.Absent, snapshot.Unresolvable:
		return s.form.Variant == xds.Delta || s.fullState() // P31: other SotW types cannot say so
	case snapshot.Expired:
		return s.form.Variant == xds.Delta && !s.sub.effective.Names.Has(name) // P24: unsubscribed
	}
	return false
}

// answeredBy reports whether a response from the snapshot is final for a forced name. A name that
// the client unsubscribed from beside an unanswered wildcard waits for the wildcard (P24). A
// requested name is sent, like any change, once the origin answers it.
func (s *Session) answeredBy(to *snapshot.Snapshot, name string) bool {
	_, is := to.Look(s.sub.effective, name)
	return is != snapshot.Pending || s.sub.effective.Names.Has(name) || !s.sub.effective.Wildcard
}

// Retry records the aliases that the client requests again although the origin could not resolve
// them (P18). The origin's answer counts only for clients that requested them before it. Retry
// returns the names that the relay has to request at the origin once more: these aliases, and names
// that do not exist (P25).
func (s *Session) Retry(r *xds.Request, to *snapshot.Snapshot) (again []string) {
	if s.form.Variant != xds.Delta || !to.AnyUnresolved() && to.AbsentNames() == 0 {
		return nil
	}
	for _, n := range r.Names {
		name := string(n)
		if !s.sub.effective.Names.Has(name) {
			continue
		}
		if _, is := to.Look(s.sub.effective, name); is == snapshot.Absent {
			again = append(again, name)
		}
		answer, requested := to.Unresolved(name)
		if answer == nil {
			continue
		}
		put(&s.forced.retried, name, answer.UnresolvedID())
		if !requested {
			again = append(again, name)
		}
	}
	return again
}

// retried makes an alias unanswered that the client requested after the origin could not resolve it
// (P18).
func (c comparison) retried(name string, r *xds.Resource, is snapshot.Presence) (*xds.Resource, snapshot.Presence) {
	if is == snapshot.Unresolvable && c.s.forced.retried[name] == r.UnresolvedID() {
		return nil, snapshot.Pending
	}
	return r, is
}

// appendRetried appends the retried aliases that the origin answered again (P18).
func (c comparison) appendRetried(names []string) []string {
	for name := range c.s.forced.retried {
		if _, is := c.look(name); is != snapshot.Pending {
			names = append(names, name)
		}
	}
	return names
}
