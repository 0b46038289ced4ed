package audience

import (
	"fmt"

	"xdsrelay/internal/xds"
)

// Check returns which of the invariants below does not hold; nil if all do. It is for tests.
func (a *Audience[M]) Check() error {
	lingering := 0
	for _, t := range a.types {
		if err := t.check(); err != nil {
			return err
		}
		lingering += len(t.lingering)
	}
	// The list has the lingering names of all types, the oldest first.
	if lingering != a.lingering.Len() {
		return fmt.Errorf("%d names linger, and %d are in the list", lingering, a.lingering.Len())
	}
	for e := a.lingering.Front(); e != nil && e.Next() != nil; e = e.Next() {
		if e.Value.(*lingeringName[M]).since > e.Next().Value.(*lingeringName[M]).since {
			return fmt.Errorf("%v lingers before an older name", e.Value)
		}
	}
	return nil
}

func (t *TypeAudience[M]) check() error {
	// Unless Merge has something to do, the union is what subscribers want, and what lingers. A
	// wildcard may stay between two steps because it serves a name (P50).
	if len(t.touched) == 0 {
		for name := range t.names.All() {
			if t.index.hasName(name) == (t.lingering[subscribed{name: name}] != nil) {
				return fmt.Errorf("%s is subscribed; wanted: %v", name, t.index.hasName(name))
			}
		}
		for name := range t.index.names {
			if !t.names.Has(name) {
				return fmt.Errorf("%s is wanted, but not subscribed", name)
			}
		}
	}
	// What lingers is subscribed.
	for at := range t.lingering {
		if at.wildcard && !t.wildcard || !at.wildcard && !t.names.Has(at.name) {
			return fmt.Errorf("%+v lingers, but is not subscribed", at)
		}
	}
	// Only subscribers want or NACK something.
	if t.subscribers < len(t.nacking) || t.subscribers == 0 && len(t.index.names)+len(t.index.chunks)+len(t.index.subs)+t.index.wild.len() > 0 {
		return fmt.Errorf("%d subscribers, but %d subscriptions and %d that NACK", t.subscribers, len(t.index.subs), len(t.nacking))
	}
	// The weight is that of the wanted names.
	weight := 0
	for name := range t.index.names {
		weight += xds.NameWeight(len(name))
	}
	if weight != t.index.weight {
		return fmt.Errorf("the weight is %d, not %d", weight, t.index.weight)
	}
	return nil
}
