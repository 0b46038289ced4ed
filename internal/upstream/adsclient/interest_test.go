package adsclient

import (
	"testing"

	"xdsrelay/internal/xds"
)

func TestCellKeepsTheNewestInterestAndOneSignal(t *testing.T) {
	c := NewInterestCell(nil)
	i := func(names ...string) *xds.Interest {
		return &xds.Interest{Types: []xds.TypeInterest{named(eds, names...)}}
	}
	if c.Wanted() {
		t.Error("something is wanted before anything was set")
	}
	c.Set(i("a", "b"))
	c.Set(i("a")) // nobody asks the origin yet: no lapse
	if got, lapsed := c.Take(); got.Of(eds).Names.Len() != 1 || len(lapsed) > 0 {
		t.Errorf("took %v, lapsed %v", got, lapsed)
	}
	c.Set(i("b"))
	c.Set(i("a", "b"))
	if len(c.changed) != 1 {
		t.Errorf("%d signals", len(c.changed))
	}
	_, lapsed := c.Take()
	if l := lapsed[eds]; l == nil || len(l.names) != 1 {
		t.Errorf("lapsed %v, want a", lapsed)
	}
	if _, lapsed = c.Take(); len(lapsed) > 0 {
		t.Errorf("lapsed twice: %v", lapsed)
	}
	c.Set(&xds.Interest{Types: []xds.TypeInterest{{Type: eds}}})
	if c.Wanted() {
		t.Error("an empty interest is wanted")
	}
}
