package adsclient

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// unnamed is a resource of an unknown type without a name. Its field 1 is a number.
func unnamed(content uint64) res {
	return res{Any: &anypb.Any{TypeUrl: string(odd), Value: protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), content)}}
}

// twin is a resource of an unknown type whose field 1 is a string.
func twin(name string, content uint64) res {
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), content)
	return res{Any: &anypb.Any{TypeUrl: string(odd), Value: b}}
}

// oddBodies are the held bodies of the unknown type, in order of names.
func (r *protocolFixture) oddBodies() (got []string) {
	r.t.Helper()
	for res := range r.sink.Newest(odd).Resources {
		a := new(anypb.Any)
		if err := proto.Unmarshal(res.Any(), a); err != nil {
			r.t.Fatal(err)
		}
		got = append(got, string(a.Value))
	}
	return got
}

// holdsOdd checks oddBodies.
func (r *protocolFixture) holdsOdd(want ...res) {
	r.t.Helper()
	var expected []string
	for _, w := range want {
		expected = append(expected, string(w.Any.Value))
	}
	if got := r.oddBodies(); !slices.Equal(got, expected) {
		r.t.Fatalf("held %q, want %q", got, expected)
	}
}

// Nothing without a name of its own is requested by name, or listed in initial_resource_versions.
func TestP3_P55_EmptyNameIsNotListed(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	r.want(all(odd))
	r.flush()
	one := unnamed(1)
	one.Version = "7"
	r.respond(resp{Type: odd, Resources: []res{one, {Name: "a", Version: "1"}}})
	r.connect()
	r.sent("other a=")

	r = newProtocolFixture(t, xds.SotW)
	r.want(all(odd))
	r.flush()
	r.respond(resp{Type: odd, Version: "1", Resources: []res{unnamed(1), unnamed(2)}})
	r.v = xds.Delta // an origin of another variant
	r.connect()
	r.sent("other")
	r.respond(resp{Type: odd, Resources: []res{{Name: "a", Version: "1"}}})
	r.holds(odd, "a")
}

// Resources without usable names are told apart by their place. Each response is the full state.
func TestP3_P65_Places(t *testing.T) {
	r := newProtocolFixture(t, xds.SotW)
	r.want(all(odd))
	version := 0
	step := func(held []res, sent ...res) {
		t.Helper()
		r.flush()
		version++
		if d, n := r.respond(resp{Type: odd, Version: fmt.Sprint(version), Resources: sent}); !d.Accept || n.NotRequested > 0 {
			t.Fatalf("%+v, %+v", d, n)
		}
		r.holdsOdd(held...)
	}
	same := func(sent ...res) {
		t.Helper()
		step(sent, sent...)
	}
	same(unnamed(1), unnamed(2), unnamed(3))
	same(unnamed(3), unnamed(3))
	same(unnamed(4))                                      // one without a name
	same(twin("x", 1), twin("y", 2))                      // names
	step([]res{twin("x", 1), twin("y", 3)}, twin("y", 3)) // named resources are not deleted by absence
	same(twin("z", 1), twin("z", 2), twin("y", 3))        // not unique any more, so the names are none
	same(twin("z", 1))
	step([]res{twin("z", 1)}) // it has a name
	same(unnamed(1), unnamed(2))
	same()
}

// An unknown type whose resources the origin wraps has names. Absence does not remove them, except
// the one without a name.
func TestP3_P65_Wrapped(t *testing.T) {
	one := unnamed(1)
	one.Wrap = true
	r := newProtocolFixture(t, xds.SotW)
	r.want(all(odd))
	r.flush()
	r.respond(resp{Type: odd, Version: "1", Resources: []res{one, {Name: "a", Wrap: true}, {Name: "b", Wrap: true}}})
	r.holds(odd, "", "a", "b")
	r.respond(resp{Type: odd, Version: "2", Resources: []res{one, {Name: "b", Wrap: true}}})
	r.holds(odd, "", "a", "b")
	r.respond(resp{Type: odd, Version: "3", Resources: []res{{Name: "b", Wrap: true}}})
	r.holds(odd, "a", "b")
}

// A heartbeat alone removes nothing, also of an unnamed type.
func TestP3_P62_HeartbeatsRemoveNothing(t *testing.T) {
	one := unnamed(1)
	one.Wrap = true
	r := newProtocolFixture(t, xds.SotW)
	r.want(all(odd))
	r.flush()
	r.respond(resp{Type: odd, Version: "1", Resources: []res{one}})
	r.respond(resp{Type: odd, Version: "1", Resources: []res{{Name: "a", Heartbeat: true, Wrap: true}}})
	r.is(odd, snapshot.Present, "")
}
