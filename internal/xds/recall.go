package xds

// Recall takes over what was stored (P66). It is as an update of the origin that said it
// once, but its resources and its answer to the wildcard are marked as stored. An update
// of an origin replaces them name by name, and until then the snapshots are Stale.
func (b *Builder) Recall(u Update) {
	b.apply(u, true)
	if u.Wildcard {
		b.storedAnswer, b.dirty = true, true
	}
}

// mark returns the resource, or a copy of it, that is marked as stored or is not.
func (r *Resource) mark(stored bool) *Resource {
	if r.stored == stored {
		return r
	}
	out := *r
	out.stored = stored
	return &out
}

// isStored reports whether a part of an entry is marked as stored.
func isStored(r *Resource) bool { return there(r) && r.stored }

// stale reports whether anything is marked as stored.
func (b *Builder) stale() bool { return b.storedAnswer || b.stored > 0 }

// AnswersWildcard reports whether there is an answer to the wildcard for a client with
// sub. A client that brought state gets none from the store (P66), and none of which
// only a part has come (P67): it would delete what it has.
func (s *Snapshot) AnswersWildcard(sub *Subscription) bool {
	return s.answered() && (s.Complete || !sub.HasState)
}
