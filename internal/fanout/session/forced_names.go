package session

import (
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// forced is what the next response answers although nothing changed. Its maps are nil while they
// are empty.
type forced struct {
	names map[string]forceReason
	// retried are aliases that the client asked for again, with the number of the origin's last
	// answer before that: "not resolvable" (P18). They are pending until it answers again.
	retried map[string]uint64
	weight  int // see Session.NamesWeight
}

// forceReason is why a name is answered although nothing changed. A greater one replaces a smaller
// one.
type forceReason uint8

const (
	// refreshed: its cluster changed (P37). Only what is there is sent, and it waits for an ACK
	// like any change (P19).
	refreshed forceReason = iota + 1
	// repeated: what the client was sent is not what it is to have (P15, P50). It waits for an ACK
	// as well.
	repeated
	// asked: it is newly subscribed, or given up beside the wildcard (P22–P24).
	asked
)

// add has a name answered by the next response.
func (f *forced) add(name string, why forceReason) {
	if f.names == nil {
		f.names = make(map[string]forceReason)
	}
	f.names[name] = max(why, f.names[name])
}

// remove drops a name that the client unsubscribed. sent is the resource of this name that the
// client was sent. If the client also subscribes to it by an alias, a refused change of it is still
// sent (P26).
func (f *forced) remove(name string, sent *xds.Resource, names *xds.NameSet) {
	if f.names[name] == asked || sent == nil || !sent.RequestedBy(names) {
		delete(f.names, name)
	}
}

// Refresh has the names answered again to which the client is subscribed (P37: a changed cluster's
// endpoints follow it). It reports whether there are any.
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

// answers reports whether there is an answer for a forced name. An endpoint that follows its
// cluster is sent only if it is there: its absence is sent once (P25).
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
		return s.form.Variant == xds.Delta && !s.sub.effective.Names.Has(name) // P24: it was given up
	}
	return false
}

// answersAnyForced reports whether there is an answer for any forced name.
func (c comparison) answersAnyForced() bool {
	for name := range c.s.forced.names {
		if c.answers(name) {
			return true
		}
	}
	return false
}

// answeredBy reports whether a response to a forced name was made from the snapshot. Beside a
// wildcard that has no answer yet, a name that was given up waits for that answer (P24). A name
// that is asked for is sent, like any change, once the origin answers it.
func (s *Session) answeredBy(to *snapshot.Snapshot, name string) bool {
	_, is := to.Look(s.sub.effective, name)
	return is != snapshot.Pending || s.sub.effective.Names.Has(name) || !s.sub.effective.Wildcard
}

// RetryAliases notes which aliases the request asks for again although the origin could not resolve
// them (P18): the origin's answer counts only for clients that had asked before it. It returns the
// names that the origin has to be asked for once more.
func (s *Session) RetryAliases(r *xds.Request, to *snapshot.Snapshot) (ask []string) {
	if s.form.Variant != xds.Delta || !to.AnyUnresolved() {
		return nil
	}
	for _, n := range r.Names {
		name := string(n)
		if !s.sub.effective.Names.Has(name) {
			continue
		}
		answer, asked := to.Unresolved(name)
		if answer == nil {
			continue
		}
		if s.forced.retried == nil {
			s.forced.retried = make(map[string]uint64)
		}
		s.forced.retried[name] = answer.UnresolvedID()
		if !asked {
			ask = append(ask, name)
		}
	}
	return ask
}

// retried makes an alias pending that the client asked for after the origin could not resolve it
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
