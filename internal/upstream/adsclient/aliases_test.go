package adsclient

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

const (
	vhds = xds.VHostType
	glob = "xdstp://o/T/c/*"
)

// goes returns a resource with aliases. In SotW they are in a wrapper.
func goes(name string, aliases ...string) res {
	return res{Name: name, Version: "v" + name, Aliases: aliases, Wrap: true}
}

// A resource matches a subscription by its alias as well as by its name. A resource that matches
// none is dropped (P65).
func TestP26_AnsweredByAlias(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newProtocolFixture(t, v)
		r.want(named(eds, "a", "m"))
		r.flush()
		_, n := r.respond(resp{Type: eds, Resources: []res{goes("n", "a", "b"), goes("m"), goes("o", "b")}})
		if n.NotRequested != 1 {
			t.Errorf("%d resources were not subscribed", n.NotRequested)
		}
		r.holds(eds, "m", "n")
		r.is(eds, snapshot.UnderOtherName, "a")
		r.flush()
		// The resource that is held for the alias changes.
		r.respond(resp{Type: eds, Resources: []res{{Name: "n", Content: "new", Aliases: []string{"a"}, Wrap: true}}})
		r.is(eds, snapshot.UnderOtherName, "a")
		r.is(eds, snapshot.Pending, "b")
		// The resource changes its alias. For clients that subscribed to the old alias it is
		// removed.
		r.respond(resp{Type: eds, Resources: []res{goes("n", "b")}})
		r.holds(eds, "m")
		r.is(eds, snapshot.Absent, "a")
		// When no subscription has the alias any more, the resource is forgotten.
		r.respond(resp{Type: eds, Resources: []res{goes("n", "a")}})
		r.holds(eds, "m", "n")
		r.want(named(eds, "m"))
		r.holds(eds, "m")
	})
}

// A delta origin removes the resource by its own name, or the alias by the alias's name.
func TestP26_RemovedByName(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	r.want(named(vhds, "r/a", "r/b", "r/v"))
	r.flush()
	r.respond(resp{Type: vhds, Resources: []res{goes("r/n", "r/a"), goes("r/v", "r/b")}})
	_, n := r.respond(resp{Type: vhds, Removed: []string{"r/n", "r/other"}})
	if n.NotRequested != 1 {
		t.Errorf("%d names were not subscribed", n.NotRequested)
	}
	r.holds(vhds, "r/v")
	r.is(vhds, snapshot.Absent, "r/a")
	if r.sink.Newest(vhds).Known("r/n") {
		t.Error("a resource is kept under a name without a subscription")
	}
	r.respond(resp{Type: vhds, Removed: []string{"r/b"}})
	r.holds(vhds, "r/v")
	r.is(vhds, snapshot.Absent, "r/b")
}

// A full-state SotW response removes by leaving out, including resources that came for an alias or
// a glob.
func TestP65_LeftOutByAlias(t *testing.T) {
	r := newProtocolFixture(t, xds.SotW)
	r.want(named(cds, "a", glob))
	r.flush()
	r.respond(resp{Type: cds, Version: "1", Resources: []res{goes("n", "a"), {Name: "xdstp://o/T/c/x"}, {Name: "xdstp://o/T/c/y"}}})
	r.holds(cds, "n", "xdstp://o/T/c/x", "xdstp://o/T/c/y")
	r.respond(resp{Type: cds, Version: "2", Resources: []res{{Name: "xdstp://o/T/c/y"}}})
	r.holds(cds, "xdstp://o/T/c/y")
	r.is(cds, snapshot.Absent, "a")
	r.respond(resp{Type: cds, Version: "3"})
	r.holds(cds)
	r.is(cds, snapshot.Absent, glob)
}

// On reconnect a resource is listed by its own name, beside the alias that is subscribed.
func TestP55_ReconnectByAlias(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	r.want(named(eds, "a", "b"))
	r.sent("EDS +[a b]")
	r.respond(resp{Type: eds, Resources: []res{goes("n", "a"), {Name: "b", Version: "1"}}})
	r.flush()
	r.connect()
	r.sent("EDS +[a b] b= n=vn") // b is the smallest
}

// Versions of resources held for a glob go in the first request that has the glob. The glob
// is counted once for all its resources (P59).
func TestP59_VersionsByAlias(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	names := []string{glob}
	for i := range 20 {
		names = append(names, fmt.Sprint("plain-", i))
	}
	r.want(named(eds, names...))
	r.flush()
	var rs []res
	for i := range 20 {
		rs = append(rs, res{Name: fmt.Sprint("xdstp://o/T/c/", i), Version: "1"})
	}
	r.respond(resp{Type: eds, Resources: rs})
	r.flush()
	r.max = 700
	r.connect()
	req := r.next()
	first := show(t, xds.Delta, req.bytes())
	if len(req.bytes()) > r.max || req.VersionsLeftOut > 2 || !strings.Contains(first, glob) || strings.Count(first, "=1") < 18 {
		t.Errorf("%d bytes, %d left out: %s", len(req.bytes()), req.VersionsLeftOut, first)
	}
}

// An alias that the origin cannot resolve is neither a fault nor a resource. It counts as an answer
// until a client asks again.
func TestP18_UnresolvedAlias(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	r.want(named(vhds, "r/a", "r/b", "r/c"))
	r.sent("VHDS +[r/a r/b r/c]")
	word := res{Name: "r/cannot", Aliases: []string{"r/a", "r/b", "r/z"}, Version: "1", Heartbeat: true}
	v, n := r.respond(resp{Type: vhds, Resources: []res{word}})
	r.sent("VHDS nonce 1")
	if !v.Accept || n.bodyless != 1 || n.NotRequested != 0 {
		t.Errorf("%+v, %+v", v, n)
	}
	if u := r.last().Unresolved; len(u) != 1 || !slices.Equal(u[0].Names, []string{"r/a", "r/b"}) {
		t.Fatalf("%+v", u)
	}
	r.holds(vhds)
	r.is(vhds, snapshot.Unresolvable, "r/a", "r/b")
	r.is(vhds, snapshot.Pending, "r/c")

	// Aliases without a subscription.
	_, n = r.respond(resp{Type: vhds, Resources: []res{{Name: "r/x", Aliases: []string{"r/x"}, Heartbeat: true}}})
	if len(r.last().Unresolved) != 0 || n.NotRequested != 1 {
		t.Errorf("%+v, %+v", r.last(), n)
	}
	r.flush()

	// The names are subscribed again, and this time the origin does not answer.
	again := named(vhds, "r/a", "r/b", "r/c")
	again.Again = r.sink.Builder(vhds).RequestAgain("r/a")
	r.sink.Publish(vhds)
	r.want(again)
	r.sent("VHDS +[r/a]")
	r.want(named(vhds, "r/a", "r/b", "r/c"))
	r.sent()
	r.is(vhds, snapshot.Unresolvable, "r/a")

	// The resource exists now, and its aliases are no longer unresolved.
	r.respond(resp{Type: vhds, Resources: []res{goes("r/v", "r/a", "r/b")}})
	r.is(vhds, snapshot.UnderOtherName, "r/a", "r/b")
	// A held resource stays, even if its alias is reported as unresolved.
	r.respond(resp{Type: vhds, Resources: []res{word}})
	r.is(vhds, snapshot.UnderOtherName, "r/a", "r/b")
	r.holds(vhds, "r/v")
}
