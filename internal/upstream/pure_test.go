package upstream

import (
	"testing"
	"time"

	"xdsrelay/internal/xds"
)

func TestP54_FullJitterThatGrowsToItsBound(t *testing.T) {
	b := Backoff{Base: time.Second, Max: 30 * time.Second}
	most := func(d time.Duration) time.Duration { return d }
	for failures, want := range map[int]time.Duration{1: 1, 2: 2, 3: 4, 5: 16, 6: 30, 1000: 30} {
		if got := b.delay(failures, most); got != want*time.Second {
			t.Errorf("after %d failures at most %v, want %v", failures, got, want*time.Second)
		}
	}
	low, high := time.Hour, time.Duration(0)
	for range 1000 {
		d := b.delay(4, upTo)
		low, high = min(low, d), max(high, d)
	}
	if low > time.Second || high < 7*time.Second || high > 8*time.Second {
		t.Errorf("of 1000 delays up to 8s the least is %v, the largest %v", low, high)
	}
}

func TestCellKeepsTheNewestInterestAndOneSignal(t *testing.T) {
	c := newCell()
	i := func(names ...string) *xds.Interest {
		return &xds.Interest{Types: []xds.TypeInterest{named(eds, names...)}}
	}
	if c.wanted() {
		t.Error("something is wanted before anything was set")
	}
	c.set(i("a", "b"))
	c.set(i("a")) // nobody asks the origin yet: no lapse
	if got, lapsed := c.take(); got.Of(eds).Names.Len() != 1 || len(lapsed) > 0 {
		t.Errorf("took %v, lapsed %v", got, lapsed)
	}
	c.set(i("b"))
	c.set(i("a", "b"))
	if len(c.signal) != 1 {
		t.Errorf("%d signals", len(c.signal))
	}
	_, lapsed := c.take()
	if l := lapsed[eds]; l == nil || len(l.names) != 1 {
		t.Errorf("lapsed %v, want a", lapsed)
	}
	if _, lapsed = c.take(); len(lapsed) > 0 {
		t.Errorf("lapsed twice: %v", lapsed)
	}
	c.set(&xds.Interest{Types: []xds.TypeInterest{{Type: eds}}})
	if c.wanted() {
		t.Error("an empty interest is wanted")
	}
}
