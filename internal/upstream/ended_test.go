package upstream

import (
	"slices"
	"testing"

	"xdsrelay/internal/xds"
)

// The relay itself opens the stream of an origin that took over anew, to tell it
// of what the other gave meanwhile: what it had brought, and is not to be cached,
// goes with the stream, and is asked for as what is not held.
func TestP63_TheStreamIsOpenedAnewAfterAReturn(t *testing.T) {
	first, second := startFake(t), startFake(t)
	r := startRelay(t, Options{Variant: xds.Delta}, first.address, second.address)
	_, sink, b := r.failOver(first, second, all(cds), named(rds, "r"))
	b.served(t, sink, res{name: "a", version: "B"})
	a := first.serve(2)
	a.send(resp{typ: cds, version: "A", res: []res{{name: "a", version: "A", uncached: true}}})
	a.request()
	b.send(resp{typ: cds, version: "B2", res: []res{{name: "late", version: "B"}}})
	sink.untilNames(t, cds, "a", "late")
	a.send(resp{typ: rds, version: "A", res: clusters("r")})
	a = first.next()
	a.got("CDS +[*] a= late=")
	a.got("RDS +[r] r=vr")
	sink.mu.Lock()
	if got := sink.names(cds); !slices.Equal(got, []string{"late"}) {
		t.Errorf("held are %v", got)
	}
	sink.mu.Unlock()
}
