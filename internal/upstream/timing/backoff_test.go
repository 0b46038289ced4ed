package timing

import (
	"testing"
	"time"
)

func TestP54_FullJitterThatGrowsToItsBound(t *testing.T) {
	b := Backoff{Base: time.Second, Max: 30 * time.Second}
	most := func(d time.Duration) time.Duration { return d }
	for failures, want := range map[int]time.Duration{1: 1, 2: 2, 3: 4, 5: 16, 6: 30, 1000: 30} {
		if got := b.Delay(failures, most); got != want*time.Second {
			t.Errorf("after %d failures at most %v, want %v", failures, got, want*time.Second)
		}
	}
	low, high := time.Hour, time.Duration(0)
	for range 1000 {
		d := b.Delay(4, UpTo)
		low, high = min(low, d), max(high, d)
	}
	if low > time.Second || high < 7*time.Second || high > 8*time.Second {
		t.Errorf("of 1000 delays up to 8s the least is %v, the largest %v", low, high)
	}
}
