package upstream

import (
	"testing"
	"time"
	"unsafe"
)

// wallSet is t as it were read off a wall clock that was set by so much, in whole seconds.
func wallSet(t time.Time, by time.Duration) time.Time {
	wall := (*uint64)(unsafe.Pointer(&t)) // of the package's struct the first; 33 bits are seconds
	*wall += uint64(int64(by/time.Second)) << 30
	return t
}

// A wall clock that is set, forth or back, has no part in what was heard of a transport when: a dead
// one would be taken to live for as long as it was set back.
func TestP57_AClockThatIsSetIsNoSignOfLife(t *testing.T) {
	now := time.Now()
	if got := wallSet(now, -time.Hour); got.Sub(now) != 0 || got.Round(0).Sub(now.Round(0)) != -time.Hour {
		t.Skip("another time.Time than this test knows")
	}
	l := newLife()
	if l.heardOf(now.Add(-time.Hour)) {
		t.Error("heard of before anything was read")
	}
	l.reads(1)
	for _, by := range []time.Duration{0, time.Hour, -time.Hour} {
		now := time.Now()
		if !l.heardOf(wallSet(now.Add(-time.Minute), by)) {
			t.Errorf("set by %s: not heard of", by)
		}
		if l.heardOf(wallSet(now.Add(time.Minute), by)) {
			t.Errorf("set by %s: heard of since a minute from now", by)
		}
	}
}
