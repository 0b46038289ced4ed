package audience

import (
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Everything is the subscription of a wildcard client that lists no name.
var Everything = &snapshot.Subscription{Wildcard: true}

// EverythingResuming is the subscription of such a client if it resumes.
var EverythingResuming = &snapshot.Subscription{Wildcard: true, Resumes: true}

// Table has one Subscription for each content that a client of a group has. Its references are
// weak: a subscription that was interned and never used cannot leak. It is safe for concurrent use;
// the receivers of streams call it. The zero Table is empty.
type Table struct {
	subs xds.WeakSet[snapshot.Subscription]
}

// Intern returns the one subscription that is equal to sub.
func (t *Table) Intern(sub *snapshot.Subscription) *snapshot.Subscription {
	switch {
	case sub.Empty():
		return snapshot.Nothing
	case sub.Equal(Everything): // the most frequent ones are shared by all groups
		return Everything
	case sub.Equal(EverythingResuming):
		return EverythingResuming
	}
	h := sub.Names.Sum() << 1
	if sub.Wildcard {
		h |= 1
	}
	if have := t.subs.Find(h, sub.Equal); have != nil {
		have.Unshared.Store(false)
		return have
	}
	// A copy, because the caller's may be in the table of another group.
	own := &snapshot.Subscription{Wildcard: sub.Wildcard, Resumes: sub.Resumes, Names: sub.Names, Brought: sub.Brought}
	own.Unshared.Store(true)
	have := t.subs.Keep(h, own, sub.Equal)
	if have != own {
		have.Unshared.Store(false)
	}
	return have
}
