package session

import (
	"testing"

	"xdsrelay/internal/xds"
)

const thing xds.TypeURL = "type.googleapis.com/acme.Thing"

// A resource without a name is like any other, in both variants (P3).
func TestP3_EmptyName(t *testing.T) {
	each(t, thing, func(w *sessionFixture) {
		w.sub()
		w.wild("=2", "a")
		w.accepts("=2 a")
		w.wild("=33")
		w.rejects(w.either("=33 a", "=33"))
		w.want("")
		w.wild("-")
		w.accepts(w.either("a", "-"))
		w.wild("=2")
		w.want(w.either("=2 a", "=2"))
	})
}

// Resources that are told apart by their place are for SotW clients. A delta client keeps what it
// has until the origin names its resources again, and is not shown as in step (P3).
func TestP3_Places(t *testing.T) {
	first, second := xds.PlacePrefix+"000000", xds.PlacePrefix+"000001"
	each(t, thing, func(w *sessionFixture) {
		delta := w.s.form.Variant == xds.Delta
		w.wild("a")
		w.sub()
		w.accepts("a")
		w.wild("-a", first, second+"=2")
		if w.want(w.either(first+" "+second+"=2", "")); !delta {
			w.ack()
		}
		look := NewComparisonCache()
		if unsent := look.Unsent(w.s, w.Cur); unsent != delta {
			t.Errorf("%s: a version is unsent: %v", w.s.form.Variant, unsent)
		}
		w.sub()
		w.want("")
		w.wild("b", "-"+first, "-"+second)
		w.accepts(w.either("b", "b -a"))
		if look = NewComparisonCache(); look.Unsent(w.s, w.Cur) {
			t.Errorf("%s: a version is unsent", w.s.form.Variant)
		}
	})
	// A client that asks by name has nothing to do with the wildcard's resources.
	w := newSessionFixture(t, thing, xds.Delta)
	w.sub("a")
	w.named("a")
	w.wild(first, second)
	w.want("a")
}
