package adsclient

import (
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// An origin of which nothing changed answers a request that lists all versions with silence. That
// would look like an origin that does not work. So the smallest resource of each type has no
// version, or the first one by name if several are as small.
func TestP55_DeltaAWorkingOriginAnswersEachStream(t *testing.T) {
	for _, c := range []struct{ held, want string }{
		{"bigger small", "EDS +[bigger small] bigger=vbigger small="},
		{"b a", "EDS +[a b] a= b=vb"},
		{"only", "EDS +[only] only="},
	} {
		r := newProtocolFixture(t, xds.Delta)
		names := strings.Fields(c.held)
		r.want(named(eds, names...), all(cds))
		r.flush()
		for _, typ := range []xds.TypeURL{eds, cds} {
			r.respond(resp{Type: typ, Resources: clusters(names...)})
		}
		r.flush()
		want := []string{c.want, "CDS" + c.want[strings.Index(c.want, "]")+1:]}
		for range 2 {
			r.connect()
			r.sent(want...)
		}
		held := r.sink.Newest(eds)
		r.respond(resp{Type: eds, Resources: clusters(names...)})
		if r.sink.Newest(eds) != held {
			t.Error("an equal answer made another snapshot")
		}
	}
}

func TestP55_DeltaVersionsAreThoseOfThisOrigin(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	r.want(named(eds, "a", "big"))
	r.sent("EDS +[a big]")
	r.respond(resp{Type: eds, Resources: clusters("a", "big")})
	r.origin = "two"
	r.connect()
	r.sent("EDS +[a big] a= big=")
	r.respond(resp{Type: eds, Resources: []res{{Name: "big", Version: "9"}}})
	r.connect() // both sent big, but a is still from one, though the snapshot's origin is two
	r.sent("EDS +[a big] a= big=9")
	r.origin = "one"
	r.connect()
	r.sent("EDS +[a big] a= big=")
}

func TestP59_DeltaVersionsThatDoNotFitAreLeftOut(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	r.want(all(cds))
	r.next()
	r.respond(resp{Type: cds, Resources: clusters("a", "b", "c", "d")})
	r.max = 80
	r.connect()
	req := r.next()
	if req == nil || req.Size() > r.max || req.VersionsLeftOut == 0 || req.VersionsLeftOut == 4 || req.Oversized {
		t.Fatalf("request of %d bytes, %d left out", req.Size(), req.VersionsLeftOut)
	}
	if got := show(t, r.v, req.bytes()); !strings.Contains(got, " a= ") || strings.Count(got, "=")+req.VersionsLeftOut != 4 {
		t.Errorf("%s and %d left out", got, req.VersionsLeftOut)
	}
}

// A node may have 30 KB. All requests of a stream share its bytes, and P59 counts them.
func TestP58_NodeIsEncodedOnce(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newProtocolFixture(t, v)
		r.want(named(rds, "a"), named(eds, "b"))
		nodeOf := func(q *Request) []byte { return q.Message[len(q.Message)-1] }
		first, second := r.next(), r.next()
		if len(nodeOf(first)) == 0 || &nodeOf(first)[0] != &nodeOf(second)[0] {
			t.Errorf("the requests %q and %q do not share the node", first.Message, second.Message)
		}
		r.max = first.Size() - 1
		r.connect()
		if q := r.next(); !q.Oversized {
			t.Errorf("a request of %d bytes, the limit is %d", q.Size(), r.max)
		}
	})
}

// A directory that served meanwhile counts as another origin too.
func TestP56_DirectoryIsAnotherOrigin(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newProtocolFixture(t, v)
		r.want(named(rds, "a", "b"))
		r.next()
		r.respond(resp{Type: rds, Version: "1", Resources: clusters("a", "b")})
		u := snapshot.Update{Type: rds, Origin: "files", Version: "1"}
		for _, name := range []string{"a", "b"} {
			u.Changed = append(u.Changed, r.sink.Newest(rds).Resource(name))
		}
		r.apply(u)
		for range 2 {
			r.connect()
			if v == xds.Delta {
				r.sent("RDS +[a b] a= b=")
			} else {
				r.sent("RDS [a b]")
			}
			clear(r.lastVersions) // as if the directory had been used first
		}
	})
}

// The versions of what was stored are not the origin's, even if it was asked before the store was read.
func TestP66_StoredVersionsAreNotListed(t *testing.T) {
	r := newProtocolFixture(t, xds.Delta)
	r.want(all(cds))
	r.sent("CDS") // and the stream ends
	stored := make([]*xds.Resource, 2)
	for i, x := range clusters("a", "b") {
		x.Version = "1"
		raw, fault := xds.ParseResponse(xds.Delta, resp{Type: cds, Resources: []res{x}}.Encode(t, xds.Delta, "1"))
		if fault != nil {
			t.Fatal(fault)
		}
		stored[i] = raw.Resources[0].Take(xds.TypeOf(cds), nil)
	}
	r.sink.Builder(cds).ApplyStored(snapshot.Update{Type: cds, Origin: r.origin, Wildcard: true, Changed: stored})
	r.sink.Publish(cds)
	r.connect()
	r.sent("CDS a= b=")
}

// Another origin's versions are not this one's, even if the group applied none of its responses.
func TestP55_SotWVersionsAreThoseOfThisOrigin(t *testing.T) {
	r := newProtocolFixture(t, xds.SotW)
	r.want(named(rds, "a"))
	r.sent("RDS [a]")
	r.respond(resp{Type: rds, Version: "1", Resources: clusters("a")})
	r.connect()
	r.waits(0)
	r.sent("RDS [a]")
	r.waits(time.Second)
	r.lastVersions[rds].domain = "two"
	r.connect()
	r.sent("RDS [a]")
	r.waits(0)
}
