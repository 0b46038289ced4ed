package upstream

import (
	"testing"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// A version of a key's type is logged once, even if several responses bring it. Equal content under
// a new version is logged too.
func TestVersionsAreLogged(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		log := new(xdstest.Log)
		f := startFake(t)
		r := startRelay(t, v, Options{Log: log.Logger()}, f.address)
		_, sink := r.stream(named(rds, "a", "b"), named(cds, "e"))
		s := f.serve(2)
		s.send(resp{Type: rds, Version: "v1", Resources: clusters("a")})
		sink.UntilNames(t, rds, "a")
		s.send(resp{Type: rds, Version: "v1", Resources: clusters("a", "b")})
		sink.UntilNames(t, rds, "a", "b")
		log.Until(t, 0, `level=INFO msg="new version from the origin" key=key origin=`+f.address+" type=RDS version=")
		log.Until(t, 0, " origin_version=v1\n")
		s.send(resp{Type: rds, Version: "v2", Resources: clusters("a", "b")}) // nothing differs
		s.send(resp{Type: cds, Version: "last", Resources: []res{{Name: "e", Content: "last", Version: "last"}}})
		log.Until(t, 0, "origin_version=last")
		if n := log.Count("new version from the origin"); n != 3 {
			t.Errorf("%d lines:\n%s", n, log)
		}
	})
}

// Stored content that the origin confirms is not logged as a new version. Content that differs from
// the stored one is logged.
func TestVersionsOfConfirmedContent(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		log := new(xdstest.Log)
		f := startFake(t)
		r := startRelay(t, v, Options{Log: log.Logger()}, f.address)
		sink := newTestSink()
		for _, typ := range []xds.TypeURL{rds, eds} {
			b := sink.Builder(typ)
			b.ApplyStored(snapshot.Update{Type: typ, Origin: f.address, Version: "v1", Changed: []*xds.Resource{resourceOf(t, typ, res{Name: "a", Content: "same", Version: "1"})}})
			b.ResolveAliases(xds.NewNameSet("a"))
			sink.Publish(typ)
			if !sink.Snapshots[typ].Stale {
				t.Fatal("the recalled snapshot is not marked as last known good")
			}
		}
		r.run(sink, named(rds, "a"), named(eds, "a"))
		s := f.serve(2)
		s.send(resp{Type: rds, Version: "v1", Resources: []res{{Name: "a", Content: "same", Version: "1"}}})
		sink.Until(t, "the origin's word", func() bool { return !sink.Snapshots[rds].Stale })
		s.send(resp{Type: eds, Version: "v1", Resources: []res{{Name: "a", Content: "other", Version: "2"}}})
		sink.Until(t, "the origin's word", func() bool { return !sink.Snapshots[eds].Stale })
		s.send(resp{Type: rds, Version: "v2", Resources: []res{{Name: "a", Content: "new", Version: "3"}}})
		log.Until(t, 0, "type=EDS ")
		log.Until(t, 0, "origin_version=v2")
		if n := log.Count("new version from the origin"); n != 2 {
			t.Errorf("%d lines:\n%s", n, log)
		}
	})
}
