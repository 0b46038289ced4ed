package upstream

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"xdsrelay/internal/xds"
)

// A version of a key's type is told once, however many responses it comes in, and not
// again for what is equal; many are not all told.
func TestVersionsAreTold(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		log := new(logged)
		f := startFake(t)
		r := startRelay(t, Options{Variant: v, Log: slog.New(slog.NewTextHandler(log, nil))}, f.address)
		_, sink := r.stream(named(rds, "a", "b"), named(cds, "e"))
		s := f.serve(2)
		s.send(resp{typ: rds, version: "v1", res: clusters("a")})
		sink.untilNames(t, rds, "a")
		s.send(resp{typ: rds, version: "v1", res: clusters("a", "b")})
		sink.untilNames(t, rds, "a", "b")
		log.says(t, `level=INFO msg="new version from the origin" key=key origin=`+f.address+" type="+string(rds)+" version=")
		log.says(t, " origin_version=v1\n")
		s.send(resp{typ: rds, version: "v2", res: clusters("a", "b")}) // nothing is another
		for i := range 3 * versionsBurst {
			name := fmt.Sprintf("x%d", i)
			s.send(resp{typ: cds, version: name, res: []res{{name: "e", content: name, version: name}}})
		}
		sink.until(t, "all of them", func() bool {
			return sink.held[cds] != nil && sink.held[cds].Given() == fmt.Sprintf("x%d", 3*versionsBurst-1)
		})
		if n := log.count("origin_version=v1"); n != 1 {
			t.Errorf("v1 is told %d times", n)
		}
		if n := log.count("new version from the origin"); n < versionsBurst || n > versionsBurst+20 {
			t.Errorf("%d lines", n)
		}
		r.client.versions.rate.SetBurst(1000)
		r.client.versions.rate.SetLimit(1e9)
		s.send(resp{typ: cds, version: "last", res: []res{{name: "e", content: "last", version: "last"}}})
		log.says(t, "origin_version=last")
		if log.count(" left_out=") == 0 { // by the last, or by the one before, which is told once it is held
			t.Error("it is not told that some were left out")
		}
		if strings.Contains(log.String(), "DEBUG") {
			t.Error("lines of level debug are written")
		}
	})
}

// What was recalled of the last known good, and turns out to be what the origin has, is no
// new version; what the origin has otherwise is, and so is what follows.
func TestVersionsOfWhatWasRecalled(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		log := new(logged)
		f := startFake(t)
		r := startRelay(t, Options{Variant: v, Log: slog.New(slog.NewTextHandler(log, nil))}, f.address)
		sink := newTestSink()
		for _, typ := range []xds.TypeURL{rds, eds} {
			b := sink.builder(typ)
			b.Recall(xds.Update{Type: typ, Origin: f.address, Version: "v1", Changed: []*xds.Resource{resourceOf(t, typ, res{name: "a", content: "same", version: "1"})}})
			b.Settle(xds.NewNameSet("a"))
			sink.publish(typ)
			if !sink.held[typ].Stale {
				t.Fatal("what was recalled is no last known good")
			}
		}
		r.run(sink, named(rds, "a"), named(eds, "a"))
		s := f.serve(2)
		s.send(resp{typ: rds, version: "v1", res: []res{{name: "a", content: "same", version: "1"}}})
		sink.until(t, "the origin's word", func() bool { return !sink.held[rds].Stale })
		s.send(resp{typ: eds, version: "v1", res: []res{{name: "a", content: "other", version: "2"}}})
		sink.until(t, "the origin's word", func() bool { return !sink.held[eds].Stale })
		s.send(resp{typ: rds, version: "v2", res: []res{{name: "a", content: "new", version: "3"}}})
		log.says(t, "type="+string(eds)+" ")
		log.says(t, "origin_version=v2")
		if n := log.count("new version from the origin"); n != 2 {
			t.Errorf("%d lines:\n%s", n, log)
		}
	})
}

// What was told of types that nobody wants any more is forgotten: there may be any number
// of them.
func TestVersionsOfTypesThatWent(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		f := startFake(t)
		r := startRelay(t, Options{Variant: v}, f.address)
		stream, sink := r.stream(named(rds, "a"))
		s := f.next()
		s.request()
		for i := range 5 {
			typ := xds.TypeURL(fmt.Sprintf("type.googleapis.com/no.such.Type%d", i))
			stream.SetInterest(sink.want(named(rds, "a"), named(typ, "a")))
			s.request()
			s.send(resp{typ: typ, version: "v1", res: []res{{name: "a", version: "1", wrap: true}}})
			sink.untilNames(t, typ, "a")
			s.request()
			stream.SetInterest(sink.want(named(rds, "a")))
			s.request()
		}
		s.send(resp{typ: rds, version: "v1", res: clusters("a")})
		sink.untilNames(t, rds, "a")
		s.request() // its ACK: it was told
		if n := len(stream.told); n != 1 {
			t.Errorf("of %d types", n)
		}
	})
}
