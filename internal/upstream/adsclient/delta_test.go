package adsclient

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

func TestP64_DeltaNamesChangeInRequestsOfTheirOwn(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	r.want(named(eds, "a", "b"))
	r.sent("EDS +[a b] node")
	r.respond(resp{Type: eds, Resources: clusters("a", "b")})
	r.want(named(eds, "b", "c"))
	r.sent("EDS nonce 1", "EDS +[c] -[a]")
	r.want(named(eds, "b", "c", "d")) // held names are not requested again
	r.sent("EDS +[d]")
	r.want()
	r.sent("EDS -[b c d]")
	r.want(named(eds, "b"))
	r.sent("EDS +[b]")
}

func TestP64_DeltaWildcard(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	r.want(all(cds), all(eds))
	r.sent("CDS +[*] node", "EDS +[*]")
	if r.want(named(cds, "a"), all(eds)) {
		t.Error("the stream goes on with names after the wildcard")
	}
	r.set(named(cds, "a"))
	r.connect()
	r.sent("CDS +[a] node")
	if r.want(all(cds)) {
		t.Error("a wildcard after names on one stream")
	}
}

func TestP18_DeltaFaultsAreNACKedAndNothingIsLost(t *testing.T) {
	other, _ := anypb.New(&anypb.Any{})
	for name, bad := range map[string]resp{
		"the same name twice": {Type: cds, Resources: clusters("b", "b")},
		"changed and removed": {Type: cds, Resources: clusters("b"), Removed: []string{"b"}},
		"another type":        {Type: cds, Resources: []res{{Name: "b", Any: other}}},
		"nameless":            {Type: cds, Resources: []res{{Any: clusters("b")[0].Body(t, cds)}}},
		"a type like it":      {Type: cds, Resources: []res{{Name: "b", Any: &anypb.Any{TypeUrl: string(cds) + "2"}}}},
		"P28, a long name":    {Type: cds, Removed: []string{strings.Repeat("x", xds.MaxNameBytes+1)}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newProtocolFixture(t, xds.Delta)
			r.want(all(cds))
			r.sent("CDS +[*] node")
			r.respond(resp{Type: cds, Resources: clusters("a")})
			r.sent("CDS nonce 1")
			if v, _ := r.respond(bad); v.Accept {
				t.Fatal("taken")
			}
			r.sent("CDS nonce 2 NACK")
			r.holds(cds, "a")
			r.respond(resp{Type: cds, Resources: clusters("d"), Removed: []string{"a"}})
			r.sent("CDS nonce 3")
			r.holds(cds, "d")
		})
	}
}

func TestP55_DeltaReconnect(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	r.want(named(eds, "a", "b", "c", "n"), all(cds))
	r.sent("EDS +[a b c n] node", "CDS +[*]")
	r.respond(resp{Type: eds, Resources: []res{{Name: "a", Version: "1"}, {Name: "b", Version: "2"}, {Name: "c"}}})
	r.respond(resp{Type: cds, Resources: clusters("x")})
	r.sent("EDS nonce 1", "CDS nonce 2")

	r.set(named(eds, "a", "c", "n"), all(cds)) // b is no longer wanted
	r.connect()
	// c has no version, but its removal must be reported. n was never held.
	r.sent("EDS +[a c n] a=1 c= node", "CDS +[*] x=vx")
	r.respond(resp{Type: eds, Removed: []string{"c"}})
	r.is(eds, snapshot.Absent, "c")
	r.is(eds, snapshot.Present, "a")
	was := r.sink.Held(cds)
	r.respond(resp{Type: cds, Resources: clusters("x")}) // the answer is compared with the held content
	if got := r.sink.Held(cds); got != was {
		t.Error("an equal answer made another snapshot")
	}
}

func TestP55_DeltaVersionsAreThoseOfThisOrigin(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	r.want(named(eds, "a", "b"))
	r.sent("EDS +[a b] node")
	r.respond(resp{Type: eds, Resources: clusters("a", "b")})
	r.origin = "two"
	r.connect()
	r.sent("EDS +[a b] a= b= node")
	r.respond(resp{Type: eds, Resources: []res{{Name: "a", Version: "9"}}})
	r.connect() // both sent a, but b is still from one, though the snapshot's origin is two
	r.sent("EDS +[a b] a=9 b= node")
	r.origin = "one"
	r.connect()
	r.sent("EDS +[a b] a= b= node")
}

