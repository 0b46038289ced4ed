package admin

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/xds/snapshot"
)

// A page ends after diffTime, with at least one item. A budget that is spent leaves the rest of a
// row out.
func TestSlowPagesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := []string{"a", "b", "c", "d", "e"}
		slow := func(takes time.Duration) page {
			_, p := paged(httptest.NewRequest("GET", "/x", nil), all, func(s *string) string { return *s }, func(s *string) (any, bool) {
				time.Sleep(takes)
				return s, true
			})
			return p.(page)
		}
		for takes, want := range map[time.Duration]int{0: 5, diffTime/2 + 1: 2, time.Hour: 1} {
			if p := slow(takes); len(p.Items) != want || (p.Next == "") != (want == 5) {
				t.Errorf("rows of %s: %d items, next %q", takes, len(p.Items), p.Next)
			}
		}
		b := newBudget()
		differences := history.NewRejected([]snapshot.Difference{{Name: "a"}, {Name: "b"}}, 3, true)
		if r := showRejected(differences, b); len(r.Resources) != 2 || r.More != 3 {
			t.Errorf("%+v", r)
		}
		time.Sleep(diffTime + 1)
		if r := showRejected(differences, b); r.Resources == nil || len(r.Resources) != 0 || r.More != 5 {
			t.Errorf("after the time: %+v", r)
		}
	})
}
