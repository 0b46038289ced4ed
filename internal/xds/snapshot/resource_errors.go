package snapshot

import "xdsrelay/internal/xds"

// maxErrorsBytes limits the resource_errors kept for one type of a key, in bytes.
const maxErrorsBytes = 16 << 20

// entryErrors has the errors of an entry: the error that answered the wildcard, and the one that
// answered a subscription to the name. One is no answer to the other (P51, P57). If both say the
// same, both pointers are equal.
type entryErrors struct{ wildcard, named *xds.ResourceError }

// pointer returns a pointer to the error of the part of this scope.
func (e *entryErrors) pointer(scope Scope) **xds.ResourceError {
	if scope == ByWildcard {
		return &e.wildcard
	}
	return &e.named
}

func (e entryErrors) any() bool { return e != entryErrors{} }

func (e entryErrors) size() int64 { return e.wildcard.Size() + e.named.Size() }

// error returns the error for a client with sub; nil if there is none for it. listed says that
// sub.Names has the name. A client that lists the name gets the wildcard's error if there is no
// other. A client with only the wildcard does not get the error for the name.
func (e entry) error(sub *Subscription, listed bool) *xds.ResourceError {
	if !e.errors.any() {
		return nil
	}
	first, second := e.errors.named, e.errors.wildcard
	switch {
	case sub.Wildcard:
		first, second = e.errors.wildcard, nil
		if listed || e.named.HasBody() && e.named.RequestedByAlias(sub.Names) {
			second = e.errors.named
		}
	case !listed && e.visible(sub, false) == nil:
		return nil
	}
	if first != nil {
		return first
	}
	return second
}

// setError stores an error beside the resource. scope says what it answered. news
// is false if that part has an equal error already. kept is false if there is no room.
func (b *Builder) setError(err *xds.ResourceError, scope Scope) (news, kept bool) {
	e, _ := b.entries.Get(err.Name)
	before := e.errors
	if was, noted := b.pending[err.Name]; noted {
		before = was.errors // the same update may have cleared it
	}
	for _, known := range [...]*xds.ResourceError{*before.pointer(scope.Other()), *before.pointer(scope)} {
		if err.Same(known) {
			err = known
		}
	}
	at := e.errors.pointer(scope)
	if err == *at {
		return false, true
	}
	if b.errorBytes+err.Size()-(*at).Size() > maxErrorsBytes {
		return false, false
	}
	*at = err
	b.set(err.Name, e)
	return true, true
}

// DroppedErrors returns how many errors were not kept for lack of room since the last call.
func (b *Builder) DroppedErrors() int {
	n := b.droppedErrors
	b.droppedErrors = 0
	return n
}

// Error returns the origin's error for a name that sub covers, or for a resource that sub covers by
// an alias; nil if there is none. An error for a name is not shown to a client with only the
// wildcard (P51).
func (s *Snapshot) Error(sub *Subscription, name string) *xds.ResourceError {
	if s == nil || s.errorCount == 0 {
		return nil
	}
	e, _ := s.entries.Get(name)
	return e.error(sub, sub.Names.Has(name))
}

// Errors calls yield for each error that Error returns for sub, in order of names.
func (s *Snapshot) Errors(sub *Subscription, yield func(*xds.ResourceError) bool) {
	if s == nil || s.errorCount == 0 {
		return
	}
	if sub.Wildcard {
		s.entries.Scan(func(name string, e entry) bool {
			err := e.error(sub, sub.Names.Has(name))
			return err == nil || yield(err)
		})
		return
	}
	for _, name := range s.expandAliases(sub) {
		if e := s.Error(sub, name); e != nil && !yield(e) {
			return
		}
	}
}