// A resource that the wildcard brought does not answer a subscription by name, and vice versa. Only
// resources that answer the subscription are listed.
func TestP55_DeltaWildcardNamesOnlyWhatItBrought(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	r.want(named(cds, "a"))
	r.sent("CDS +[a] node")
	r.respond(resp{Type: cds, Resources: clusters("a")})
	r.set(all(cds))
	r.connect()
	r.sent("CDS +[*] node")
}

func TestP59_DeltaVersionsThatDoNotFitAreLeftOut(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	r.want(all(cds))
	r.next()
	r.respond(resp{Type: cds, Resources: clusters("a", "b", "c", "d")})
	r.max = 80
	r.connect()
	req := r.next()
	if req == nil || len(req.Head) > r.max || req.VersionsLeftOut == 0 || req.VersionsLeftOut == 4 || req.Oversized {
		t.Fatalf("request of %d bytes, %d left out", len(req.Head), req.VersionsLeftOut)
	}
	if got := show(t, r.v, req.bytes()); strings.Count(got, "=v")+req.VersionsLeftOut != 4 {
		t.Errorf("%s and %d left out", got, req.VersionsLeftOut)
	}
}

func TestP58_TheNodeIsInTheFirstRequestOfEachStreamOnly(t *testing.T) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		r := newProtocolFixture(t, v)
		r.want(named(rds, "a"), named(eds, "b"))
		for range 2 {
			for i := range 2 {
				msg := r.next().bytes()
				var scanned xds.Request
				if err := scanned.Scan(v, msg, 10); err != nil {
					t.Fatal(err)
				}
				want := ""
				if i == 0 {
					want = "\x0a\x01n" // the key's, byte for byte
				}
				if string(scanned.Node) != want {
					t.Errorf("%v: node %q in request %d", v, scanned.Node, i)
				}
			}
			r.connect()
		}
	}
}

// An origin may come back and end again without any response. The held state stays as it was: a
// part still belongs to the other origin, although the snapshot names this one.
func TestP56_DeltaOriginsTakeTurns(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	to := func(origin, want string) {
		t.Helper()
		r.origin = origin
		r.connect()
		r.sent(want)
	}
	r.want(named(eds, "a", "b"))
	r.sent("EDS +[a b] node")
	r.respond(resp{Type: eds, Resources: clusters("a", "b")})
	to("two", "EDS +[a b] a= b= node")
	r.respond(resp{Type: eds, Resources: []res{{Name: "a", Version: "9"}}})
	to("one", "EDS +[a b] a= b= node")
	to("two", "EDS +[a b] a= b= node")
	r.respond(resp{Type: eds, Resources: []res{{Name: "b", Version: "8"}}})
	to("two", "EDS +[a b] a= b=8 node")
	r.respond(resp{Type: eds, Resources: []res{{Name: "a", Version: "9"}}})
	to("two", "EDS +[a b] a=9 b=8 node")
}

// A directory that served meanwhile counts as another origin too.
func TestP56_AnOriginThatLeavesNoMemory(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newProtocolFixture(t, v)
		r.want(named(rds, "a", "b"))
		r.next()
		r.respond(resp{Type: rds, Version: "1", Resources: clusters("a", "b")})
		u := snapshot.Update{Type: rds, Origin: "files", Version: "1"}
		for _, name := range []string{"a", "b"} {
			u.Changed = append(u.Changed, r.sink.Held(rds).Held(name))
		}
		r.apply(u)
		for range 2 {
			r.connect()
			if v == xds.Delta {
				r.sent("RDS +[a b] a= b= node")
			} else {
				r.sent("RDS [a b] node")
			}
			clear(r.resumption) // as if the directory had been used first
		}
	})
}

// Another origin's versions are not this one's, even if the group applied none of its responses.
func TestP55_SotWVersionsAreThoseOfThisOrigin(t *testing.T) {
	r := newProtocolFixture(t, xds.SotW)
	r.want(named(rds, "a"))
	r.sent("RDS [a] node")
	r.respond(resp{Type: rds, Version: "1", Resources: clusters("a")})
	r.resumption[rds].origin = "two"
	r.connect()
	r.sent("RDS [a] node")
}
