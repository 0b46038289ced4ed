package upstream

import (
	"testing"

	"xdsrelay/internal/xds/snapshot"
)

func TestCellKeepsTheNewestInterestAndOneSignal(t *testing.T) {
	c := newInterestCell(nil)
	i := func(names ...string) *snapshot.Interest {
		return &snapshot.Interest{Types: []snapshot.TypeInterest{named(eds, names...)}}
	}
	if !c.Newest().Empty() {
		t.Error("something is wanted before anything was set")
	}
	c.Set(i("a", "b"))
	c.Set(i("a")) // no stream is open yet: nothing is recorded
	if got, again := c.Take(); got.Of(eds).Names.Len() != 1 || len(again) > 0 {
		t.Errorf("took %v, again %v", got, again)
	}
	c.Set(i("b"))
	c.Set(i("a", "b"))
	if len(c.changed) != 1 {
		t.Errorf("%d signals", len(c.changed))
	}
	_, again := c.Take()
	if _, names := again.Of(eds); len(names) != 1 {
		t.Errorf("again %v, want a", again)
	}
	if _, again = c.Take(); len(again) > 0 {
		t.Errorf("again twice: %v", again)
	}
	c.Set(&snapshot.Interest{Types: []snapshot.TypeInterest{{Type: eds}}})
	if !c.Newest().Empty() {
		t.Error("an empty interest is wanted")
	}
}
