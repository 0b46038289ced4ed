package orchestrator

import (
	"runtime"
	"slices"
	"sync"
	"weak"

	"xdsrelay/internal/xds"
)

// interned has one Subscription for each content that anybody in a group holds.
// Its pointers are weak, so that it keeps nothing alive: a subscription that was
// interned and never used cannot leak, which counting in Subscribe and Leave
// could not promise. It is safe for concurrent use; receivers call it.
type interned struct {
	mu   sync.Mutex
	subs map[uint64][]weak.Pointer[xds.Subscription] // by hash; equality is by content
}

// get returns the one subscription equal to sub.
func (t *interned) get(sub *xds.Subscription) *xds.Subscription {
	if sub.Empty() {
		return xds.Nothing
	}
	h := (sub.Names.Sum() + sub.Written.Sum()) << 1
	if sub.Wildcard {
		h |= 1
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.subs[h] {
		if have := w.Value(); have != nil && have.Equal(sub) {
			return have
		}
	}
	if t.subs == nil {
		t.subs = make(map[uint64][]weak.Pointer[xds.Subscription])
	}
	// A copy, since the cleanup belongs to what is in the table, and the
	// caller's may be in the table of another group.
	own := &xds.Subscription{Wildcard: sub.Wildcard, Names: sub.Names, Written: sub.Written}
	t.subs[h] = append(t.subs[h], weak.Make(own))
	runtime.AddCleanup(own, t.sweep, h)
	return own
}

// sweep forgets the subscriptions of hash h that nobody holds any more.
func (t *interned) sweep(h uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := slices.DeleteFunc(t.subs[h], func(w weak.Pointer[xds.Subscription]) bool { return w.Value() == nil })
	if len(left) == 0 {
		delete(t.subs, h)
	} else {
		t.subs[h] = left
	}
}

func (t *interned) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.subs)
}
