package content

import (
	"fmt"
	"slices"
	"xdsrelay/internal/xds/snapshot"
)

// Check returns which of the invariants below does not hold; nil if all do. It is for tests.
func (c *Content) Check() error {
	for _, t := range c.types {
		if err := t.check(); err != nil {
			return fmt.Errorf("%s: %w", t.typ.Label(), err)
		}
	}
	return nil
}

func (t *TypeContent) check() error {
	newest := t.Newest()
	// Whatever names brought is subscribed (P65).
	for r := range t.part(snapshot.ByName).Resources {
		if !r.RequestedBy(t.names) {
			return fmt.Errorf("%s is held, but not subscribed", r.Name)
		}
	}
	// Nothing is left of a wildcard that is not subscribed.
	if !t.wildcard && (answered(newest) || len(slices.Collect(t.part(snapshot.ByWildcard).Resources)) > 0 || !t.completion.due.IsZero()) {
		return fmt.Errorf("the wildcard is not subscribed, but something is left of it")
	}
	// A snapshot is of the newest State, or of the next one.
	if newest != nil && newest.StateNumber > t.content.stateNumber+1 {
		return fmt.Errorf("a snapshot of State %d after State %d", newest.StateNumber, t.content.stateNumber)
	}
	// Only subscribed names are omitted from requests, or requested again.
	for name := range t.omitted {
		if !t.names.Has(name) {
			return fmt.Errorf("%s is omitted, but not subscribed", name)
		}
	}
	for name := range t.requestedAgain {
		if !t.names.Has(name) {
			return fmt.Errorf("%s was requested again, but is not subscribed", name)
		}
	}
	return t.removals.check(t)
}

func (r *removals) check(t *TypeContent) error {
	for at, w := range r.waiting {
		// A deletion waits for a resource that is held, or for a name that is omitted.
		if !t.omits(at) && !t.builder.Has(at.name, at.scope) {
			return fmt.Errorf("the deletion of %+v waits, but nothing is held", at)
		}
		// No deletion has waited for longer than oldest says.
		if w.since.Before(r.oldest) {
			return fmt.Errorf("the deletion of %+v waits since %v, before %v", at, w.since, r.oldest)
		}
	}
	// anyAdded tells an ACK that resources were added since the last sweep.
	if len(r.added) > 0 && !r.anyAdded.Load() {
		return fmt.Errorf("%d resources were added, but anyAdded is not set", len(r.added))
	}
	// What was added is held.
	for name := range r.added {
		if !t.builder.Has(name, snapshot.ByWildcard) && !t.builder.Has(name, snapshot.ByName) {
			return fmt.Errorf("%s counts as added, but is not held", name)
		}
	}
	return nil
}
