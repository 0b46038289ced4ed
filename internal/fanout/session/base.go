package session

import (
	"time"

	"xdsrelay/internal/xds"
)

// base is what a client was sent.
type base struct {
	at   *xds.Snapshot
	by   *xds.Subscription // by which it was sent, if that is not what it asks for now
	anew bool              // all of it is to be answered, again or not
}

// base is what the client was sent. That all is to be answered anew concerns
// full-state SotW only in what follows it (P37).
func (s *Session) base() base {
	return base{at: s.delivered.snapshot, by: s.delivered.sub, anew: s.delivered.resendAll && !s.full()}
}

func (b base) sentBy(sub *xds.Subscription) *xds.Subscription {
	if b.by != nil {
		return b.by
	}
	return sub
}

// look is what the client, which asks for sub now, was sent under name. What lapsed
// it may still have, also where the name has led elsewhere since.
func (b base) look(sub *xds.Subscription, name string) (*xds.Resource, xds.Presence) {
	r, is := b.at.Look(b.sentBy(sub), name)
	if is == xds.Elsewhere {
		if own, of := b.at.Own(b.sentBy(sub), name); of == xds.Lapsed {
			return own, xds.Lapsed
		}
	}
	return r, is
}

// error is what the client was told of an error of name (P39).
func (b base) error(sub *xds.Subscription, name string) *xds.ResourceError {
	return b.at.Error(b.sentBy(sub), name)
}

// again: what the client was sent plays no part.
func (b base) again(was, is xds.Presence) bool {
	return b.anew && (was != xds.Present || is != xds.Absent)
}

// candidates are the names that may differ between what the client was sent and
// what it is to see of to.
func (b base) candidates(to *xds.Snapshot, sub *xds.Subscription) []string {
	names := to.Changes(b.at, b.sentBy(sub))
	if b.anew {
		names = append(names, to.Changes(nil, sub)...)
	}
	return names
}

// renewed are the names whose TTL may have been renewed (P62).
func (b base) renewed(to *xds.Snapshot, sub *xds.Subscription) []string {
	return to.Renewed(b.at, b.sentBy(sub))
}

// plan is one of cur, which does nothing yet.
func (s *Session) plan(cur *xds.Snapshot, now time.Time) Plan {
	return Plan{To: cur, At: now, Limit: s.limit, base: s.base()}
}
