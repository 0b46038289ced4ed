package snapshot

import (
	"container/heap"
	"time"

	"xdsrelay/internal/xds"
)

// partName is a name in one of the two parts of a type: what the wildcard brought, or what a
// subscription to the name brought (P50).
type partName struct {
	name  string
	scope Scope
}

// expiryHeap has the parts with a TTL, sorted by its end (container/heap).
type expiryHeap struct {
	heap  []expiryTimer
	index map[partName]int // position in heap
}

type expiryTimer struct {
	expires time.Time
	part    partName
}

// update adds, moves or removes the part p, which now has r.
func (t *expiryHeap) update(p partName, r *xds.Resource) {
	i, is := t.index[p]
	until, has := r.Expiry()
	switch has = has && r.HasBody(); {
	case has && is:
		t.heap[i].expires = until
		heap.Fix(t, i)
	case has:
		heap.Push(t, expiryTimer{until, p})
	case is:
		heap.Remove(t, i)
	}
}

func (t *expiryHeap) Len() int { return len(t.heap) }

func (t *expiryHeap) Less(i, j int) bool { return t.heap[i].expires.Before(t.heap[j].expires) }

func (t *expiryHeap) Swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.index[t.heap[i].part], t.index[t.heap[j].part] = i, j
}

// Push and Pop implement heap.Interface.
func (t *expiryHeap) Push(x any) {
	if t.index == nil {
		t.index = make(map[partName]int)
	}
	t.index[x.(expiryTimer).part] = len(t.heap)
	t.heap = append(t.heap, x.(expiryTimer))
}

func (t *expiryHeap) Pop() any {
	last := t.heap[len(t.heap)-1]
	t.heap[len(t.heap)-1] = expiryTimer{}
	t.heap = t.heap[:len(t.heap)-1]
	delete(t.index, last.part)
	return last
}

// NextExpiry returns the end of the next TTL; zero if there is none.
func (b *Builder) NextExpiry() time.Time {
	if len(b.expiryQueue.heap) == 0 {
		return time.Time{}
	}
	return b.expiryQueue.heap[0].expires
}

// Expire drops the resources whose TTL is over at now, and returns their number. No origin said
// that they were deleted. Clients count the TTL themselves, so no removal is sent (P62). A mark
// with the end of the TTL remains.
func (b *Builder) Expire(now time.Time) int {
	n := 0
	for len(b.expiryQueue.heap) > 0 && !b.expiryQueue.heap[0].expires.After(now) {
		due := b.expiryQueue.heap[0]
		b.markExpired(due.part, due.expires)
		n++
	}
	return n
}

// Uncacheable returns the names of the resources in one part that must not be cached (P63).
func (b *Builder) Uncacheable(scope Scope) []string {
	var names []string
	for p := range b.uncacheable {
		if p.scope == scope {
			names = append(names, p.name)
		}
	}
	return names
}

// dropUncacheable drops the resources in one part that must not be cached, because the stream that
// brought them has ended (P63). It reports whether there were any.
func (b *Builder) dropUncacheable(scope Scope) (any bool) {
	for p := range b.uncacheable {
		if p.scope == scope {
			b.markExpired(p, time.Time{}) // deletes from the map that is ranged over, which Go allows
			any = true
		}
	}
	return any
}

// maxExpired limits the marks of resources that are no longer held, in each part. The origin
// chooses the names that a wildcard or an alias brings, so nothing else limits them. Above the
// limit, a resource is dropped as if the origin had deleted it.
const maxExpired = 4096

// markExpired replaces the resource of a part by a mark. expired is the end of its TTL; zero for a
// resource that must not be cached. A named resource without an alias always gets a mark.
func (b *Builder) markExpired(p partName, expired time.Time) {
	e, _ := b.entries.Get(p.name)
	switch {
	case p.scope == ByName && len(e.named.AliasesAndGlob()) == 0:
		e.named = xds.NewExpiredMark(p.name, expired)
	case p.scope == ByName && b.expired-b.expiredWildcard < maxExpired:
		e.named = e.named.ExpiredMark(expired)
	case p.scope == ByName:
		e.named = nil
		b.maybeNotRequested[p.name] = struct{}{}
	case b.expiredWildcard < maxExpired:
		e.wildcard = xds.NewExpiredMark(p.name, expired)
	default:
		e.wildcard = nil
	}
	b.set(p.name, e)
}
