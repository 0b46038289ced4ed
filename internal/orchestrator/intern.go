package orchestrator

import "xdsrelay/internal/xds"

// interned has one Subscription for each content that anybody in a group holds.
// A subscription that was interned and never used cannot leak, which counting in
// Subscribe and Leave could not promise. It is safe for concurrent use; receivers
// call it.
type interned struct{ subs xds.WeakSet[xds.Subscription] }

// get returns the one subscription equal to sub.
func (t *interned) get(sub *xds.Subscription) *xds.Subscription {
	switch {
	case sub.Empty():
		return xds.Nothing
	case sub.Equal(everything): // what most want is made for no group
		return everything
	case sub.Equal(everythingWithState):
		return everythingWithState
	}
	h := sub.Names.Sum() << 1
	if sub.Wildcard {
		h |= 1
	}
	if have := t.subs.Find(h, sub.Equal); have != nil {
		have.Sole.Store(false)
		return have
	}
	// A copy, since the caller's may be in the table of another group.
	own := &xds.Subscription{Wildcard: sub.Wildcard, HasState: sub.HasState, Names: sub.Names}
	own.Sole.Store(true)
	have := t.subs.Keep(h, own, sub.Equal)
	if have != own {
		have.Sole.Store(false)
	}
	return have
}
