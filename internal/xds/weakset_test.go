package xds

import (
	"runtime"
	"testing"
	"time"
)

// collected runs the garbage collector until what it is to clean up is.
func collected(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("what nobody holds is kept")
		}
		runtime.GC()
	}
}

// After a burst a set takes no more than what is in it, and that is still found.
func TestWeakSetShrinksAfterABurst(t *testing.T) {
	type value struct{ n uint64 }
	const n, kept = 1 << 17, 100
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var set WeakSet[value]
	var mine []*value
	before := heap()
	var burst []*value
	for i := range uint64(n) {
		v := set.Keep(i, &value{i}, func(*value) bool { return false })
		if burst = append(burst, v); i < kept {
			mine = append(mine, v)
		}
	}
	if set.Len() != n {
		t.Fatalf("%d of %d kept", set.Len(), n)
	}
	runtime.KeepAlive(burst)
	burst = nil
	collected(t, func() bool { return set.Len() == kept })
	if grew := heap() - before; grew > n { // the map of the burst has some 40 times that
		t.Errorf("%d values take %d bytes after there were %d", kept, grew, n)
	}
	for i, v := range mine {
		if set.Find(uint64(i), func(have *value) bool { return have.n == v.n }) != v {
			t.Fatalf("%d is not found any more", i)
		}
	}
	mine = nil
	collected(t, func() bool { return set.Len() == 0 })
	if v := new(value); set.Keep(1, v, func(*value) bool { return true }) != v {
		t.Error("an empty set takes nothing")
	}
}
