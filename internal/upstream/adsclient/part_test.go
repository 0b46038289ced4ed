package adsclient

import (
	"testing"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// other makes the group's other stream bring clusters (P50).
func (r *protocolFixture) other(wildcard bool, names ...string) {
	r.t.Helper()
	u := snapshot.Update{Type: cds, Origin: r.origin, Wildcard: wildcard}
	for _, x := range clusters(names...) {
		raw, fault := xds.ParseResponse(xds.Delta, resp{Type: cds, Resources: []res{x}}.Encode(r.t, xds.Delta, "1"))
		if fault != nil {
			r.t.Fatal(fault)
		}
		u.Changed = append(u.Changed, raw.Resources[0].Take(xds.TypeOf(cds), nil))
	}
	r.apply(u)
}

// part checks the clusters held for the wildcard, or for names.
func (r *protocolFixture) part(wildcard bool, names ...string) {
	r.t.Helper()
	got := ""
	for res := range r.sink.Newest(cds).Part(snapshot.ScopeOf(wildcard)).Resources {
		got += res.Name + " "
	}
	want := ""
	for _, n := range names {
		want += n + " "
	}
	if got != want {
		r.t.Fatalf("part %v is %q, want %q", wildcard, got, want)
	}
}

// A resource that the wildcard's stream brought does not answer a subscription by name. Its absence
// from the next response removes nothing, and vice versa.
func TestP65_SotWAbsenceIsHeldAgainstThePartThatItAnswers(t *testing.T) {
	r := newProtocolFixture(t, xds.SotW)
	r.want(named(cds, "a", "b", "c"))
	r.sent("CDS [a b c]")
	r.other(true, "a", "b", "w")
	r.respond(resp{Type: cds, Version: "1", Resources: clusters("a")})
	if u := r.last(); len(u.Removed) > 0 {
		t.Errorf("removed %v, which no response to the names held", u.Removed)
	}
	r.respond(resp{Type: cds, Version: "2", Resources: clusters("b")})
	r.part(false, "b")
	r.part(true, "a", "b", "w")
	r.is(cds, snapshot.Present, "a", "b") // removing a here removes nothing that the wildcard holds
	r.is(cds, snapshot.Pending, "c")

	s := newProtocolFixture(t, xds.SotW)
	s.want(all(cds))
	s.sent("CDS []")
	s.other(false, "n")
	s.respond(resp{Type: cds, Version: "1", Resources: clusters("a", "b")})
	s.respond(resp{Type: cds, Version: "2", Resources: clusters("b")})
	s.part(true, "b")
	s.part(false, "n")
}

// A stream that is new to a type reports no version for resources of another stream. The origin
// then sends them again.
func TestP50_ResourcesOfAnotherStreamAreResent(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	r.other(false, "0", "a", "b")
	r.other(true, "w")
	r.want(named(cds, "0", "a", "b"))
	r.sent("CDS +[0 a b] 0= a= b=")
	r.respond(resp{Type: cds, Resources: clusters("a")})
	r.connect()
	r.sent("CDS +[0 a b] 0= a=va b=")

	w := newProtocolFixture(t, xds.Delta)
	w.other(false, "a", "b")
	w.other(true, "w")
	w.want(all(cds))
	w.sent("CDS w=")

	s := newProtocolFixture(t, xds.SotW)
	s.other(false, "a", "b")
	s.want(named(cds, "a", "b"))
	s.sent("CDS [a b]")
}
