package xds

// loan says that a resource in the place of what came for a name is the
// wildcard's copy, which is served until the name is answered: it was what those
// who ask for the name had before, and the wildcard does not bring it any more
// (P50). It is no answer itself. If it counted as one, its absence from the next
// response would be a removal (P65), and no clock would run for the name (P57).
// Without it the name would be pending in between, and what clients have would
// be sent to them again, or its removal taken for the first answer.
type loan uint8

const (
	// untilTime: the origin has removed it from the wildcard. If it says nothing
	// of the name either, it is gone.
	untilTime loan = iota + 1
	// untilAnswer: nobody asks for the wildcard any more. What is held never
	// becomes absent by silence.
	untilAnswer
)

// lent reports whether it is on loan.
func lent(r *Resource) bool { return r != nil && r.loan != 0 }

// lend returns the resource on loan. All bytes are shared.
func (r *Resource) lend(l loan) *Resource {
	out := *r
	out.loan = l
	return &out
}

// own returns the resource as what it is.
func (r *Resource) own() *Resource {
	if !lent(r) {
		return r
	}
	return r.lend(0)
}

// Lend has those of names that the wildcard has, and is about to lose, stay for
// who asked for them, or by a handle, and waits for an answer.
func (b *Builder) Lend(asked *NameSet, names []string) {
	for _, name := range names {
		if e, ok := b.entries.Get(name); ok && e.lend(asked, untilTime) {
			b.set(name, e)
		}
	}
}

// lend lends the wildcard's copy to who asks for the name, if there is no answer
// to that. What is not to be kept is not lent (P63).
func (e *entry) lend(asked *NameSet, l loan) bool {
	waits := e.named == nil || lent(e.named) || l == untilAnswer && e.named == guessed
	if !waits || !there(e.wild) || e.wild.Uncacheable || !e.wild.AskedBy(asked) {
		return false
	}
	e.named = e.wild.lend(l)
	return true
}
