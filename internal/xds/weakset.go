package xds

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"weak"
)

// WeakSet has one value for each distinct content, for as long as anyone holds
// it: its pointers are weak, so it keeps nothing alive, and nobody has to say that
// he is done. A hash finds candidates; what is the same is decided by equal, which
// is called under the set's lock and only compares. What nobody holds any more has
// an entry until the garbage collector has found that out; the set has no other
// bound. It is safe for concurrent use; the zero value is empty.
type WeakSet[T any] struct {
	mu    sync.Mutex
	items map[uint64][]weak.Pointer[T]
	most  int // entries that items has had: a map keeps the room for them
}

// Find returns the value of hash h for which equal holds; nil if there is none.
func (s *WeakSet[T]) Find(h uint64, equal func(*T) bool) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(h, equal)
}

func (s *WeakSet[T]) find(h uint64, equal func(*T) bool) *T {
	for _, w := range s.items[h] {
		if v := w.Value(); v != nil && equal(v) {
			return v
		}
	}
	return nil
}

// Keep puts v, of hash h, into the set and returns it; or the value that is there
// already and for which equal holds. v must be in no other set.
func (s *WeakSet[T]) Keep(h uint64, v *T, equal func(*T) bool) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.find(h, equal); have != nil {
		return have
	}
	if s.items == nil {
		s.items = make(map[uint64][]weak.Pointer[T])
	}
	s.items[h] = append(s.items[h], weak.Make(v))
	s.most = max(s.most, len(s.items))
	runtime.AddCleanup(v, s.sweep, h)
	return v
}

// sweep forgets the values of hash h that nobody holds any more.
func (s *WeakSet[T]) sweep(h uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(s.items[h], func(w weak.Pointer[T]) bool { return w.Value() == nil })
	if len(left) == 0 {
		delete(s.items, h)
		if n := len(s.items); n < s.most/8 {
			s.items, s.most = maps.Collect(maps.All(s.items)), n // a burst is over
		}
	} else {
		s.items[h] = left
	}
}

// Len is the number of hashes of which there are values.
func (s *WeakSet[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.items)
}
