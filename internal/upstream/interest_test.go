package upstream

import (
	"testing"

	"xdsrelay/internal/xds/snapshot"
)

func TestInterestCellKeepsTheNewestInterestAndOneSignal(t *testing.T) {
	s := new(Source)
	c := s.addInterestCell()
	set := func(names ...string) {
		s.SetInterest(&snapshot.Interest{Types: []snapshot.TypeInterest{named(eds, names...)}})
	}
	if !s.interestNow().Empty() {
		t.Error("something is wanted before anything was set")
	}
	set("a", "b")
	set("a") // no stream is open yet: nothing is recorded
	if got, again := s.take(c); got.Of(eds).Names.Len() != 1 || len(again) > 0 {
		t.Errorf("took %v, again %v", got, again)
	}
	set("b")
	set("a", "b")
	if len(c.changed) != 1 {
		t.Errorf("%d signals", len(c.changed))
	}
	_, again := s.take(c)
	if names := again.Unsubscribed(eds); len(names) != 1 {
		t.Errorf("again %v, want a", again)
	}
	if _, again = s.take(c); len(again) > 0 {
		t.Errorf("again twice: %v", again)
	}
	set()
	if !s.interestNow().Empty() {
		t.Error("an empty interest is wanted")
	}
}
