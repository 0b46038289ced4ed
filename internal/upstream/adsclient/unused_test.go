package adsclient

import (
	"fmt"
	"strings"
	"testing"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// types counts the types that a Conversation keeps state of.
func (r *protocolFixture) types() int {
	t := &protocolState{}
	switch v := r.conversation.(type) {
	case *sotw:
		t = &v.protocolState
	case *delta:
		t = &v.protocolState
	}
	if len(t.types) != len(t.byURL) {
		r.t.Fatalf("%d types in order, %d by URL", len(t.types), len(t.byURL))
	}
	return len(t.types)
}

func (r *protocolFixture) flush() (requests []string) {
	for q := r.next(); q != nil; q = r.next() {
		requests = append(requests, show(r.t, r.v, q.bytes()))
	}
	return requests
}

// Types that a client invents cost the key's other clients little: the relay forgets them.
func TestP16_UnwantedTypesAreForgotten(t *testing.T) {
	const junk = 1000
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		for what, of := range map[string]func(xds.TypeURL) snapshot.TypeInterest{
			"names":        func(typ xds.TypeURL) snapshot.TypeInterest { return named(typ, "n") },
			"the wildcard": all,
		} {
			t.Run(what, func(t *testing.T) {
				r := newProtocolFixture(t, v)
				r.want(named(eds, "a"))
				r.flush()
				opened, most := 0, 0
				want := func(types ...snapshot.TypeInterest) {
					if !r.want(append(types, named(eds, "a"))...) {
						r.reopen()
						opened++
					}
					r.flush()
					most = max(most, r.types(), len(r.lastVersions))
				}
				for i := range junk {
					typ := xds.TypeURL(fmt.Sprintf("junk/%d", i))
					want(of(typ))
					if !r.respondTo(typ) {
						t.Fatalf("the response for %s is not accepted", typ)
					}
					r.flush()
					want()
				}
				want()
				if most > maxUnused+3 {
					t.Errorf("%d types remembered", most)
				}
				if len(r.lastVersions) > 1 {
					t.Errorf("%d types remembered for the next stream", len(r.lastVersions))
				}
				if limit := junk/maxUnused + 1; opened > limit {
					t.Errorf("reopened %d times, want at most %d", opened, limit)
				}
			})
		}
	})
}

// respondTo sends a response of typ, and reports whether it was accepted.
func (r *protocolFixture) respondTo(typ xds.TypeURL) bool {
	v, _ := r.respond(resp{Type: typ, Version: "1", Resources: []res{{Name: "n", Version: "1"}}})
	return v.Accept
}

// State of earlier streams is dropped even if the type was unsubscribed between two streams.
func TestP16_LastVersionsOfUnwantedTypesAreDropped(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newProtocolFixture(t, v)
		r.want(named(eds, "a"), named(rds, "n"))
		r.flush()
		r.respond(resp{Type: rds, Version: "1", Resources: clusters("n")})
		r.set(named(eds, "a"))
		r.connect()
		if len(r.lastVersions) != 1 || r.lastVersions[eds] == nil {
			t.Errorf("remembered %v, want EDS", r.lastVersions)
		}
	})
}

// A type is not forgotten while a reply is due.
func TestP18_TypeIsKeptWhileAReplyIsDue(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		for what, n := range map[string]int{"good": 1, "bad": 2} {
			r := newProtocolFixture(t, v)
			const types = 2 * maxUnused // far over the bound
			var junk []snapshot.TypeInterest
			for i := range types {
				junk = append(junk, named(xds.TypeURL(fmt.Sprintf("junk/%d", i)), "n"))
			}
			r.want(append(junk, named(eds, "a"))...)
			r.flush()
			r.want(named(eds, "a"))
			r.flush()
			var first *xds.Response
			accepted := false
			for i, of := range junk { // the responses crossed the last requests
				p := resp{Type: of.Type, Version: "1", Resources: []res{{Name: "n", Wrap: true}, {Name: "n", Wrap: true}}[:n]}
				if i > 0 {
					r.respond(p)
					continue
				}
				parsed, fault := xds.ParseResponse(v, p.Encode(t, v, "0")) // is being applied
				decision, err := r.conversation.Receive(parsed, fault, r.now)
				if err != nil || decision.Accept != (n == 1) {
					t.Fatal(decision, err)
				}
				accepted = decision.Accept
				first = parsed
			}
			if !r.want(named(eds, "a", "b")) {
				t.Error("a new stream while replies are due")
			}
			replies := 0
			for _, q := range r.flush() {
				if strings.Contains(q, "nonce") {
					replies++
				}
			}
			if accepted {
				r.conversation.Applied(first)
				replies += len(r.flush())
			}
			if replies != types {
				t.Errorf("%s: %d replies to %d responses", what, replies, types)
			}
		}
	})
}

// A stream that keeps state of too many unwanted types is reopened.
func TestP64_StreamOfTooManyTypesEnds(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newProtocolFixture(t, v)
		r.want(named(eds, "a"), all(cds))
		r.flush()
		r.want(named(eds, "a"))
		r.flush()
		var junk []snapshot.TypeInterest
		for i := range 2 * maxUnused {
			junk = append(junk, named(xds.TypeURL(fmt.Sprintf("junk/%d", i)), "n"))
		}
		r.want(append(junk, named(eds, "a"))...)
		r.flush()
		r.want(named(eds, "a"))
		r.flush()
		if r.want(named(eds, "a", "b")) {
			t.Error("the stream goes on")
		}
	})
}
